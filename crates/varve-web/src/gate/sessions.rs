//! The sessions of browsers that have logged in. They end with the process.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::secret::LoginSecret;

/// The time after which a browser must log in again.
pub(crate) const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// When there are more, the oldest one ends.
const COUNT_MAX: usize = 256;

/// The sessions, by the hashes of their secrets, each with its end.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<[u8; 32], Instant>>);

/// A session of a browser.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) secret: LoginSecret,
}

impl Sessions {
    /// Begins a session with this secret.
    pub(crate) fn begin(&self, secret: &LoginSecret, now: Instant) {
        let mut all = self.0.lock();
        all.retain(|_, end| *end > now);
        if all.len() >= COUNT_MAX {
            let oldest = all.iter().min_by_key(|(_, end)| **end).map(|(hash, _)| *hash);
            oldest.map(|hash| all.remove(&hash));
        }
        all.insert(*secret.hash().as_bytes(), now + SESSION_TIME);
    }

    /// The session with this secret, if it has not ended.
    pub(crate) fn find(&self, secret: &LoginSecret, now: Instant) -> Option<Session> {
        let is_open = self.0.lock().get(secret.hash().as_bytes()).is_some_and(|end| *end > now);
        is_open.then(|| Session { secret: secret.clone() })
    }

    /// Ends the session with this secret.
    pub(crate) fn end(&self, secret: &LoginSecret) {
        self.0.lock().remove(secret.hash().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use varve_world::SeededRandom;

    use super::*;

    #[test]
    fn a_session_ends_after_its_time_or_when_it_is_ended() {
        let (sessions, random, now) = (Sessions::default(), SeededRandom::new(1), Instant::now());
        let draw = || LoginSecret::draw(&random).unwrap();
        let (one, other) = (draw(), draw());
        sessions.begin(&one, now);
        assert!(sessions.find(&one, now).is_some() && sessions.find(&other, now).is_none());
        sessions.begin(&other, now);
        sessions.end(&one);
        assert!(sessions.find(&one, now).is_none() && sessions.find(&other, now).is_some());
        assert!(sessions.find(&other, now + SESSION_TIME - Duration::from_secs(1)).is_some());
        assert!(sessions.find(&other, now + SESSION_TIME).is_none());
        for _ in 0..2 * COUNT_MAX {
            sessions.begin(&draw(), now);
        }
        assert_eq!(sessions.0.lock().len(), COUNT_MAX);
    }
}
