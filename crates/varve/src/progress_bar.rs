//! Progress bars on a terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use varve_content::{Progress, ProgressSnapshot};

use indicatif::{ProgressBar, ProgressStyle};

use crate::show;

const REFRESH: Duration = Duration::from_millis(100);

/// Shows a [`Progress`] on standard error until it is dropped, if that is a terminal.
pub struct ShownProgress {
    progress: Arc<Progress>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ShownProgress {
    /// Shows `progress` under a title.
    #[expect(clippy::disallowed_methods, reason = "the terminal is an edge")]
    pub fn start(title: &str, progress: &Arc<Progress>, quiet: bool) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        if quiet || !std::io::stderr().is_terminal() {
            return Self { progress: Arc::clone(progress), is_over, thread: None };
        }
        let bar = ProgressBar::no_length();
        bar.set_message(title.to_owned());
        let own = Arc::clone(progress);
        let (progress, over) = (Arc::clone(progress), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                refresh(&bar, &progress);
                std::thread::park_timeout(REFRESH);
            }
            bar.finish_and_clear();
        });
        Self { progress: own, is_over, thread: Some(thread) }
    }

    /// Counts the total work, in files and bytes, on another thread, if the progress is shown.
    /// `count` receives a function that reports whether the result is no longer needed.
    #[expect(clippy::disallowed_methods, reason = "the terminal is an edge")]
    pub fn count_ahead(&self, count: impl FnOnce(&dyn Fn() -> bool) -> Option<(u64, u64)> + Send + 'static) {
        if self.thread.is_none() {
            return;
        }
        let (progress, over) = (Arc::clone(&self.progress), Arc::clone(&self.is_over));
        std::thread::spawn(move || {
            let is_over = || over.load(Ordering::Relaxed) || progress.is_cancelled();
            if let Some((files, bytes)) = count(&is_over) {
                progress.set_total(files, bytes);
            }
        });
    }
}

fn refresh(bar: &ProgressBar, progress: &Progress) {
    let now = progress.snapshot();
    let (position, length) = match (now.bytes_total, now.files_total) {
        (0, 0) => (now.bytes_done, None),
        (0, files) => (now.files_done, Some(files)),
        (bytes, _) => (now.bytes_done, Some(bytes)),
    };
    let template = if length.is_some() { "{msg} {wide_bar} {prefix}" } else { "{msg} {spinner} {prefix}" };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if let Some(length) = length {
        bar.set_length(length);
    }
    bar.set_position(position);
    bar.set_prefix(state(&now, bar.per_sec(), length.map(|_| bar.eta())));
}

/// Formats the progress in the units of the results:
/// `12 of 40 files, 143 MiB of 1.20 GiB, 148 MiB/s, 8.1 s left`.
fn state(now: &ProgressSnapshot, per_second: f64, left: Option<Duration>) -> String {
    let of = |done: String, total: Option<String>| match total {
        Some(total) => format!("{done} of {total}"),
        None => done,
    };
    let mut parts = Vec::new();
    if now.files_done > 0 || now.files_total > 0 {
        let files = show::count(now.files_done.max(now.files_total), "file");
        let total = (now.files_total > 0).then_some(files.clone());
        parts.push(match total {
            Some(total) => format!("{} of {total}", now.files_done),
            None => files,
        });
    }
    if now.bytes_done > 0 || now.bytes_total > 0 {
        let total = (now.bytes_total > 0).then(|| show::bytes(now.bytes_total));
        parts.push(of(show::bytes(now.bytes_done), total));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "three digits are shown"
        )]
        parts.push(format!("{}/s", show::bytes(per_second.max(0.0) as u64)));
    }
    if let Some(left) = left.filter(|left| !left.is_zero()) {
        parts.push(format!("{} left", show::duration(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))));
    }
    parts.push(now.current.display().to_string());
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

impl Drop for ShownProgress {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If the thread panicked, only the progress display has stopped.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_the_units_of_results() {
        let mut now = ProgressSnapshot { bytes_done: 150_000_000, ..ProgressSnapshot::default() };
        assert_eq!(state(&now, 1e6, None), "143 MiB, 977 KiB/s");
        now.bytes_total = 1_288_490_189;
        (now.files_done, now.files_total) = (12, 40);
        let left = Some(Duration::from_millis(8100));
        assert_eq!(state(&now, 1e6, left), "12 of 40 files, 143 MiB of 1.20 GiB, 977 KiB/s, 8.1 s left");
        now = ProgressSnapshot { files_done: 1, current: "a/b".into(), ..ProgressSnapshot::default() };
        assert_eq!(state(&now, 0.0, None), "1 file, a/b");
    }
}
