//! Compares the objects that the user named with the plan. A mistyped name must be reported.

use std::collections::BTreeSet;

use varve_world::FileName;

use crate::objects::listing::ReplicaListing;
use crate::replication::replication_plan::ReplicationPlan;

/// The reason why a named object is not put again.
#[derive(Debug, thiserror::Error)]
pub enum NotReplaceable {
    /// The target has no such object.
    #[error("{object} cannot be replaced, because the target has no such object{}", did_you_mean(.near.as_ref()))]
    NotThere {
        /// The given name.
        object: FileName,
        /// An existing object with a similar name.
        near: Option<FileName>,
    },
    /// The object exists, but the store has nothing to replace it with.
    #[error("{object} cannot be replaced, because this store has no undamaged data for it")]
    NotHere {
        /// The given name.
        object: FileName,
    },
}

fn did_you_mean(near: Option<&FileName>) -> String {
    near.map_or_else(String::new, |near| format!("; a similar name is {near}"))
}

/// Checks that every name in `replace` is going to be put, or superseded.
pub(crate) fn require_planned(
    replace: &BTreeSet<FileName>,
    plan: &ReplicationPlan,
    listing: &ReplicaListing,
) -> Result<(), NotReplaceable> {
    let segments = plan.segments.iter().map(|put| put.name.file_name());
    let settings = plan.settings.iter().map(|setting| setting.file.clone());
    let superseded = plan.superseded.iter().flat_map(|older| &older.objects);
    let superseded = superseded.map(|object| object.name.clone());
    let planned: BTreeSet<_> = segments.chain(settings).chain(superseded).collect();
    let Some(object) = replace.difference(&planned).next().cloned() else { return Ok(()) };
    let there = objects(listing);
    if there.contains(&object) {
        return Err(NotReplaceable::NotHere { object });
    }
    let near = nearest(&object, there.union(&planned)).cloned();
    Err(NotReplaceable::NotThere { object, near })
}

fn objects(listing: &ReplicaListing) -> BTreeSet<FileName> {
    let segments = listing.arenas.values().flat_map(|generations| generations.values().flatten());
    let strangers = listing.strangers.iter().map(|object| object.name.clone());
    let names = segments.map(|segment| segment.name.file_name()).chain(strangers);
    names.chain(listing.settings.keys().cloned()).collect()
}

/// Returns the name with the longest common ends with `wanted`, if they are more than half of it.
fn nearest<'a>(wanted: &FileName, names: impl Iterator<Item = &'a FileName>) -> Option<&'a FileName> {
    let alike = |name: &FileName| alike(wanted.as_str().as_bytes(), name.as_str().as_bytes());
    let best = names.max_by_key(|name| alike(name))?;
    (alike(best) * 2 > best.as_str().len().max(wanted.as_str().len())).then_some(best)
}

/// Returns the length of the common prefix and suffix of two names, without overlap.
fn alike(one: &[u8], other: &[u8]) -> usize {
    let shorter = one.len().min(other.len());
    let first = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let last = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    shorter.min(first + last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_mistyped_finds_the_one_that_was_meant() {
        let names = [
            "config.toml",
            "replica.toml",
            "keys/0123456789abcdef.toml",
            "arenas/0000000000.0/000000000000-00ff-aa00",
        ];
        let names = names.map(|name| FileName::new(name).unwrap());
        let near = |text: &str| nearest(&FileName::new(text).unwrap(), names.iter()).map(FileName::as_str);
        assert_eq!(near("confg.toml"), Some("config.toml"));
        assert_eq!(near("0123456789abcdef.toml"), Some("keys/0123456789abcdef.toml"));
        assert_eq!(near("keys/0123456789abcdef"), Some("keys/0123456789abcdef.toml"));
        assert_eq!(near("arenas/0000000000.0/000000000000-00ff"), Some(names[3].as_str()));
        assert_eq!(near("letters"), None);
    }
}
