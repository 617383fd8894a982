//! What the process does so that its keys stay its own.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Leaves no core behind when the process dies, and lets no other process of the same user look into its memory. That is as much as
/// a process can do; where the system refuses, the program works all the same.
pub fn guard_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::info!(%error, "the process could not be closed to others");
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::info!(%error, "core dumps could not be switched off");
    }
}
