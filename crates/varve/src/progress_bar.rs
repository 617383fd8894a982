//! Progress on a terminal, and the end of a long operation when it is asked for.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use varve_archive::Progress;

use crate::{exit_status, show};

const REFRESH: Duration = Duration::from_millis(100);

/// Shows a [`Progress`] on stderr, if that is a terminal, until it is dropped.
pub struct Shown {
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Shown {
    /// Shows `progress` under a title.
    #[expect(clippy::disallowed_methods, reason = "the terminal is an edge")]
    pub fn start(title: &str, progress: &Arc<Progress>, quiet: bool) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        if quiet || !std::io::stderr().is_terminal() {
            return Self { is_over, thread: None };
        }
        let bar = ProgressBar::no_length();
        bar.set_message(title.to_owned());
        let (progress, over) = (Arc::clone(progress), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                refresh(&bar, &progress);
                std::thread::park_timeout(REFRESH);
            }
            bar.finish_and_clear();
        });
        Self { is_over, thread: Some(thread) }
    }
}

fn refresh(bar: &ProgressBar, progress: &Progress) {
    let now = progress.snapshot();
    let known = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let counted = "{msg} {wide_bar} {pos}/{len} {eta}";
    let open = "{msg} {spinner} {bytes} {bytes_per_sec} {prefix}";
    let (template, position, length) = match (now.bytes_total, now.files_total) {
        (0, 0) => (open, now.bytes_done, None),
        (0, files) => (counted, now.files_done, Some(files)),
        (bytes, _) => (known, now.bytes_done, Some(bytes)),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if let Some(length) = length {
        bar.set_length(length);
    }
    if now.files_done > 0 {
        bar.set_prefix(format!("{}  {}", show::count(now.files_done, "file"), now.current.display()));
    }
    bar.set_position(position);
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked has only stopped showing progress.
            drop(thread.join());
        }
    }
}

/// From now on, the first signal to end cancels `progress`, so that the operation ends cleanly; a second one ends the
/// program at once.
///
/// # Errors
/// When signals cannot be caught.
#[expect(clippy::disallowed_methods, reason = "signals come from the edge")]
pub fn cancel_on_signal(progress: &Arc<Progress>) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let progress = Arc::clone(progress);
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if progress.is_cancelled() {
                std::process::exit(i32::from(exit_status::INTERRUPTED));
            }
            WAS_SIGNALLED.store(true, Ordering::Relaxed);
            progress.cancel();
        }
    });
    Ok(())
}

/// Signals are the whole program's.
static WAS_SIGNALLED: AtomicBool = AtomicBool::new(false);

/// Whether a signal to end has come that was caught.
pub fn was_signalled() -> bool {
    WAS_SIGNALLED.load(Ordering::Relaxed)
}
