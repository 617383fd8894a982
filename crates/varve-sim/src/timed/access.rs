//! Accesses to a device: their kinds, their times and their order.

use serde::{Deserialize, Serialize};

/// The direction of an access to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    Read,
    Write,
}

/// The duration of an access in nanoseconds, in its two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServiceTime {
    pub(super) positioning: u64,
    pub(super) transfer: u64,
}

impl ServiceTime {
    pub(super) const NONE: Self = Self { positioning: 0, transfer: 0 };

    pub(super) fn sum(self) -> u64 {
        self.positioning + self.transfer
    }
}

impl std::ops::AddAssign for ServiceTime {
    fn add_assign(&mut self, more: Self) {
        self.positioning += more.positioning;
        self.transfer += more.transfer;
    }
}

/// Rounds seconds to nanoseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked figures are positive")]
pub(super) fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "times have few digits")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

/// Returns the position of the access that a disk performs next: the first one after the head, in
/// the order of places, or else the very first. Of equal ones the earlier is taken. `places` is not
/// empty.
pub(super) fn next_in_order(head: Option<u64>, places: impl Iterator<Item = u64>) -> usize {
    let head = head.unwrap_or(0);
    let order = |place: u64| (place < head, place);
    places.enumerate().min_by_key(|(_, place)| order(*place)).map_or(0, |(choice, _)| choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arm_moves_on_before_it_returns() {
        assert_eq!(next_in_order(Some(50), [10, 70, 60, 90].into_iter()), 2);
        assert_eq!(next_in_order(Some(95), [30, 10, 70].into_iter()), 1);
        assert_eq!(next_in_order(None, [5, 5].into_iter()), 0);
    }
}
