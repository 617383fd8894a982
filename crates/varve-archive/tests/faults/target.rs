//! A simulated target for the replica: objects in memory, behind a connection that breaks and a
//! service that loses some of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use varve_remote::{Capabilities, MemoryTarget, Object, PutMode, TakePiece, Target, TargetError};
use varve_sim::SeededDraw;
use varve_world::FileName;

/// A fault of one request that remains after all retries of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetFault {
    /// The request fails, and has no effect.
    Fails,
    /// The request is done, and its answer is lost.
    AnswerLost,
    /// An upload is cut off, and the part that arrived stays under the object's name. Such a
    /// service breaks its contract.
    TornUpload,
    /// A download has a flipped bit.
    FlippedBit,
    /// A listing shows an earlier state.
    OldListing,
}

/// A fault that waits. It strikes the first suitable request after `after` other requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetStrike {
    pub after: u64,
    pub fault: TargetFault,
}

/// Damage that a service does to its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spoil {
    Lost,
    Cut,
    FlippedBit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Put,
    Get,
    List,
    Remove,
}

impl TargetFault {
    pub const ALL: [Self; 5] =
        [Self::Fails, Self::AnswerLost, Self::TornUpload, Self::FlippedBit, Self::OldListing];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fails => "replica: a request fails",
            Self::AnswerLost => "replica: done, and cut off before the answer",
            Self::TornUpload => "replica: an upload is torn",
            Self::FlippedBit => "replica: a download has a flipped bit",
            Self::OldListing => "replica: a listing is old",
        }
    }

    fn can_strike(self, request: Request, name: &str) -> bool {
        match self {
            Self::Fails => true,
            Self::AnswerLost => matches!(request, Request::Put | Request::Remove),
            // Every service stores small files whole.
            Self::TornUpload => request == Request::Put && name.starts_with("arenas/"),
            Self::FlippedBit => request == Request::Get,
            Self::OldListing => request == Request::List,
        }
    }
}

impl Spoil {
    pub const ALL: [Self; 3] = [Self::Lost, Self::Cut, Self::FlippedBit];

    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "replica: an object is gone",
            Self::Cut => "replica: an object loses its end",
            Self::FlippedBit => "replica: a bit of an object flips",
        }
    }
}

/// A target with faults on request. Clones share their state.
#[derive(Clone)]
pub struct SimTarget {
    number: u64,
    below: MemoryTarget,
    inside: Arc<Mutex<Inside>>,
}

struct Inside {
    draw: SeededDraw,
    armed: Vec<(u64, TargetFault)>,
    /// The listings after each of the last uploads.
    listings: Vec<Vec<Object>>,
    /// True while somebody has asked for the removal of objects.
    is_asked_to_remove: bool,
    tally: TargetTally,
}

/// The counts of requests, faults and damage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetTally {
    pub requests: u64,
    pub struck: BTreeMap<TargetFault, u64>,
    pub spoiled: BTreeMap<Spoil, u64>,
}

impl TargetTally {
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        for (fault, count) in &other.struck {
            *self.struck.entry(*fault).or_default() += count;
        }
        for (spoil, count) in &other.spoiled {
            *self.spoiled.entry(*spoil).or_default() += count;
        }
    }
}

impl SimTarget {
    /// An empty target. `number` distinguishes it from others.
    pub fn new(number: u64) -> Self {
        let inside = Inside {
            draw: SeededDraw::new(number),
            armed: Vec::new(),
            listings: Vec::new(),
            is_asked_to_remove: false,
            tally: TargetTally::default(),
        };
        Self { number, below: MemoryTarget::new(), inside: Arc::new(Mutex::new(inside)) }
    }

    pub fn shared(&self) -> Arc<dyn Target> {
        Arc::new(self.clone())
    }

    /// Arms these faults in place of earlier ones. From now on `seed` decides their effects.
    pub fn arm(&self, strikes: &[TargetStrike], seed: u64) {
        let mut inside = self.inside();
        let now = inside.tally.requests;
        inside.draw = SeededDraw::new(seed);
        inside.armed = strikes.iter().map(|strike| (now + strike.after, strike.fault)).collect();
    }

    /// Disarms all faults.
    pub fn behave(&self) {
        self.inside().armed.clear();
    }

    /// Permits the removal of objects, or forbids it again.
    pub fn allow_removal(&self, is_allowed: bool) {
        self.inside().is_asked_to_remove = is_allowed;
    }

    pub fn tally(&self) -> TargetTally {
        self.inside().tally.clone()
    }

    /// The number of faults that have struck.
    pub fn struck_count(&self) -> u64 {
        self.inside().tally.struck.values().sum()
    }

