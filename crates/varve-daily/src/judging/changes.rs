//! Changes of promises since somebody was last told about them.

use std::collections::BTreeMap;

use crate::config::NotifyEvents;
use crate::promise::{JudgedPromise, PromiseState};

/// The states of promises that somebody was told, by kind and subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedStates(pub BTreeMap<String, PromiseState>);

impl ReportedStates {
    /// The states of these promises.
    #[must_use]
    pub fn of(promises: &[JudgedPromise]) -> Self {
        Self(promises.iter().map(|promise| (key(promise), promise.state)).collect())
    }

    /// Returns the promises with another state than the told one. A promise that nobody was told
    /// about counts as kept.
    #[must_use]
    pub fn changes<'a>(&self, promises: &'a [JudgedPromise], events: NotifyEvents) -> Vec<&'a JudgedPromise> {
        let is_event = |promise: &JudgedPromise| match promise.state {
            PromiseState::Kept => events.mended,
            PromiseState::Broken | PromiseState::Unknown => events.broken,
        };
        let told = |promise: &JudgedPromise| self.0.get(&key(promise)).copied().unwrap_or(PromiseState::Kept);
        promises.iter().filter(|promise| told(promise) != promise.state && is_event(promise)).collect()
    }
}

fn key(promise: &JudgedPromise) -> String {
    format!("{} {}", promise.kind.name(), promise.subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promise::PromiseKind;

    #[test]
    fn only_changes_are_told() {
        let judged = |state| JudgedPromise::new(PromiseKind::SnapshotWithin, "home", None, state, "");
        let all = NotifyEvents::default();
        let told = |was: &[PromiseState], is| {
            let known = ReportedStates::of(&was.iter().map(|state| judged(*state)).collect::<Vec<_>>());
            known.changes(&[judged(is)], all).len()
        };
        use PromiseState::{Broken, Kept, Unknown};
        assert_eq!((told(&[], Kept), told(&[], Broken), told(&[], Unknown)), (0, 1, 1));
        assert_eq!((told(&[Broken], Broken), told(&[Broken], Kept), told(&[Kept], Kept)), (0, 1, 0));
        assert_eq!(told(&[Unknown], Broken), 1);
        let only_broken = NotifyEvents { mended: false, ..all };
        assert_eq!(ReportedStates::of(&[judged(Broken)]).changes(&[judged(Kept)], only_broken).len(), 0);
    }
}
