//! How many files this process may have open: a folder deep in others, a door with many clients and a store of many arenas all want more
//! than a shell mostly allows.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Takes as many as the system lets this process have. Programs that it starts inherit that.
pub fn allow_all() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::info!(%error, "no more open files could be allowed");
    }
}
