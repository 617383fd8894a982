//! Links that log in a browser once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use varve_world::Random;

use super::secret::LoginSecret;

/// The time for which a link can be used.
const LINK_TIME: Duration = Duration::from_secs(300);
/// When there are more unused links, the oldest one ends.
const COUNT_MAX: usize = 8;

/// The links that were not used yet.
pub struct LoginLinks {
    random: Arc<dyn Random>,
    /// The hash of each key and the end of its time, the oldest first.
    open: Mutex<Vec<(blake3::Hash, Instant)>>,
}

impl LoginLinks {
    /// No links.
    #[must_use]
    pub fn new(random: Arc<dyn Random>) -> Self {
        Self { random, open: Mutex::default() }
    }

    /// Makes the path of a link that logs in one browser within five minutes.
    ///
    /// # Errors
    /// The system cannot supply random bytes.
    pub fn issue(&self) -> io::Result<String> {
        self.issue_at(Instant::now())
    }

    fn issue_at(&self, now: Instant) -> io::Result<String> {
        let key = LoginSecret::draw(&*self.random)?;
        let mut open = self.open.lock();
        let excess = (open.len() + 1).saturating_sub(COUNT_MAX);
        open.drain(..excess);
        open.push((key.hash(), now + LINK_TIME));
        Ok(format!("login?key={}", key.text()))
    }

    /// Uses the key of a link. Returns whether it was good; it never is again.
    pub(crate) fn take(&self, key: &str, now: Instant) -> bool {
        let Some(key) = LoginSecret::parse(key) else { return false };
        let mut open = self.open.lock();
        open.retain(|(_, end)| *end > now);
        let count = open.len();
        open.retain(|(hash, _)| *hash != key.hash());
        open.len() < count
    }
}

#[cfg(test)]
mod tests {
    use varve_world::SeededRandom;

    use super::*;

    #[test]
    fn a_link_works_once_and_for_five_minutes() {
        let (links, now) = (LoginLinks::new(Arc::new(SeededRandom::new(1))), Instant::now());
        let issued = || links.issue_at(now).unwrap().strip_prefix("login?key=").unwrap().to_owned();
        let first = issued();
        for wrong in ["", &first[1..], &format!("{first}A")] {
            assert!(!links.take(wrong, now), "{wrong}");
        }
        assert!(links.take(&first, now));
        assert!(!links.take(&first, now));
        let late = issued();
        assert!(!links.take(&late, now + LINK_TIME));
        let many: Vec<_> = (0..=COUNT_MAX).map(|_| issued()).collect();
        assert!(!links.take(&many[0], now));
        assert!(many[1..].iter().all(|key| links.take(key, now)));
    }
}
