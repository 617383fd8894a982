//! A disk that turns: zones, a seek curve, the angle of the platters, and read-ahead.

use serde::Deserialize;

use crate::timed::access::{AccessKind, ServiceTime, float, nanoseconds};

/// The figures of a rotating disk.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotatingDisk {
    pub bytes: f64,
    pub rotations_per_minute: f64,
    /// Milliseconds of a seek to the next track.
    pub seek_track_ms: f64,
    /// Milliseconds of a seek over a third of the disk.
    pub seek_average_ms: f64,
    /// Milliseconds of a seek over the whole disk.
    pub seek_full_ms: f64,
    /// Milliseconds by which a seek for a write is longer.
    pub write_settle_ms: f64,
    /// Milliseconds from a command to the start of its work.
    pub command_ms: f64,
    /// The rates of the zones in bytes per second, from the first to the last, each of the same
    /// size.
    pub zone_bytes_per_second: Vec<f64>,
    /// The number of waiting commands that are put into the order of their places.
    pub queue: usize,
    /// The rate between the disk's cache and the computer.
    pub bus_bytes_per_second: f64,
    /// True if the disk reads on after a read, for the one that may follow.
    pub reads_ahead: bool,
    /// The most bytes that it reads on.
    pub read_ahead_bytes: f64,
    /// Milliseconds that a command waits if it interrupts the reading on.
    pub interrupt_ms: f64,
    /// The most bytes of a command. Longer accesses become several.
    #[serde(default)]
    pub command_bytes_max: Option<u64>,
}

impl RotatingDisk {
    pub(in crate::timed) fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut figures = vec![
            ("bytes", self.bytes),
            ("rotations_per_minute", self.rotations_per_minute),
            ("seek_track_ms", self.seek_track_ms),
            ("seek_average_ms", self.seek_average_ms),
            ("seek_full_ms", self.seek_full_ms),
            ("write_settle_ms", self.write_settle_ms),
            ("command_ms", self.command_ms),
            ("interrupt_ms", self.interrupt_ms),
            ("bus_bytes_per_second", self.bus_bytes_per_second),
            ("read_ahead_bytes", self.read_ahead_bytes),
        ];
        figures.extend(self.zone_bytes_per_second.iter().map(|rate| ("zone_bytes_per_second", *rate)));
        figures
    }

    pub(in crate::timed) fn problem(&self) -> Option<&'static str> {
        if self.zone_bytes_per_second.is_empty() {
            return Some("zone_bytes_per_second names no zone");
        }
        if self.queue == 0 || self.command_bytes_max == Some(0) {
            return Some("queue and command_bytes_max must be at least 1");
        }
        let is_rising =
            self.seek_track_ms <= self.seek_average_ms && self.seek_average_ms <= self.seek_full_ms;
        (!is_rising).then_some("a longer seek takes less time than a shorter one")
    }

    fn rotation(&self) -> f64 {
        60.0 / self.rotations_per_minute
    }

    /// Returns the seconds of a seek over a part of the disk: a curve through the three figures, of
    /// a constant, a root and a line.
    fn seek(&self, part: f64) -> f64 {
        if part <= 0.0 {
            return 0.0;
        }
        let third = 1.0_f64 / 3.0;
        let to_average = self.seek_average_ms - self.seek_track_ms;
        let to_full = self.seek_full_ms - self.seek_track_ms;
        let root = (to_average - third * to_full) / (third.sqrt() - third);
        let line = to_full - root;
        (self.seek_track_ms + root * part.sqrt() + line * part) / 1e3
    }

    /// Returns the rate at an address, and the angle of its sector in rotations.
    fn track(&self, at: u64) -> (f64, f64) {
        let zone_bytes = self.bytes / float(self.zone_bytes_per_second.len() as u64);
        let at = float(at) % self.bytes;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
        let zone = ((at / zone_bytes) as usize).min(self.zone_bytes_per_second.len() - 1);
        let rate = self.zone_bytes_per_second[zone];
        let in_zone = at - float(zone as u64) * zone_bytes;
        (rate, (in_zone / (rate * self.rotation())).fract())
    }
}

/// A rotating disk at work.
#[derive(Debug, Clone)]
pub(in crate::timed) struct RotatingState {
    disk: RotatingDisk,
    head: Option<u64>,
    /// The moment at which the last read ended, if the disk has read on since.
    reading_on_since: Option<u64>,
}

impl RotatingState {
    pub(in crate::timed) fn new(disk: &RotatingDisk) -> Self {
        Self { disk: disk.clone(), head: None, reading_on_since: None }
    }

