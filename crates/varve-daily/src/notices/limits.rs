//! Limits in time.

use std::time::Duration;

/// The time after which a channel that has not answered has failed.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The time-out of a single exchange, which leaves time to report it.
pub const EXCHANGE: Duration = Duration::from_secs(8);
