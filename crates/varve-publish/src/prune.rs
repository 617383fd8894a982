//! Removes objects that no image needs: first they are listed as retired, and later removed.
//!
//! The file `retired` has the line `varve retired 1`, and a line for each object: its name and the
//! nanoseconds since 1970 at which it was retired. If the file is lost, the grace period begins
//! anew.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use varve_edition::{BlockForm, EditionKey, MapEntry, ObjectName, PublishedImage};
use varve_remote::{PutMode, Target, TargetError};
use varve_world::Timestamp;

use crate::published::{PublishedState, ReadPartError, ReadPublicationError, file_name, visit_pages};

const RETIRED: &str = "retired";
const FIRST_LINE: &str = "varve retired 1";
/// A longer list is not read: the grace period begins anew.
const RETIRED_BYTES_MAX: u64 = 512 << 20;

/// An object that no image of the head needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiredObject {
    pub name: ObjectName,
    pub bytes: u64,
    pub since: Timestamp,
}

/// The objects that a prune keeps waiting, and those that it removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrunePlan {
    /// The objects that images need.
    pub live_count: usize,
    /// The objects that are retired by this plan, and those that were retired a short time ago.
    pub waiting: Vec<RetiredObject>,
    /// The objects that were retired before the grace period.
    pub removed: Vec<RetiredObject>,
}

/// The reason why nothing more was removed.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    #[error("{0}")]
    Read(#[from] ReadPublicationError),
    #[error("{0}")]
    Target(#[from] TargetError),
    #[error("{image} is encrypted, and no given content key opens its map, so nothing is removed")]
    NoKey { image: String },
    #[error("the map of {image} cannot be read, so nothing is removed")]
    Map { image: String, source: Box<dyn std::error::Error + Send + Sync> },
}

impl PrunePlan {
    /// Plans for the present edition: everything that its images lead to is kept. `keys` are the
    /// forms of the encrypted images.
    ///
    /// # Errors
    /// [`PruneError`] if the head or any map cannot be read completely. An object that only an
    /// encrypted page leads to is needed as well, so there is no plan without the keys of all
    /// encrypted images.
    pub fn new(
        target: &dyn Target,
        trusted: &[EditionKey],
        keys: &[BlockForm],
        now: Timestamp,
        grace_nanoseconds: i64,
    ) -> Result<Self, PruneError> {
        let state = PublishedState::read(target, trusted)?;
        state.head()?;
        let mut live = BTreeSet::new();
        for image in state.images() {
            let name = image.name.clone();
            add_objects(target, image, keys, &mut live).map_err(|error| match error {
                ReadPartError::NoKey => PruneError::NoKey { image: name },
                error => PruneError::Map { image: name, source: Box::new(error) },
            })?;
        }
        let since = read_retired(target, state.files.get(RETIRED).copied())?;
        let oldest = Timestamp(now.0.saturating_sub(grace_nanoseconds));
        let (mut waiting, mut removed) = (Vec::new(), Vec::new());
        for (name, bytes) in state.objects.iter().filter(|(name, _)| !live.contains(name)) {
            // A time in the future comes from a wrong clock.
            let since = since.get(name).copied().filter(|since| *since <= now).unwrap_or(now);
            let object = RetiredObject { name: *name, bytes: *bytes, since };
            if since <= oldest { removed.push(object) } else { waiting.push(object) }
        }
        Ok(Self { live_count: live.len(), waiting, removed })
    }

    /// Writes the list of retired objects, and removes those whose grace period is over.
    ///
    /// # Errors
    /// [`TargetError`]. The remaining objects are removed next time.
    pub fn apply(&self, target: &dyn Target) -> Result<(), TargetError> {
        let mut text = format!("{FIRST_LINE}\n");
        for object in self.waiting.iter().chain(&self.removed) {
            text.push_str(&format!("{} {}\n", object.name, object.since.0));
        }
        target.put(&file_name(RETIRED), Bytes::from(text), PutMode::Replace)?;
        target.remove_leftovers();
        for object in &self.removed {
            match target.remove(&file_name(&object.name.path())) {
                Ok(()) | Err(TargetError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Adds all objects that an image leads to.
fn add_objects(
    target: &dyn Target,
    image: &PublishedImage,
    keys: &[BlockForm],
    live: &mut BTreeSet<ObjectName>,
) -> Result<(), ReadPartError> {
    live.insert(image.root.name);
    live.extend([image.profile, image.machine].into_iter().flatten().map(|part| part.name));
    visit_pages(target, image, keys, |_, part, _, page| {
        live.insert(part.object);
        live.extend(page?.entries().iter().filter_map(|entry| match entry {
            MapEntry::Zeros => None,
            MapEntry::Stored(part) => Some(part.object),
        }));
        Ok(())
    })?;
    Ok(())
}

/// Reads the times at which objects were retired. A damaged list is an empty one.
fn read_retired(
    target: &dyn Target,
    bytes: Option<u64>,
) -> Result<BTreeMap<ObjectName, Timestamp>, TargetError> {
    let Some(bytes) = bytes.filter(|bytes| *bytes <= RETIRED_BYTES_MAX) else { return Ok(BTreeMap::new()) };
    let list = target.get(&file_name(RETIRED), 0..bytes)?;
    Ok(parse_retired(&list).unwrap_or_default())
}

fn parse_retired(list: &[u8]) -> Option<BTreeMap<ObjectName, Timestamp>> {
    let lines = std::str::from_utf8(list).ok()?.strip_prefix(FIRST_LINE)?.strip_prefix('\n')?;
    let line = |line: &str| {
        let (name, since) = line.split_once(' ')?;
        Some((name.parse().ok()?, Timestamp(since.parse().ok()?)))
    };
    lines.lines().map(line).collect()
}
