//! Uploads objects that are not at the target yet.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_edition::{BlockForm, ObjectName, ObjectPart, StoredCompression};
use varve_remote::{PutMode, Target, TargetError};

use crate::published::file_name;

/// The uploads of one edition. Many threads may use it at once.
pub(crate) struct Uploads<'a> {
    target: &'a dyn Target,
    form: &'a BlockForm,
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
        form: &'a BlockForm,
        compression: StoredCompression,
        is_dry_run: bool,
    ) -> Self {
        let counted = Mutex::new(CountedUploads { there, new: BTreeMap::new() });
        Self { target, form, compression, is_dry_run, counted }
    }

    /// Returns the form of the stored blocks.
    pub(crate) fn form(&self) -> &BlockForm {
        self.form
    }

    /// Returns a content in its stored form.
    pub(crate) fn store(&self, content: &[u8]) -> Vec<u8> {
        self.form.store(content, self.compression)
    }

    /// Uploads a content as an object of its own, unless the target has it.
    pub(crate) fn put(&self, content: &[u8]) -> Result<ObjectPart, TargetError> {
        self.put_stored(self.store(content))
    }

    /// Uploads a stored block as an object of its own, unless the target has it.
    pub(crate) fn put_stored(&self, stored: Vec<u8>) -> Result<ObjectPart, TargetError> {
        let bytes = u32::try_from(stored.len()).expect("a block has at most 16 MiB");
        Ok(ObjectPart::alone(self.put_object(stored)?, bytes))
    }

    /// Uploads an object, unless the target has it.
    pub(crate) fn put_object(&self, object: Vec<u8>) -> Result<ObjectName, TargetError> {
        let (name, bytes) = (ObjectName::of(&object), object.len() as u64);
        {
            let mut counted = self.counted.lock();
            // Another thread may still be uploading it. Its failure ends the whole publication.
            if counted.there.insert(name, bytes) == Some(bytes) {
                return Ok(name);
            }
            counted.new.insert(name, bytes);
        }
        if !self.is_dry_run {
            // An object of another length has this name only because an upload broke off.
            self.target.put(&file_name(&name.path()), Bytes::from(object), PutMode::Replace)?;
        }
        Ok(name)
    }

    /// Returns true if the object of a part is at the target and long enough for it, and is not
    /// known to be damaged.
    pub(crate) fn has(&self, part: &ObjectPart) -> bool {
        let end = u64::from(part.offset) + u64::from(part.bytes);
        self.counted.lock().there.get(&part.object).is_some_and(|bytes| end <= *bytes)
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