    /// Spoils an object of the log and returns its name. The object is of an arena's newest
    /// generation, because older generations are never read.
    pub fn spoil(&self, spoil: Spoil, draw: &mut SeededDraw) -> Option<FileName> {
        let listed = self.below.list("arenas").expect("memory does not fail");
        let generation = |object: &Object| -> Option<(String, u32)> {
            let (arena, generation) = object.name.folder().rsplit_once('.')?;
            Some((arena.into(), generation.parse().ok()?))
        };
        let newest: BTreeMap<_, _> = listed.iter().filter_map(generation).collect();
        let is_newest =
            |object: &Object| generation(object).is_some_and(|(arena, it)| newest.get(&arena) == Some(&it));
        let objects: Vec<_> = listed.into_iter().filter(is_newest).collect();
        let object = objects.get(draw.index(objects.len()))?;
        let contents = self.below.get(&object.name, 0..object.bytes).expect("it was listed");
        let place = draw.index(contents.len());
        let spoiled = match spoil {
            Spoil::Lost => None,
            Spoil::Cut => Some(contents.slice(..place)),
            Spoil::FlippedBit => Some(flipped(&contents, place)),
        };
        self.below.set(&object.name, spoiled);
        *self.inside().tally.spoiled.entry(spoil).or_default() += 1;
        Some(object.name.clone())
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock()
    }

    /// Counts a request, and returns the fault that strikes it.
    fn strike(&self, request: Request, name: &str) -> Option<TargetFault> {
        let mut inside = self.inside();
        let now = inside.tally.requests;
        inside.tally.requests += 1;
        let place =
            inside.armed.iter().position(|(at, fault)| *at <= now && fault.can_strike(request, name))?;
        let (_, fault) = inside.armed.remove(place);
        *inside.tally.struck.entry(fault).or_default() += 1;
        Some(fault)
    }

    fn draw(&self, bound: usize) -> usize {
        self.inside().draw.index(bound)
    }

    fn note_listing(&self) {
        let listed = self.below.list("").expect("memory does not fail");
        let mut inside = self.inside();
        if inside.listings.len() == 8 {
            inside.listings.remove(0);
        }
        inside.listings.push(listed);
    }
}

fn flipped(contents: &Bytes, place: usize) -> Bytes {
    let mut contents = contents.to_vec();
    if let Some(byte) = contents.get_mut(place) {
        *byte ^= 1 << (place % 8);
    }
    contents.into()
}

fn failed(what: &str) -> TargetError {
    TargetError::Failed { what: what.into(), source: io::Error::other("the line is dead") }
}

impl fmt::Display for SimTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the second home, number {}", self.number)
    }
}

impl Target for SimTarget {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        let struck = self.strike(Request::Put, name.as_str());
        let outcome = match struck {
            Some(TargetFault::Fails) => Err(failed(name.as_str())),
            Some(TargetFault::TornUpload) => {
                let torn = contents.slice(..self.draw(contents.len()));
                self.below.put(name, torn, mode).and(Err(failed(name.as_str())))
            }
            Some(TargetFault::AnswerLost) => {
                self.below.put(name, contents, mode).and(Err(failed(name.as_str())))
            }
            _ => self.below.put(name, contents, mode),
        };
        self.note_listing();
        outcome
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        let struck = self.strike(Request::Get, name.as_str());
        if struck == Some(TargetFault::Fails) {
            return Err(failed(name.as_str()));
        }
        let contents = self.below.get(name, range)?;
        Ok(match struck {
            Some(_) => flipped(&contents, self.draw(contents.len())),
            None => contents,
        })
    }

    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), TargetError> {
        let (start, end) = (range.start, range.end);
        match self.get(name, range) {
            Ok(whole) => give_in_pieces(&whole, place, take),
            // The download fails in the middle.
            Err(error) => {
                let came = start..start + (end - start) / 2;
                if let Ok(part) = self.below.get(name, came) {
                    give_in_pieces(&part, place, take);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        match self.strike(Request::List, folder) {
            Some(TargetFault::Fails) => Err(failed(folder)),
            Some(_) => {
                let place = self.draw(8);
                let old = self.inside().listings.get(place).cloned().unwrap_or_default();
                let is_inside = |object: &Object| {
                    folder.is_empty() || object.name.as_str().starts_with(&format!("{folder}/"))
                };
                Ok(old.into_iter().filter(is_inside).collect())
            }
            None => self.below.list(folder),
        }
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        assert!(self.inside().is_asked_to_remove, "{name} was to be removed, and nobody has asked for that");
        let struck = self.strike(Request::Remove, name.as_str());
        if struck != Some(TargetFault::Fails) {
            self.below.remove(name)?;
            self.note_listing();
        }
        match struck {
            Some(_) => Err(failed(name.as_str())),
            None => Ok(()),
        }
    }
}

/// Passes bytes on in pieces of many lengths, short enough for the small simulated arenas. It draws
/// nothing, so that seeds keep their draws.
fn give_in_pieces(bytes: &Bytes, place: u64, take: &mut TakePiece<'_>) {
    let length = 1000 + usize::try_from(place.wrapping_mul(0x9e37_79b9) % 9000).unwrap_or(0);
    for piece in bytes.chunks(length) {
        if take(bytes.slice_ref(piece)).is_break() {
            return;
        }
    }
}
