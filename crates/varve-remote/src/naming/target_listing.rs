//! A listing under construction: only names that a store uses, and a bounded number of them.

use crate::attempt_error::AttemptError;
use crate::naming::leftovers::Leftovers;
use crate::naming::object_names::of_a_store;
use crate::target::{NonObject, NonObjectKind, Object, Survey};

/// The most entries of a listing, including folders and foreign files. They take some hundreds of
/// megabytes of memory at worst, and stand for two petabytes in arenas of half a gigabyte.
const ENTRY_COUNT_MAX: usize = 4_000_000;

/// The most folders of a listing. Each costs a request. They stand for 200 terabytes in arenas of
/// half a gigabyte.
const FOLDER_COUNT_MAX: usize = 400_000;

/// The most memory for the names of a listing, in bytes.
const NAMES_BYTES_MAX: usize = 768 << 20;

/// The entries so far.
#[derive(Debug, Default)]
pub(crate) struct TargetListing {
    objects: Vec<Object>,
    others: Vec<NonObject>,
    entry_count: usize,
    folder_count: usize,
    names_bytes: usize,
    leftovers: Leftovers,
}

impl TargetListing {
    /// Counts an entry that a store does not use.
    pub fn pass(&mut self) -> Result<(), AttemptError> {
        self.entry_count += 1;
        if self.entry_count > ENTRY_COUNT_MAX {
            return Err(AttemptError::refused(format!("it lists more than {ENTRY_COUNT_MAX} entries")));
        }
        Ok(())
    }

    /// Adds an object, unless no store uses such a name.
    pub fn push(&mut self, name: &str, bytes: u64) -> Result<(), AttemptError> {
        self.pass()?;
        if let Some(name) = of_a_store(name) {
            self.take_room(name.as_str())?;
            self.objects.push(Object { name, bytes });
        }
        Ok(())
    }

    /// Counts the memory for an entry.
    fn take_room(&mut self, name: &str) -> Result<(), AttemptError> {
        self.names_bytes += name.len() + size_of::<Object>();
        if self.names_bytes > NAMES_BYTES_MAX {
            return Err(AttemptError::refused(format!("its names take more than {NAMES_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    /// Adds an entry that is not an object, unless no store uses such a name.
    pub fn push_other(&mut self, name: &str, kind: NonObjectKind) -> Result<(), AttemptError> {
        self.pass()?;
        if kind == NonObjectKind::Folder {
            self.folder_count += 1;
            if self.folder_count > FOLDER_COUNT_MAX {
                return Err(AttemptError::refused(format!("it lists more than {FOLDER_COUNT_MAX} folders")));
            }
        }
        if let Some(name) = of_a_store(name) {
            self.take_room(name.as_str())?;
            self.others.push(NonObject { name, kind });
        }
        Ok(())
    }

    /// As `push`, for a file with a modification time in seconds since 1970.
    pub fn push_changed(
        &mut self,
        name: &str,
        bytes: u64,
        modified: Option<i64>,
    ) -> Result<(), AttemptError> {
        self.leftovers.note(name, modified);
        self.push(name, bytes)
    }

    /// Returns the leftovers of dead writers, as paths below the target's folder.
    pub fn dead_leftovers(&mut self) -> Vec<String> {
        self.leftovers.dead()
    }

    /// Returns the objects below `folder`, in the order of their names, without duplicates.
    pub fn finish(mut self, folder: &str) -> Vec<Object> {
        if !folder.is_empty() {
            let prefix = format!("{folder}/");
            self.objects.retain(|object| object.name.as_str().starts_with(&prefix));
        }
        self.survey().objects
    }

    /// Returns everything that was listed, in the order of the names, without duplicates.
    pub fn survey(self) -> Survey {
        let Self { mut objects, mut others, .. } = self;
        objects.sort();
        objects.dedup_by(|one, other| one.name == other.name);
        others.sort();
        others.dedup_by(|one, other| one.name == other.name);
        Survey { objects, others }
    }
}

#[cfg(test)]
mod tests {
    use varve_world::FileName;

    use super::*;

    #[test]
    fn foreign_names_are_left_out_and_order_is_made() {
        let mut listing = TargetListing::default();
        for name in
            ["b", "a/../b", "a/x", "/etc/passwd", ".hidden", "a b", "", "a/x", "ab/y", &"n".repeat(2000)]
        {
            listing.push(name, 1).unwrap();
        }
        let names: Vec<_> = listing.finish("").into_iter().map(|object| object.name.to_string()).collect();
        assert_eq!(names, ["a/x", "ab/y", "b"]);
    }

    #[test]
    fn only_the_folder_asked_for() {
        let mut listing = TargetListing::default();
        ["a/x", "ab/y", "a"].iter().for_each(|name| listing.push(name, 1).unwrap());
        let names: Vec<_> = listing.finish("a").into_iter().map(|object| object.name.to_string()).collect();
        assert_eq!(names, ["a/x"]);
    }

    #[test]
    fn what_is_no_object_is_kept_apart() {
        let mut listing = TargetListing::default();
        listing.push("keys/a", 1).unwrap();
        for name in ["keys", ".hidden", "a b", "keys", &"n".repeat(2000)] {
            listing.push_other(name, NonObjectKind::Folder).unwrap();
        }
        let survey = listing.survey();
        assert_eq!(survey.objects.len(), 1);
        assert_eq!(
            survey.others,
            [NonObject { name: FileName::new("keys").unwrap(), kind: NonObjectKind::Folder }]
        );
    }

    #[test]
    fn an_endless_listing_ends() {
        let mut listing = TargetListing::default();
        let met = (0..=ENTRY_COUNT_MAX).find_map(|_| listing.push("not a name of ours", 1).err());
        assert!(matches!(met, Some(AttemptError::Refused(_))));
        let mut listing = TargetListing::default();
        let met = (0..=FOLDER_COUNT_MAX).find_map(|_| listing.push_other("f", NonObjectKind::Folder).err());
        assert!(matches!(met, Some(AttemptError::Refused(_))));
        let (mut listing, long) = (TargetListing::default(), "n".repeat(1000));
        let longest = NAMES_BYTES_MAX / long.len();
        let met = (0..longest).find_map(|count| listing.push(&long, 1).err().map(|error| (count, error)));
        assert!(matches!(met, Some((count, AttemptError::Refused(_))) if count < ENTRY_COUNT_MAX));
    }
}
