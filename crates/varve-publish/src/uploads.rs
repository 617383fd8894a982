//! Uploads stored blocks that are not at the target yet.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_edition::{ObjectName, ObjectPart, StoredCompression, store_block};
use varve_remote::{PutMode, Target, TargetError};

use crate::published::file_name;

/// The uploads of one edition. Many threads may use it at once.
pub(crate) struct Uploads<'a> {
    target: &'a dyn Target,
    compression: StoredCompression,
    is_dry_run: bool,
    counted: Mutex<CountedUploads>,
}

/// The objects of a target, those that are being uploaded included.
#[derive(Debug, Default)]
struct CountedUploads {
    there: BTreeMap<ObjectName, u64>,
    new: BTreeMap<ObjectName, u64>,
}

impl<'a> Uploads<'a> {
    pub(crate) fn new(
        target: &'a dyn Target,
        there: BTreeMap<ObjectName, u64>,
        compression: StoredCompression,
        is_dry_run: bool,
    ) -> Self {
        let counted = Mutex::new(CountedUploads { there, new: BTreeMap::new() });
        Self { target, compression, is_dry_run, counted }
    }

    /// Uploads a content as an object of its own, unless the target has it.
    pub(crate) fn put(&self, content: &[u8]) -> Result<ObjectPart, TargetError> {
        let stored = store_block(content, self.compression);
        let (name, bytes) = (ObjectName::of(&stored), stored.len() as u64);
        let part = ObjectPart::alone(name, u32::try_from(bytes).expect("a block has at most 16 MiB"));
        {
            let mut counted = self.counted.lock();
            // Another thread may still be uploading it. Its failure ends the whole publication.
            if counted.there.insert(name, bytes) == Some(bytes) {
                return Ok(part);
            }
            counted.new.insert(name, bytes);
        }
        if !self.is_dry_run {
            // An object of another length has this name only because an upload broke off.
            self.target.put(&file_name(&name.path()), Bytes::from(stored), PutMode::Replace)?;
        }
        Ok(part)
    }

    /// Makes the next `put` of an object upload it, because the one at the target is damaged.
    pub(crate) fn forget(&self, damaged: &ObjectName) {
        self.counted.lock().there.remove(damaged);
    }

    /// Returns the new objects with their lengths.
    pub(crate) fn into_new(self) -> BTreeMap<ObjectName, u64> {
        self.counted.into_inner().new
    }
}
