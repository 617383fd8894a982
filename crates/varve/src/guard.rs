//! Protects the memory of this process, which holds keys.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Disables core dumps, and denies other processes of the same user access to this process's
/// memory. A process can do no more. If the system refuses, the program works without the
/// protection.
pub fn guard_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::info!(%error, "the process could not be protected from others");
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::info!(%error, "core dumps could not be disabled");
    }
}
