//! The state of notices: who was told what, and when.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use varve_world::Timestamp;

use crate::judging::ReportedStates;
use crate::promise::PromiseState;

/// The state of notices.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NoticeState {
    /// The time when promises were last judged for notices.
    pub judged: Option<Timestamp>,
    /// The time of the last report of a week.
    pub weekly: Option<Timestamp>,
    /// The states that each channel was told.
    pub told: BTreeMap<String, ReportedStates>,
}

impl NoticeState {
    /// Returns the form in the file.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let states = |told: &ReportedStates| {
            told.0
                .iter()
                .map(|(promise, state)| (promise.clone(), state.name().into()))
                .collect::<Map<_, _>>()
        };
        let told: Map<_, _> =
            self.told.iter().map(|(channel, told)| (channel.clone(), states(told).into())).collect();
        json!({ "judged": self.judged.map(|time| time.0), "weekly": self.weekly.map(|time| time.0), "told": told })
    }

    /// Reads the form in the file. Anything that is not understood is left out.
    #[must_use]
    pub fn from_json(value: &Value) -> Self {
        let time = |field: &str| value[field].as_i64().map(Timestamp);
        let state = |(promise, state): (&String, &Value)| {
            Some((promise.clone(), PromiseState::from_name(state.as_str()?)?))
        };
        let told = value["told"].as_object().into_iter().flatten().map(|(channel, told)| {
            let states = told.as_object().into_iter().flatten().filter_map(state).collect();
            (channel.clone(), ReportedStates(states))
        });
        Self { judged: time("judged"), weekly: time("weekly"), told: told.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_comes_back_as_it_was_saved() {
        let told = ReportedStates([("snapshot-within home".to_owned(), PromiseState::Broken)].into());
        let state = NoticeState {
            judged: Some(Timestamp(5)),
            weekly: None,
            told: [("mail".to_owned(), told)].into(),
        };
        assert_eq!(NoticeState::from_json(&state.to_json()), state);
        assert_eq!(NoticeState::from_json(&json!({ "told": [7], "judged": "x" })), NoticeState::default());
    }
}
