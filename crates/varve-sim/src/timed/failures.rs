//! Failures of a device in the course of time: errors of sectors, wrong reads, delays, and its end.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use varve_world::{FileName, Storage, forward_storage};

use super::access::{float, nanoseconds};
use super::clock::VirtualClock;
use crate::draw::SeededDraw;
use crate::fault::Fault;
use crate::inode::SECTOR_BYTES;
use crate::rot::Rot;

const YEAR_NANOSECONDS: f64 = 365.25 * 86_400e9;
/// More failures of one kind than that stand for the same thing: the device is of no use.
const RATE_MAX: f64 = 1e9;

/// How often a device fails, as a TOML file with a `name`, a `source`, and rates. A rate that is
/// left out is zero. Failures of each kind come independently, at random, and are equally likely at
/// any moment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureProfile {
    pub name: String,
    /// The publication that the rates come from, and what was assumed.
    pub source: String,
    /// Sectors that cannot be read any more, until their file is removed or cut there.
    #[serde(default)]
    pub latent_sector_errors_per_year: f64,
    /// Reads in which one bit is wrong. The next read of the same place is right.
    #[serde(default)]
    pub corrupt_reads_per_year: f64,
    #[serde(default)]
    pub delays_per_year: f64,
    /// The milliseconds that the next access takes longer.
    #[serde(default)]
    pub delay_ms: f64,
    /// The device ends, and no call succeeds any more.
    #[serde(default)]
    pub deaths_per_year: f64,
}

/// The reason why a file does not describe failures.
#[derive(Debug, thiserror::Error)]
pub enum FailureProfileError {
    #[error("cannot read the file of failures {path}")]
    Read { path: String, source: io::Error },
    #[error("the file of failures cannot be parsed")]
    Parse(#[source] Box<toml::de::Error>),
    #[error("failures {name}: {what} must be a number from 0 to 1e9, and is {value}")]
    Value { name: String, what: &'static str, value: f64 },
}

impl FailureProfile {
    /// Parses a file of failures.
    ///
    /// # Errors
    /// [`FailureProfileError`]: the text has another form, or a rate is no rate.
    pub fn from_text(text: &str) -> Result<Self, FailureProfileError> {
        let profile: Self =
            toml::from_str(text).map_err(|error| FailureProfileError::Parse(Box::new(error)))?;
        let figures = [
            ("latent_sector_errors_per_year", profile.latent_sector_errors_per_year),
            ("corrupt_reads_per_year", profile.corrupt_reads_per_year),
            ("delays_per_year", profile.delays_per_year),
            ("delay_ms", profile.delay_ms),
            ("deaths_per_year", profile.deaths_per_year),
        ];
        match figures.into_iter().find(|(_, value)| !(0.0..=RATE_MAX).contains(value)) {
            Some((what, value)) => Err(FailureProfileError::Value { name: profile.name, what, value }),
            None => Ok(profile),
        }
    }

    /// Reads a file of failures.
    ///
    /// # Errors
    /// [`FailureProfileError`]
    pub fn from_file(path: &Path) -> Result<Self, FailureProfileError> {
        let read = std::fs::read_to_string(path);
        let text =
            read.map_err(|source| FailureProfileError::Read { path: path.display().to_string(), source })?;
        Self::from_text(&text)
    }

    fn rate(&self, failure: TimedFailure) -> f64 {
        match failure {
            TimedFailure::Damage => self.latent_sector_errors_per_year,
            TimedFailure::CorruptRead => self.corrupt_reads_per_year,
            TimedFailure::Delay => self.delays_per_year,
            TimedFailure::Death => self.deaths_per_year,
        }
    }
}

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TimedFailure {
    /// [`Rot::UnreadableSector`].
    Damage,
    /// [`Fault::ReadFlip`].
    CorruptRead,
    Delay,
    Death,
}

impl TimedFailure {
    const ALL: [Self; 4] = [Self::Damage, Self::CorruptRead, Self::Delay, Self::Death];
}

/// The failures so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FailureTally {
    /// Failures by the names that [`Rot`] and [`Fault`] give them.
    pub happened: BTreeMap<&'static str, u64>,
    /// Reads that failed, since a sector was unreadable.
    pub failed_reads: u64,
    /// The moment of the device's end in nanoseconds.
    pub died_at: Option<u64>,
}

/// A storage in front of another one, which fails as a profile says. The seed decides when, and
/// where: the same calls at the same times give the same result.
pub struct FailingStorage {
    inner: Arc<dyn Storage>,
    clock: Arc<VirtualClock>,
    state: Mutex<FailureState>,
}

struct FailureState {
    profile: FailureProfile,
    draw: SeededDraw,
    /// The moment of the next failure of each kind that has a rate.
    next: BTreeMap<TimedFailure, u64>,
    lengths: BTreeMap<FileName, u64>,
    /// Unreadable sectors, by their file and number.
    unreadable: BTreeSet<(FileName, u64)>,
    /// Reads that are still to return a wrong bit.
    corrupt_reads: u64,
    /// Nanoseconds by which the next access is late.
    late: u64,
    tally: FailureTally,
}

impl FailingStorage {
    /// Puts failures before `inner`, which must be empty.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Storage>,
        clock: Arc<VirtualClock>,
        profile: FailureProfile,
        seed: u64,
    ) -> Self {
        let mut state = FailureState {
            profile,
            draw: SeededDraw::new(seed),
            next: BTreeMap::new(),
            lengths: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            corrupt_reads: 0,
            late: 0,
            tally: FailureTally::default(),
        };
        for failure in TimedFailure::ALL {
            state.plan(failure, clock.nanoseconds());
        }
        Self { inner, clock, state: Mutex::new(state) }
    }

