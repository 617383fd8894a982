//! The limit of open files. Deeply nested folders, front ends with many clients and stores with
//! many arenas need more open files than most shells permit.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit to the maximum that the system permits. Child processes inherit it.
pub fn allow_all() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::info!(%error, "the limit of open files could not be raised");
    }
}
