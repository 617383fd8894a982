//! A store of objects at a provider: each access is a request on one of many connections.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use crate::timed::access::{AccessKind, ServiceTime, float, nanoseconds};

/// The figures of an object store. Data lies in objects of a fixed size, the segments. A segment
/// can be read in parts and extended, but to change it in place means to read all of it and to put
/// it again.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectStore {
    pub segment_bytes: u64,
    /// Milliseconds from a request to the first byte of its answer.
    pub latency_ms: f64,
    pub connection_bytes_per_second: f64,
    /// The rate of all connections together.
    pub bytes_per_second: f64,
    /// The number of requests at the same time.
    pub connections: usize,
    pub price_of_1000_gets: f64,
    pub price_of_1000_puts: f64,
}

impl ObjectStore {
    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("latency_ms", self.latency_ms),
            ("connection_bytes_per_second", self.connection_bytes_per_second),
            ("bytes_per_second", self.bytes_per_second),
            ("price_of_1000_gets", self.price_of_1000_gets),
            ("price_of_1000_puts", self.price_of_1000_puts),
        ]
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        (self.segment_bytes == 0 || self.connections == 0)
            .then_some("segment_bytes and connections must be at least 1")
    }
}

/// An object store at work.
#[derive(Debug, Clone)]
pub(in crate::timed) struct ObjectStoreState {
    store: ObjectStore,
    head: Option<u64>,
    /// The length of each segment that exists, by its number.
    segments: BTreeMap<u64, u64>,
    /// The moment at which the line shared by all connections has sent everything.
    line_free_at: u64,
    /// Billionths.
    price: f64,
}

impl ObjectStoreState {
    pub(in crate::timed) fn new(store: &ObjectStore) -> Self {
        Self { store: store.clone(), head: None, segments: BTreeMap::new(), line_free_at: 0, price: 0.0 }
    }

    pub(in crate::timed) fn store(&self) -> &ObjectStore {
        &self.store
    }

    pub(in crate::timed) fn head(&self) -> Option<u64> {
        self.head
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "prices are above zero")]
    pub(in crate::timed) fn price(&self) -> u64 {
        self.price.round() as u64
    }

    pub(in crate::timed) fn serve(&mut self, now: u64, kind: AccessKind, at: u64, bytes: u64) -> ServiceTime {
        self.head = Some(at + bytes);
        let mut time = ServiceTime::NONE;
        let mut from = at;
        while from < at + bytes {
            let segment = from / self.store.segment_bytes;
            let start = segment * self.store.segment_bytes;
            let to = (at + bytes).min(start + self.store.segment_bytes);
            let moment = now + time.sum();
            if kind == AccessKind::Read {
                time += self.request(moment, kind, to - from);
            } else {
                let length = self.segments.get(&segment).copied().unwrap_or(0);
                let new_length = length.max(to - start);
                if from - start < length {
                    let read = self.request(moment, AccessKind::Read, length);
                    time += read;
                    time += self.request(moment + read.sum(), AccessKind::Write, new_length);
                } else {
                    time += self.request(moment, kind, to - from);
                }
                self.segments.insert(segment, new_length);
            }
            from = to;
        }
        time
    }

    fn request(&mut self, now: u64, kind: AccessKind, bytes: u64) -> ServiceTime {
        let store = &self.store;
        self.price += 1e6
            * match kind {
                AccessKind::Read => store.price_of_1000_gets,
                AccessKind::Write => store.price_of_1000_puts,
            };
        let positioning = nanoseconds(store.latency_ms / 1e3);
        let begins = now + positioning;
        let alone = begins + nanoseconds(float(bytes) / store.connection_bytes_per_second);
        self.line_free_at =
            self.line_free_at.max(begins) + nanoseconds(float(bytes) / store.bytes_per_second);
        ServiceTime { positioning, transfer: alone.max(self.line_free_at) - begins }
    }

    /// Removes the segments of a range. Providers ask no price for that.
    pub(in crate::timed) fn discard(&mut self, range: &Range<u64>) {
        let first = range.start.div_ceil(self.store.segment_bytes);
        let end = range.end / self.store.segment_bytes;
        self.segments.retain(|segment, _| !(first..end).contains(segment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> ObjectStore {
        ObjectStore {
            segment_bytes: 1_000_000,
            latency_ms: 100.0,
            connection_bytes_per_second: 1e6,
            bytes_per_second: 2e6,
            connections: 4,
            price_of_1000_gets: 1.0,
            price_of_1000_puts: 10.0,
        }
    }

    #[test]
    fn to_change_a_segment_is_to_read_and_put_all_of_it() {
        let mut state = ObjectStoreState::new(&store());
        let mut now = 0;
        let mut write = |at, bytes| {
            let time = state.serve(now, AccessKind::Write, at, bytes).sum();
            now += time;
            time / 1_000_000
        };
        assert_eq!(write(0, 600_000), 700);
        assert_eq!(write(600_000, 100_000), 200, "it is extended");
        assert_eq!(write(500_000, 100_000), 1600, "700 kB are read and written");
        assert_eq!(state.price(), (3 * 10 + 1) * 1_000_000);
        state.discard(&(0..1_000_000));
        assert_eq!(state.serve(9_000_000_000, AccessKind::Write, 0, 1000).sum() / 1_000_000, 101);
    }

    #[test]
    fn all_connections_share_a_line() {
        let mut state = ObjectStoreState::new(&store());
        let mut read = || state.serve(0, AccessKind::Read, 0, 1_000_000).sum() / 1_000_000;
        assert_eq!([read(), read(), read()], [1100, 1100, 1600], "two of them fill it");
    }
}