    /// Returns the rates.
    #[must_use]
    pub fn profile(&self) -> FailureProfile {
        self.state.lock().profile.clone()
    }

    /// Returns the failures so far.
    #[must_use]
    pub fn tally(&self) -> FailureTally {
        self.state.lock().tally.clone()
    }

    /// Lets happen what was due by now.
    ///
    /// # Errors
    /// The device has ended.
    fn pass_time(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.pass_time(self.clock.nanoseconds());
        if state.tally.died_at.is_some() {
            return Err(io::Error::other("the device has ended"));
        }
        self.clock.advance(std::mem::take(&mut state.late));
        Ok(())
    }

    fn read(
        &self,
        file: &FileName,
        offset: u64,
        into: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.pass_time()?;
        read(into)?;
        let mut state = self.state.lock();
        let sectors = offset / SECTOR..(offset + into.len() as u64).div_ceil(SECTOR);
        if !into.is_empty() && state.is_unreadable(file, sectors) {
            state.tally.failed_reads += 1;
            return Err(io::Error::other("a sector is unreadable"));
        }
        if state.corrupt_reads > 0 && !into.is_empty() {
            state.corrupt_reads -= 1;
            let place = state.draw.index(into.len());
            into[place] ^= 1 << state.draw.index(8);
        }
        Ok(())
    }
}

const SECTOR: u64 = SECTOR_BYTES as u64;

impl FailureState {
    /// Draws the moment of the next failure of a kind.
    fn plan(&mut self, failure: TimedFailure, now: u64) {
        let rate = self.profile.rate(failure);
        if rate > 0.0 {
            // From 0, excluded, to 1.
            let share = float(self.draw.below(1 << 53) + 1) / float(1 << 53);
            let years = -share.ln() / rate;
            let wait = nanoseconds(years * YEAR_NANOSECONDS / 1e9);
            self.next.insert(failure, now.saturating_add(wait).max(now + 1));
        }
    }

    fn pass_time(&mut self, now: u64) {
        while self.tally.died_at.is_none() {
            let due = self.next.iter().map(|(failure, moment)| (*moment, *failure)).min();
            let Some((moment, failure)) = due.filter(|(moment, _)| *moment <= now) else { return };
            self.plan(failure, moment);
            let name = match failure {
                TimedFailure::Damage => {
                    self.damage();
                    Rot::UnreadableSector.name()
                }
                TimedFailure::CorruptRead => {
                    self.corrupt_reads += 1;
                    Fault::ReadFlip.name()
                }
                TimedFailure::Delay => {
                    self.late += nanoseconds(self.profile.delay_ms / 1e3);
                    "an access is late"
                }
                TimedFailure::Death => {
                    self.tally.died_at = Some(moment);
                    "the device ends"
                }
            };
            *self.tally.happened.entry(name).or_default() += 1;
        }
    }

