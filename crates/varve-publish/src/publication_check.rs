//! Checks every object of a publication with the publisher's key. Without the content key of an
//! encrypted image, its map cannot be followed: the objects that the head names are checked, and
//! those that the target lists.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use varve_block::to_usize;
use varve_edition::{
    BlockForm, EditionKey, MapEntry, OBJECT_BYTES_MAX, ObjectName, ObjectPart, PAGE_ENTRIES_MAX,
    PROFILE_BYTES_MAX, PublishedImage, StoredPart,
};
use varve_remote::{Object, Target, TargetError};
use varve_world::{Timestamp, Workers, read_each};

use crate::published::{ReadPartError, ReadPublicationError, open_head, read_part, visit_pages};

/// At most this number of findings is kept. All are counted.
const FINDINGS_MAX: usize = 1000;

/// An object that is missing or damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationFinding {
    /// The first image that needs it. `None` if the target lists it, and no opened map leads to it.
    pub image: Option<String>,
    pub object: ObjectName,
    pub reason: String,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPublication {
    pub serial: u64,
    /// The time after which newer editions may be kept from the reader.
    pub expires: Timestamp,
    pub image_count: usize,
    /// The stored blocks that were read, each once.
    pub block_count: u64,
    pub block_bytes: u64,
    /// The encrypted images whose maps were not followed, because no given content key opens them:
    /// an object that only they need may be missing.
    pub unopened: Vec<PublishedImage>,
    /// The other listed objects that were compared with their names, if there are such images.
    /// `None` if the target lists nothing.
    pub compared_count: Option<u64>,
    pub finding_count: u64,
    pub findings: Vec<PublicationFinding>,
}

struct CheckRun<'a> {
    target: &'a dyn Target,
    keys: &'a [BlockForm],
    done: Mutex<CheckState>,
}

struct CheckState {
    /// The stored blocks that were read, or are being read.
    read: BTreeSet<ObjectName>,
    /// The objects of which a part was read.
    seen: BTreeSet<ObjectName>,
    damaged: BTreeSet<ObjectName>,
    report: CheckedPublication,
}

/// Reads every object that the images of the head lead to, and checks it. `keys` are the forms of
/// encrypted images.
///
/// # Errors
/// [`ReadPublicationError`] when the head cannot be read, or is not signed by a trusted key.
pub fn check_publication(
    target: &dyn Target,
    trusted: &[EditionKey],
    keys: &[BlockForm],
    workers: &dyn Workers,
) -> Result<CheckedPublication, ReadPublicationError> {
    let opened = open_head(target, trusted)?;
    let head = opened.head.fields();
    let report = CheckedPublication {
        serial: head.serial,
        expires: head.expires,
        image_count: head.images.len(),
        block_count: 0,
        block_bytes: 0,
        unopened: Vec::new(),
        compared_count: None,
        finding_count: 0,
        findings: Vec::new(),
    };
    let (read, seen, damaged) = Default::default();
    let run = CheckRun { target, keys, done: Mutex::new(CheckState { read, seen, damaged, report }) };
    for image in &head.images {
        run.check_image(image, workers);
    }
    run.check_listed(workers)?;
    Ok(run.done.into_inner().report)
}

impl CheckRun<'_> {
    fn check_image(&self, image: &PublishedImage, workers: &dyn Workers) {
        let checked = visit_pages(self.target, image, self.keys, |page, part, form, entries| {
            match entries {
                Ok(entries) => {
                    let first = page * u64::from(PAGE_ENTRIES_MAX);
                    let blocks: Vec<_> = (first..).zip(entries.entries()).collect();
                    read_each(workers, &blocks, |(block, entry)| {
                        self.check_block(image, form, *block, entry)
                    });
                }
                Err(error) => self.found(Some(image), part.object, &error),
            }
            Ok(())
        });
        let form = match checked {
            Ok(form) => Some(form),
            Err(ReadPartError::NoKey) => {
                let mut done = self.done.lock();
                done.seen.insert(image.root.name);
                done.report.unopened.push(image.clone());
                None
            }
            Err(error) => {
                self.found(Some(image), image.root.name, &error);
                None
            }
        };
        for part in [image.profile, image.machine].into_iter().flatten() {
            self.check_object(image, form.as_ref(), part);
        }
    }

    /// Checks an object that the head names. Without the form, only its name is checked.
    fn check_object(&self, image: &PublishedImage, form: Option<&BlockForm>, part: StoredPart) {
        let part = ObjectPart::alone(part.name, part.bytes);
        let checked = read_part(self.target, &part, |block| {
            form.map(|form| block.unpack(form, PROFILE_BYTES_MAX)).transpose()?;
            Ok(())
        });
        match checked {
            Ok(()) => self.count(&part),
            Err(error) => self.found(Some(image), part.object, &error),
        }
    }

    /// Compares the listed objects that no map has led to with their names, if any map could not be
    /// followed.
    fn check_listed(&self, workers: &dyn Workers) -> Result<(), ReadPublicationError> {
        if self.done.lock().report.unopened.is_empty() {
            return Ok(());
        }
        let listed = match self.target.list("objects") {
            Ok(listed) => listed,
            Err(TargetError::Refused { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let name =
            |object: &Object| ObjectName::from_path(object.name.as_str()).map(|name| (name, object.bytes));
        let mut objects: Vec<_> = listed.iter().filter_map(name).collect();
        objects.retain(|(name, _)| !self.done.lock().seen.contains(name));
        read_each(workers, &objects, |(name, bytes)| {
            if let Err(error) = self.compare(name, *bytes) {
                self.found(None, *name, &error);
            }
        });
        self.done.lock().report.compared_count = Some(objects.len() as u64);
        Ok(())
    }

    fn compare(&self, object: &ObjectName, bytes: u64) -> Result<(), ReadPartError> {
        // A longer object is compared up to here, and has another name.
        let bytes = bytes.min(OBJECT_BYTES_MAX as u64);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        read_part(self.target, &ObjectPart::alone(*object, bytes), |_| Ok(()))
    }

    fn check_block(&self, image: &PublishedImage, form: &BlockForm, block: u64, entry: &MapEntry) {
        let MapEntry::Stored(part) = entry else { return };
        if !self.done.lock().read.insert(part.name) {
            return;
        }
        let range = image.shape.block_range(block);
        let read = read_part(self.target, part, |block| {
            let bytes_max = to_usize(image.shape.block_bytes.get());
            let content = block.unpack(form, bytes_max)?;
            let expected = range.end - range.start;
            if content.len() as u64 == expected {
                Ok(())
            } else {
                Err(ReadPartError::Length { expected, actual: content.len() })
            }
        });
        match read {
            Ok(()) => self.count(part),
            Err(error) => self.found(Some(image), part.object, &error),
        }
    }

    fn count(&self, part: &ObjectPart) {
        let CheckState { seen, report, .. } = &mut *self.done.lock();
        seen.insert(part.object);
        report.block_count += 1;
        report.block_bytes += u64::from(part.bytes);
    }

    fn found(&self, image: Option<&PublishedImage>, object: ObjectName, error: &ReadPartError) {
        let CheckState { seen, damaged, report, .. } = &mut *self.done.lock();
        seen.insert(object);
        if !damaged.insert(object) {
            return;
        }
        report.finding_count += 1;
        if report.findings.len() < FINDINGS_MAX {
            let (image, reason) = (image.map(|image| image.name.clone()), varve_block::with_causes(error));
            report.findings.push(PublicationFinding { image, object, reason });
        }
    }
}
