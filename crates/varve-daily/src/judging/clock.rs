//! The clocks of servers, compared with that of this machine.

use std::time::Duration;

use varve_archive::TimeLeap;
use varve_block::visible;
use varve_session::moment;
use varve_world::Timestamp;

use crate::timing::show_time_span;

/// A clock that differs by more than this is wrong.
pub(crate) const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);

/// The clock of a server, compared with that of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerClock {
    /// The name of the server.
    pub server: String,
    /// The times of this machine and of the server at the same moment.
    pub here: Timestamp,
    pub there: Timestamp,
}

/// Says which server has another time, if one has.
#[must_use]
pub fn server_clock_fault(servers: &[ServerClock]) -> Option<String> {
    let difference = |clock: &ServerClock| clock.there.since(clock.here).max(clock.here.since(clock.there));
    let clock = servers.iter().max_by_key(|clock| difference(clock))?;
    let direction = if clock.here > clock.there { "ahead of" } else { "behind" };
    (difference(clock) > CLOCK_TOLERANCE).then(|| {
        format!(
            "this clock is {} {direction} that of {}: one of them is wrong",
            show_time_span(difference(clock)),
            visible(&clock.server)
        )
    })
}

/// Says that the clock is behind, as most snapshots are later than `now`.
#[must_use]
pub fn clock_behind_text(now: Timestamp) -> String {
    format!("the clock shows {}, and most snapshots are later", moment::show(now))
}

/// Says that the clock may have been set forward.
#[must_use]
pub fn clock_leap_text(leap: TimeLeap) -> String {
    format!(
        "no snapshot was taken between {} and {}, or the clock is wrong: rules with a time span wait for seven nights of work after that",
        moment::show(leap.from),
        moment::show(leap.to)
    )
}
