//! The places of files on a device.

use std::collections::BTreeMap;
use std::ops::Range;

use varve_world::FileName;

/// Gives files places: each grows where it ends, if that is free, and else at the first free place.
#[derive(Debug)]
pub(super) struct DevicePlaces {
    /// Files grow by this many bytes.
    part_bytes: u64,
    files: BTreeMap<FileName, Vec<PlacedPart>>,
    /// Free ranges below the end, by their start.
    free: BTreeMap<u64, u64>,
    end: u64,
}

/// A part of a file that lies together.
#[derive(Debug, Clone, Copy)]
struct PlacedPart {
    in_file: u64,
    at: u64,
    bytes: u64,
}

impl DevicePlaces {
    pub(super) fn new(part_bytes: u64) -> Self {
        Self { part_bytes, files: BTreeMap::new(), free: BTreeMap::new(), end: 0 }
    }

    /// Returns the ranges of the device that belong to a file.
    pub(super) fn all(&self, file: &FileName) -> Vec<Range<u64>> {
        let parts = self.files.get(file).map_or(&[][..], Vec::as_slice);
        parts.iter().map(|part| part.at..part.at + part.bytes).collect()
    }

    /// Returns the ranges of the device that hold a part of a file. Space for it is allocated if
    /// necessary.
    pub(super) fn ranges(&mut self, file: &FileName, offset: u64, bytes: u64) -> Vec<Range<u64>> {
        let end = offset + bytes;
        while self.allocated(file) < end {
            self.grow(file);
        }
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let parts = self.files.get(file).map_or(&[][..], Vec::as_slice);
        let first = parts.partition_point(|part| part.in_file + part.bytes <= offset);
        for part in &parts[first..] {
            let from = offset.max(part.in_file);
            let to = end.min(part.in_file + part.bytes);
            if from >= to {
                break;
            }
            let start = part.at + from - part.in_file;
            ranges.push(start..start + to - from);
        }
        ranges
    }

    pub(super) fn remove(&mut self, file: &FileName) {
        for part in self.files.remove(file).unwrap_or_default() {
            self.give_back(part.at, part.bytes);
        }
    }

    pub(super) fn rename(&mut self, from: &FileName, to: &FileName) {
        self.remove(to);
        if let Some(parts) = self.files.remove(from) {
            self.files.insert(to.clone(), parts);
        }
    }

    fn allocated(&self, file: &FileName) -> u64 {
        let last = self.files.get(file).and_then(|parts| parts.last());
        last.map_or(0, |part| part.in_file + part.bytes)
    }

    fn grow(&mut self, file: &FileName) {
        let in_file = self.allocated(file);
        let next = self.files.get(file).and_then(|parts| parts.last()).map(|last| last.at + last.bytes);
        let at = next.filter(|at| *at == self.end || self.free.contains_key(at));
        let at = at.or_else(|| self.free.keys().next().copied()).unwrap_or(self.end);
        self.take(at);
        let parts = self.files.entry(file.clone()).or_default();
        match parts.last_mut() {
            Some(last) if last.at + last.bytes == at => last.bytes += self.part_bytes,
            _ => parts.push(PlacedPart { in_file, at, bytes: self.part_bytes }),
        }
    }

    /// Takes an part that begins at the start of a free range, or at the end.
    fn take(&mut self, at: u64) {
        match self.free.remove(&at) {
            Some(bytes) if bytes > self.part_bytes => {
                self.free.insert(at + self.part_bytes, bytes - self.part_bytes);
            }
            Some(_) => {}
            None => self.end += self.part_bytes,
        }
    }

    fn give_back(&mut self, at: u64, bytes: u64) {
        let (mut at, mut bytes) = (at, bytes);
        if let Some(after) = self.free.remove(&(at + bytes)) {
            bytes += after;
        }
        if let Some((before, length)) = self.free.range(..at).next_back().map(|(at, bytes)| (*at, *bytes))
            && before + length == at
        {
            (at, bytes) = (before, length + bytes);
        }
        self.free.insert(at, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FileName {
        FileName::new(text).unwrap()
    }

    /// Returns the only range of a part of a file.
    fn range(places: &mut DevicePlaces, file: &FileName, offset: u64, bytes: u64) -> Range<u64> {
        let ranges = places.ranges(file, offset, bytes);
        assert_eq!(ranges.len(), 1, "{ranges:?}");
        ranges[0].clone()
    }

    #[test]
    fn a_file_lies_together_until_another_is_in_its_way() {
        let mut places = DevicePlaces::new(1 << 20);
        let unit = 1 << 20;
        assert_eq!(range(&mut places, &name("a"), 0, 3 * unit), 0..3 * unit);
        assert_eq!(range(&mut places, &name("b"), 0, 10), 3 * unit..3 * unit + 10);
        let split = places.ranges(&name("a"), 2 * unit, 2 * unit);
        assert_eq!(split, [2 * unit..3 * unit, 4 * unit..5 * unit]);
        assert_eq!(range(&mut places, &name("b"), 5, 7), 3 * unit + 5..3 * unit + 12);
    }

    #[test]
    fn freed_space_is_used_again() {
        let mut places = DevicePlaces::new(1 << 20);
        let unit = 1 << 20;
        for file in ["a", "b", "c", "d"] {
            places.ranges(&name(file), 0, unit);
        }
        places.remove(&name("c"));
        places.remove(&name("b"));
        assert_eq!(places.free, BTreeMap::from([(unit, 2 * unit)]));
        assert_eq!(range(&mut places, &name("e"), 0, 2 * unit), unit..3 * unit);
        places.rename(&name("e"), &name("a"));
        assert_eq!(range(&mut places, &name("a"), 0, 1), unit..unit + 1);
        assert_eq!(range(&mut places, &name("f"), 0, 1), 0..1);
        assert!(places.free.is_empty());
    }
}
