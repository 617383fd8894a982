//! The average time of an access in a pattern, by the model of a device.

use super::{AccessPattern, DeviceProfile, DeviceState};
use crate::draw::SeededDraw;
use crate::timed::access::{float, next_in_order};

/// The accesses of which the average time is taken.
const ACCESS_COUNT: u64 = 4000;

impl DeviceProfile {
    /// Returns the average time of an access in a pattern, in milliseconds, by the model: the
    /// duration divided by the number of accesses.
    #[must_use]
    pub fn time_of(&self, pattern: &AccessPattern) -> f64 {
        let mut device = DeviceState::new(&self.model);
        let mut draw = SeededDraw::new(1);
        let places = (pattern.span_bytes / pattern.bytes.max(1)).max(1);
        let mut slots = vec![0_u64; device.slots().min(pattern.depth).max(1)];
        let mut made = 0;
        let mut waiting = Vec::new();
        for _ in 0..ACCESS_COUNT {
            while waiting.len() < pattern.depth && made < ACCESS_COUNT {
                let place = if pattern.is_random { draw.below(places) } else { made % places };
                waiting.push(place * pattern.bytes);
                made += 1;
            }
            let choice = next_in_order(device.head(), waiting.iter().take(device.queue()).copied());
            let at = waiting.remove(choice);
            let slot = (0..slots.len()).min_by_key(|slot| slots[*slot]).unwrap_or(0);
            let now = slots[slot];
            let in_flight = slots.iter().filter(|end| **end > now).count() + 1;
            slots[slot] += device.serve(now, in_flight, pattern.action, at, pattern.bytes).sum();
        }
        let end = slots.into_iter().max().unwrap_or(0);
        float(end) / 1e6 / float(ACCESS_COUNT)
    }
}
