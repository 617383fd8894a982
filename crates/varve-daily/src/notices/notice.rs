//! The text of a notice.

use serde_json::{Value, json};
use varve_block::visible;

use crate::promise::{JudgedPromise, PromiseState, folded};
use crate::timing::show_time_span;

/// A notice about the promises of a machine.
#[derive(Debug, Clone)]
pub struct PromiseNotice {
    pub title: String,
    /// A line for each change, and one for each promise that is still broken.
    pub text: String,
    pub is_bad: bool,
    /// The form for web hooks.
    pub value: Value,
}

impl PromiseNotice {
    /// Describes changes, and the promises that are broken otherwise. `has_details` allows the
    /// names of archived files and the messages of programs.
    #[must_use]
    pub fn new(machine: &str, changed: &[&JudgedPromise], all: &[JudgedPromise], has_details: bool) -> Self {
        let broken = all.iter().filter(|promise| promise.state != PromiseState::Kept).count();
        let machine = visible(machine);
        let title = match broken {
            0 => format!("varve {machine}: every promise is kept"),
            1 => format!("varve {machine}: 1 promise is broken"),
            count => format!("varve {machine}: {count} promises are broken"),
        };
        let is_changed = |promise: &&JudgedPromise| {
            changed.iter().any(|one| (one.kind, &one.subject) == (promise.kind, &promise.subject))
        };
        let others = all.iter().filter(|promise| promise.state != PromiseState::Kept && !is_changed(promise));
        let told = folded(changed.iter().copied().chain(others));
        let lines: Vec<_> =
            told.into_iter().map(|(promise, count)| line(promise, count, has_details)).collect();
        let value = json!({
            "machine": machine,
            "title": title,
            "state": if broken == 0 { "ok" } else { "broken" },
            "changed": changed.iter().map(|promise| promise_value(promise, has_details)).collect::<Vec<_>>(),
            "promises": all.iter().map(|promise| promise_value(promise, has_details)).collect::<Vec<_>>(),
        });
        Self { title, text: lines.join("\n"), is_bad: broken > 0, value }
    }

    /// The same with a line for each promise: the report of a week.
    #[must_use]
    pub fn report(
        machine: &str,
        changed: &[&JudgedPromise],
        all: &[JudgedPromise],
        has_details: bool,
    ) -> Self {
        let told = folded(all).into_iter();
        let lines: Vec<_> = told.map(|(promise, count)| line(promise, count, has_details)).collect();
        let notice = Self::new(machine, changed, all, has_details);
        Self { title: format!("{} (report of the week)", notice.title), text: lines.join("\n"), ..notice }
    }

    /// A notice that only shows that notices arrive.
    #[must_use]
    pub fn test(machine: &str) -> Self {
        let machine = visible(machine);
        let title = format!("varve {machine}: a test");
        let text = "Notices about broken promises arrive here.".to_owned();
        let value =
            json!({ "machine": machine, "title": title, "state": "test", "changed": [], "promises": [] });
        Self { title, text, is_bad: false, value }
    }
}

fn line(promise: &JudgedPromise, depending_count: usize, has_details: bool) -> String {
    let word = match promise.state {
        PromiseState::Broken => "BROKEN",
        PromiseState::Unknown => "UNKNOWN",
        PromiseState::Kept => "ok",
    };
    let limit = promise.limit.map(|limit| format!(" {}", show_time_span(limit))).unwrap_or_default();
    let detail = promise.detail.as_ref().filter(|_| has_details);
    let detail = detail.map(|detail| format!(": {}", visible(detail))).unwrap_or_default();
    let text = visible(&promise.text);
    let others = depending_text(depending_count);
    format!("{word} {}{limit} {}: {text}{detail}{others}", promise.kind.name(), promise.subject)
}

/// Says how many other promises depend on a store that cannot be read.
#[must_use]
pub fn depending_text(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "; 1 other promise depends on it".to_owned(),
        count => format!("; {count} other promises depend on it"),
    }
}

/// Returns the form for programs. `has_details` allows the names of archived files and the messages
/// of programs.
#[must_use]
pub fn promise_value(promise: &JudgedPromise, has_details: bool) -> Value {
    json!({
        "promise": promise.kind.name(),
        "subject": promise.subject,
        "state": promise.state.name(),
        "limit_seconds": promise.limit.map(|limit| limit.as_secs()),
        "figure_seconds": promise.figure.map(|figure| figure.as_secs()),
        "message": promise.text,
        "detail": promise.detail.as_ref().filter(|_| has_details),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promise::PromiseKind;

    #[test]
    fn the_names_of_files_stay_on_the_machine() {
        let text = "1 file could not be read in the last 3 snapshots";
        let judged =
            JudgedPromise::new(PromiseKind::SnapshotWithin, "home", None, PromiseState::Broken, text);
        let judged = judged.with_detail("secret/diary.txt");
        let all = [judged];
        let notice = |has_details| PromiseNotice::new("web1", &[&all[0]], &all, has_details);
        let plain = notice(false);
        assert_eq!(plain.title, "varve web1: 1 promise is broken");
        assert_eq!(plain.text, format!("BROKEN snapshot-within home: {text}"));
        assert!(!format!("{plain:?}").contains("diary"), "{plain:?}");
        assert!(notice(true).text.ends_with(": secret/diary.txt"));
    }
}
