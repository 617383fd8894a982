//! The least rate of an answer. A server that sends one byte now and then is never silent for long,
//! and would otherwise hold a call for hours.

use std::time::Duration;

use crate::attempt_error::AttemptError;
use crate::edge;
use crate::retry::retrying_target::RetryPolicy;

/// A credit of waiting time. Waiting for the server uses it up, and received bytes earn it back. So
/// a pause of the server is borne at any moment, and a trickle is not. Time in which the receiver
/// itself waits, for its consumer or for a pace, costs nothing.
pub(crate) struct LeastRate {
    credit: Duration,
    credit_max: Duration,
    patience: RetryPolicy,
}

impl LeastRate {
    pub fn new(patience: &RetryPolicy) -> Self {
        Self::after_work(patience, 0)
    }

    /// Also grants the time that the server may need to work on this many bytes.
    pub fn after_work(patience: &RetryPolicy, bytes: u64) -> Self {
        let credit_max = patience.time_for(bytes);
        Self { credit: credit_max, credit_max, patience: *patience }
    }

    /// Waits for a part of the answer.
    pub async fn wait<T>(&mut self, coming: impl Future<Output = T>) -> Result<T, AttemptError> {
        let begun = edge::now();
        let outcome = tokio::time::timeout(self.credit, coming).await;
        self.credit = self.credit.saturating_sub(edge::now().saturating_duration_since(begun));
        outcome.map_err(|_| {
            let rate = self.patience.bytes_per_second_min;
            AttemptError::passing(format!("the server is silent, or sends fewer than {rate} bytes a second"))
        })
    }

    /// Adds the credit for bytes that have arrived.
    pub fn earn(&mut self, bytes: usize) {
        let earned = self.patience.time_at_least_rate(bytes as u64);
        self.credit = self.credit.saturating_add(earned).min(self.credit_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: RetryPolicy = RetryPolicy {
        try_count_max: 1,
        first_pause: Duration::ZERO,
        pause_max: Duration::ZERO,
        silence_max: Duration::from_secs(30),
        bytes_per_second_min: 4096,
    };

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_trickle_uses_up_the_credit_and_a_transfer_does_not() {
        let mut rate = LeastRate::new(&PATIENCE);
        // Each second one byte.
        let seconds = (0..100).find(|_| {
            rate.credit = rate.credit.saturating_sub(Duration::from_secs(1));
            rate.earn(1);
            rate.credit < Duration::from_secs(1)
        });
        assert_eq!(seconds, Some(29));
        // Each second exactly the least rate, then a pause of the server.
        let mut rate = LeastRate::new(&PATIENCE);
        for _ in 0..1000 {
            rate.credit = rate.credit.saturating_sub(Duration::from_secs(1));
            rate.earn(4096);
        }
        assert_eq!(rate.credit, PATIENCE.silence_max);
        // Many bytes at once buy no endless trickle.
        rate.earn(1 << 30);
        assert_eq!(rate.credit, PATIENCE.silence_max);
        assert_eq!(LeastRate::after_work(&PATIENCE, 40_960).credit, Duration::from_secs(40));
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let patience = RetryPolicy { silence_max: Duration::from_millis(50), ..PATIENCE };
        runtime().block_on(async {
            let mut rate = LeastRate::new(&patience);
            assert_eq!(rate.wait(async { 7 }).await.unwrap(), 7);
            let silent = rate.wait(std::future::pending::<()>()).await;
            assert!(matches!(silent, Err(AttemptError::Passing(..))), "{silent:?}");
            assert_eq!(rate.credit, Duration::ZERO);
        });
    }
}