    /// Makes a sector unreadable, each with the same probability. An empty device has none.
    fn damage(&mut self) {
        let sectors = |length: u64| length.div_ceil(SECTOR);
        let all: u64 = self.lengths.values().copied().map(sectors).sum();
        if all == 0 {
            return;
        }
        let mut left = self.draw.below(all);
        for (file, length) in &self.lengths {
            if left < sectors(*length) {
                self.unreadable.insert((file.clone(), left));
                return;
            }
            left -= sectors(*length);
        }
    }

    fn is_unreadable(&self, file: &FileName, sectors: std::ops::Range<u64>) -> bool {
        self.unreadable.range((file.clone(), sectors.start)..(file.clone(), sectors.end)).next().is_some()
    }

    /// Takes in that the sectors of a file from `first` on, before `end`, have new data or none.
    fn renew(&mut self, file: &FileName, first: u64, end: u64) {
        self.unreadable.retain(|(other, sector)| other != file || !(first..end).contains(sector));
    }
}

impl Storage for FailingStorage {
    forward_storage!(inner: length, list, lock);

    fn create(&self, file: &FileName) -> io::Result<()> {
        self.pass_time()?;
        self.inner.create(file)?;
        self.state.lock().lengths.insert(file.clone(), 0);
        Ok(())
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        self.pass_time()?;
        let start = self.inner.append(file, bytes)?;
        self.state.lock().lengths.insert(file.clone(), start + bytes.len() as u64);
        Ok(start)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read(file, offset, into, |into| self.inner.read_at(file, offset, into))
    }

