//! Asks servers for their time, all at the same time, and for a bounded time.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use varve_remote::ClockServer;
use varve_world::{Clock, RealClock, Timestamp};

use crate::judging::ServerClock;
use crate::loaded_config::LoadedConfig;

/// A server that has not answered in this time judges no clock.
const PATIENCE: Duration = Duration::from_secs(8);

/// Servers that were asked for their time.
pub struct AskedClocks {
    answers: Receiver<ServerClock>,
    until: Instant,
}

/// Asks the servers of a store, of its replicas and of the heartbeat, if they speak HTTP.
#[expect(clippy::disallowed_methods, reason = "servers are awaited in real time")]
#[must_use]
pub fn ask_clocks(loaded: &LoadedConfig, store_name: &str) -> AskedClocks {
    let config = &loaded.config;
    let store = config.store(store_name).map(|store| &store.at);
    let replicas = config.replicas.values().filter(|replica| replica.of == store_name);
    let places = store.into_iter().chain(replicas.map(|replica| &replica.at)).chain(&config.notify.heartbeat);
    let servers: BTreeSet<_> = places.filter_map(|place| ClockServer::of(place)).collect();
    let (sender, answers) = mpsc::channel();
    for server in servers {
        let sender = sender.clone();
        // A thread that waits for a dead server is left to the end of the process.
        std::thread::spawn(move || {
            let before = RealClock.now();
            let Ok(Some(there)) = server.time(PATIENCE) else { return };
            let here = Timestamp(before.0.midpoint(RealClock.now().0));
            // The receiver is gone once the patience has ended.
            let _ = sender.send(ServerClock { server: server.name(), here, there });
        });
    }
    AskedClocks { answers, until: Instant::now() + PATIENCE }
}

impl AskedClocks {
    /// Returns the times of the servers that have answered.
    #[expect(clippy::disallowed_methods, reason = "servers are awaited in real time")]
    #[must_use]
    pub fn wait(self) -> Vec<ServerClock> {
        let rest = || self.until.saturating_duration_since(Instant::now());
        let mut clocks: Vec<_> = std::iter::from_fn(|| self.answers.recv_timeout(rest()).ok()).collect();
        clocks.sort_by(|a, b| a.server.cmp(&b.server));
        clocks
    }
}