    pub(in crate::timed) fn queue(&self) -> usize {
        self.disk.queue
    }

    pub(in crate::timed) fn disk(&self) -> &RotatingDisk {
        &self.disk
    }

    pub(in crate::timed) fn head(&self) -> Option<u64> {
        self.head
    }

    pub(in crate::timed) fn serve(&mut self, now: u64, kind: AccessKind, at: u64, bytes: u64) -> ServiceTime {
        let disk = &self.disk;
        let before = self.head.replace(at + bytes);
        let reading_on_since = self.reading_on_since.take();
        let (rate, angle) = disk.track(at);
        let transfer = float(bytes) / rate;
        let command = disk.command_ms / 1e3;
        if kind == AccessKind::Read
            && before == Some(at)
            && let Some(since) = reading_on_since
        {
            // The disk has read on meanwhile, until its cache was full.
            let since = since.max(now.saturating_sub(nanoseconds(disk.read_ahead_bytes / rate)));
            let passed = since + nanoseconds(transfer);
            let sent = now + nanoseconds(command + float(bytes) / disk.bus_bytes_per_second);
            self.reading_on_since = Some(passed);
            return ServiceTime { positioning: 0, transfer: passed.max(sent) - now };
        }
        let interrupt = if reading_on_since.is_some() { disk.interrupt_ms / 1e3 } else { 0.0 };
        let settle = if kind == AccessKind::Write { disk.write_settle_ms / 1e3 } else { 0.0 };
        let seek = match before {
            Some(before) if before != at => disk.seek(float(before.abs_diff(at)) / disk.bytes) + settle,
            _ => 0.0,
        };
        let started = command + interrupt + seek;
        let turned = ((float(now) / 1e9 + started) / disk.rotation()).fract();
        let wait = (angle - turned).rem_euclid(1.0) * disk.rotation();
        let time = ServiceTime { positioning: nanoseconds(started + wait), transfer: nanoseconds(transfer) };
        if kind == AccessKind::Read && disk.reads_ahead {
            self.reading_on_since = Some(now + time.positioning + time.transfer);
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> RotatingDisk {
        RotatingDisk {
            bytes: 80e9,
            rotations_per_minute: 7200.0,
            seek_track_ms: 2.0,
            seek_average_ms: 8.9,
            seek_full_ms: 21.0,
            write_settle_ms: 1.0,
            command_ms: 0.1,
            bus_bytes_per_second: 90e6,
            zone_bytes_per_second: vec![50e6, 30e6],
            queue: 1,
            reads_ahead: false,
            read_ahead_bytes: 2e6,
            interrupt_ms: 1.0,
            command_bytes_max: None,
        }
    }

    #[test]
    fn the_seek_curve_goes_through_its_figures() {
        let disk = disk();
        for (part, milliseconds) in [(1e-12, 2.0), (1.0 / 3.0, 8.9), (1.0, 21.0)] {
            assert!((disk.seek(part) * 1e3 - milliseconds).abs() < 0.01, "{part}");
        }
        assert!(disk.seek(0.0).abs() < 1e-12);
    }

    #[test]
    fn what_follows_without_reading_on_waits_for_a_rotation() {
        let mut state = RotatingState::new(&disk());
        let first = state.serve(0, AccessKind::Read, 0, 8192);
        let now = first.positioning + first.transfer;
        let second = state.serve(now, AccessKind::Read, 8192, 8192);
        assert!((float(second.positioning) / 1e6 - 60e3 / 7200.0).abs() < 0.01, "{second:?}");
        let mut state = RotatingState::new(&RotatingDisk { reads_ahead: true, ..disk() });
        let first = state.serve(0, AccessKind::Read, 0, 8192);
        let now = first.positioning + first.transfer;
        let second = state.serve(now, AccessKind::Read, 8192, 8192);
        assert_eq!(second.positioning, 0);
        let late = state.serve(now + 1_000_000_000, AccessKind::Read, 16_384, 4 << 20);
        assert!(float(late.transfer) / 1e9 > (4.0 * 1_048_576.0 - 2e6) / 50e6 - 1e-3, "{late:?}");
    }

    #[test]
    fn zones_differ_in_their_rate() {
        let mut state = RotatingState::new(&disk());
        let outer = state.serve(0, AccessKind::Read, 0, 1 << 20).transfer;
        let inner = state.serve(0, AccessKind::Read, 70_000_000_000, 1 << 20).transfer;
        assert!(inner * 30 / 50 <= outer + 2 && outer < inner);
    }
}