    fn read_uncached_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read(file, offset, into, |into| self.inner.read_uncached_at(file, offset, into))
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        self.pass_time()?;
        self.inner.truncate(file, length)?;
        let mut state = self.state.lock();
        state.lengths.insert(file.clone(), length);
        state.renew(file, length.div_ceil(SECTOR), u64::MAX);
        Ok(())
    }

    fn sync_soon(&self, file: &FileName) {
        if self.pass_time().is_ok() {
            self.inner.sync_soon(file);
        }
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.pass_time()?;
        self.inner.sync(file)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.pass_time()?;
        self.inner.sync_folder(folder)
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.pass_time()?;
        self.inner.rename(from, to)?;
        let mut state = self.state.lock();
        state.renew(to, 0, u64::MAX);
        if let Some(length) = state.lengths.remove(from) {
            state.lengths.insert(to.clone(), length);
        }
        let moved: Vec<_> = state.unreadable.iter().filter(|(file, _)| file == from).cloned().collect();
        for (_, sector) in moved {
            state.unreadable.remove(&(from.clone(), sector));
            state.unreadable.insert((to.clone(), sector));
        }
        Ok(())
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.pass_time()?;
        self.inner.remove(file)?;
        let mut state = self.state.lock();
        state.lengths.remove(file);
        state.renew(file, 0, u64::MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use varve_world::MemoryStorage;

    use super::*;

    const DAY: u64 = 86_400_000_000_000;

    fn storage(rates: &str, seed: u64) -> (FailingStorage, Arc<VirtualClock>, FileName) {
        let text = format!("name = \"test\"\nsource = \"made up\"\n{rates}");
        let profile = FailureProfile::from_text(&text).unwrap();
        let clock = Arc::new(VirtualClock::new());
        let storage = FailingStorage::new(Arc::new(MemoryStorage::new()), Arc::clone(&clock), profile, seed);
        (storage, clock, FileName::new("file").unwrap())
    }

    #[test]
    fn keeps_the_contract() {
        varve_world::contract::check(&mut || storage("", 1).0);
    }

    #[test]
    fn failures_come_as_often_as_their_rates_say() {
        let (storage, clock, file) =
            storage("latent_sector_errors_per_year = 100\ndelays_per_year = 50\ndelay_ms = 2", 7);
        storage.create(&file).unwrap();
        storage.append(&file, &[1; 1 << 20]).unwrap();
        for _ in 0..3653 {
            clock.advance(DAY);
            storage.sync(&file).unwrap();
        }
        let tally = storage.tally();
        let of = |name: &str| tally.happened[name];
        assert!((900..1100).contains(&of(Rot::UnreadableSector.name())), "{tally:?}");
        assert!((440..560).contains(&of("an access is late")), "{tally:?}");
        assert_eq!(clock.nanoseconds() - 3653 * DAY, of("an access is late") * 2_000_000);
        let unreadable =
            (0..2048).filter(|sector| storage.read_at(&file, sector * SECTOR, &mut [0; 512]).is_err());
        assert!((650..900).contains(&unreadable.count()), "some are hit twice");
    }

    #[test]
    fn a_new_write_makes_a_sector_readable_and_a_rename_does_not() {
        let (storage, clock, file) = storage("latent_sector_errors_per_year = 1000", 3);
        storage.create(&file).unwrap();
        storage.append(&file, &[1; 512]).unwrap();
        clock.advance(30 * DAY);
        let read = |file: &FileName| storage.read_at(file, 0, &mut [0; 512]);
        assert!(read(&file).is_err());
        let other = FileName::new("other").unwrap();
        storage.rename(&file, &other).unwrap();
        assert!(read(&other).is_err());
        storage.truncate(&other, 0).unwrap();
        storage.append(&other, &[2; 512]).unwrap();
        read(&other).unwrap();
        assert_eq!(storage.tally().failed_reads, 2);
    }

    #[test]
    fn a_corrupt_read_differs_in_one_bit_and_the_next_is_right() {
        let (storage, clock, file) = storage("corrupt_reads_per_year = 12", 5);
        storage.create(&file).unwrap();
        storage.append(&file, &[0; 4096]).unwrap();
        let (mut wrong, mut contents) = (0, [0; 4096]);
        for _ in 0..3650 {
            clock.advance(DAY / 10);
            storage.read_at(&file, 0, &mut contents).unwrap();
            let bits: u32 = contents.iter().map(|byte| byte.count_ones()).sum();
            assert!(bits <= 1);
            wrong += bits;
        }
        assert!((5..25).contains(&wrong), "{wrong}");
    }

    #[test]
    fn after_the_end_no_call_succeeds() {
        let mut years = Vec::new();
        for seed in 0..200 {
            let (storage, clock, file) = storage("deaths_per_year = 0.5", seed);
            storage.create(&file).unwrap();
            while storage.sync(&file).is_ok() {
                clock.advance(30 * DAY);
            }
            assert!(storage.append(&file, &[1]).is_err() && storage.read_at(&file, 0, &mut []).is_err());
            years.push(float(storage.tally().died_at.unwrap()) / YEAR_NANOSECONDS);
        }
        let mean = years.iter().sum::<f64>() / 200.0;
        assert!((1.7..2.3).contains(&mean), "{mean}");
    }

    #[test]
    fn the_same_seed_gives_the_same_failures() {
        let run = |seed| {
            let (storage, clock, file) = storage("latent_sector_errors_per_year = 50", seed);
            storage.create(&file).unwrap();
            storage.append(&file, &[1; 1 << 20]).unwrap();
            clock.advance(300 * DAY);
            let read = |sector: u64| storage.read_at(&file, sector * SECTOR, &mut [0]).is_ok();
            (0..2048).map(read).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn a_rate_that_is_none_is_refused() {
        for text in ["deaths_per_year = -1", "delays_per_year = nan", "delay_ms = 1e30"] {
            let text = format!("name = \"test\"\nsource = \"\"\n{text}");
            assert!(matches!(FailureProfile::from_text(&text), Err(FailureProfileError::Value { .. })));
        }
        assert!(FailureProfile::from_text("name = \"test\"").is_err());
    }
}
