//! Searches a model breadth first: all of its states, or the shortest path to a loss.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Model};

/// Visits every state that a model can reach, and returns their number.
///
/// # Panics
/// If a state violates a property. The message has the path to it.
pub fn all_states<M>(model: M) -> usize
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let properties = model.properties();
    let checker = model.checker().threads(2).spawn_bfs().join();
    for property in properties {
        if let Some(path) = checker.discovery(property.name) {
            panic!("{} does not hold: {:#?}", property.name, path.into_actions());
        }
    }
    assert!(checker.is_done(), "not all states were visited");
    checker.unique_state_count()
}

/// Returns the shortest path to a violation of the only property of a model, if one exists.
///
/// One thread visits the states, because several would find a path that may be longer.
pub fn shortest_loss<M>(model: M) -> Option<Vec<M::Action>>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let properties = model.properties();
    let [property] = properties.as_slice() else { panic!("the path to one violation is asked for") };
    let checker = model.checker().threads(1).spawn_bfs().join();
    checker.discovery(property.name).map(|path| path.into_actions())
}
