//! The promises of a configuration as the output of a plugin for Nagios, Icinga, Checkmk and
//! others: one line with figures, then a line for each promise (Monitoring Plugins Guidelines,
//! sections 2.1 to 2.6).

use std::fmt::Write;

use varve_daily::{JudgedPromise, PromiseState};

use crate::outcome::PluginState;
use crate::show;

/// Returns the state and the text for judged promises. `pause` has the end of a pause of daily
/// work.
pub fn judged(promises: &[JudgedPromise], pause: Option<&str>) -> (PluginState, String) {
    let of = |state| promises.iter().filter(move |promise| promise.state == state);
    let (broken, unknown) = (of(PromiseState::Broken).count(), of(PromiseState::Unknown).count());
    let (state, worst) = match (broken, unknown, pause) {
        (1.., ..) => (PluginState::Critical, PromiseState::Broken),
        (0, 1.., _) => (PluginState::Unknown, PromiseState::Unknown),
        (0, 0, Some(_)) => (PluginState::Warning, PromiseState::Broken),
        (0, 0, None) => (PluginState::Ok, PromiseState::Broken),
    };
    let mut text = match state {
        PluginState::Critical => format!("{} broken", show::count(broken as u64, "promise")),
        PluginState::Unknown => format!("{} cannot be judged", show::count(unknown as u64, "promise")),
        PluginState::Warning | PluginState::Ok => {
            format!("{} kept", show::count(promises.len() as u64, "promise"))
        }
    };
    let mut named = of(worst).map(|promise| format!("{} {}", promise.kind.name(), promise.subject));
    if let Some(first) = named.next() {
        let _ = write!(text, ": {first}{}", named.map(|name| format!(", {name}")).collect::<String>());
    }
    if let Some(until) = pause {
        let _ = write!(text, "; daily work is paused until {until}");
    }
    let figures: Vec<_> = promises.iter().filter_map(figure).collect();
    let separator = if figures.is_empty() { "" } else { " | " };
    let mut page = format!("{}{separator}{}", head(state, &text), figures.join(" "));
    for promise in promises {
        let (kind, subject) = (promise.kind.name(), &promise.subject);
        let _ = write!(page, "\n{} {kind} {subject}: {}", promise.state.name(), plain(&promise.text));
    }
    (state, page)
}

/// Returns the line for a failure before anything could be judged.
pub fn failed(reason: &str) -> String {
    head(PluginState::Unknown, reason)
}

fn head(state: PluginState, text: &str) -> String {
    let word = match state {
        PluginState::Ok => "OK",
        PluginState::Warning => "WARNING",
        PluginState::Critical => "CRITICAL",
        PluginState::Unknown => "UNKNOWN",
    };
    format!("VARVE {word} - {}", plain(text))
}

/// A vertical bar would begin the figures.
fn plain(text: &str) -> String {
    show::plain(text).replace('|', "/").replace('\n', " ")
}

/// Formats the age or the time that a promise limits, as `'label'=value;warning;critical`.
fn figure(promise: &JudgedPromise) -> Option<String> {
    let seconds = promise.figure?.as_secs();
    let limit = promise.limit.map(|limit| limit.as_secs().to_string()).unwrap_or_default();
    let label = format!("{} {}", promise.kind.name(), promise.subject).replace(['\'', '='], "_");
    Some(format!("'{}'={seconds}s;;{limit}", plain(&label)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use varve_daily::PromiseKind;

    use super::*;

    #[test]
    fn a_line_with_figures_comes_first() {
        let promise = |subject: &str, state| {
            let mut promise = JudgedPromise::new(
                PromiseKind::SnapshotWithin,
                subject,
                Some(Duration::from_hours(30)),
                state,
                "one | two",
            );
            promise.figure = Some(Duration::from_hours(1));
            promise
        };
        let kept = [promise("home", PromiseState::Kept), promise("it's", PromiseState::Kept)];
        let (state, page) = judged(&kept, None);
        assert_eq!(state, PluginState::Ok);
        let expected = "VARVE OK - 2 promises kept | 'snapshot-within home'=3600s;;108000 \
                        'snapshot-within it_s'=3600s;;108000\n\
                        ok snapshot-within home: one / two\nok snapshot-within it's: one / two";
        assert_eq!(page, expected);
        let (state, page) = judged(&kept[..1], Some("tomorrow"));
        assert_eq!(state, PluginState::Warning);
        assert!(page.starts_with("VARVE WARNING - 1 promise kept; daily work is paused until tomorrow |"));
        let mixed = [promise("a", PromiseState::Broken), promise("b", PromiseState::Unknown)];
        let (state, page) = judged(&mixed, None);
        assert_eq!(state, PluginState::Critical);
        assert!(page.starts_with("VARVE CRITICAL - 1 promise broken: snapshot-within a |"), "{page}");
        let (state, page) = judged(&mixed[1..], None);
        assert_eq!(state, PluginState::Unknown);
        assert!(page.starts_with("VARVE UNKNOWN - 1 promise cannot be judged: snapshot-within b"), "{page}");
        assert_eq!(failed("a\nb | c"), "VARVE UNKNOWN - a b / c");
    }
}
