//! Models of the protocol by which many machines write one store at once, checked in all states.
//!
//! Nothing of the protocol is built yet. `docs/internals/many-writers.md` has its rules, the loss
//! that each rule prevents, and the limits of these models. The models have no clock, so no rule
//! depends on one.

mod claims;
mod readers;
mod rules;
mod search;
mod sessions;
