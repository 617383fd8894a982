//! Checks every object of a publication with the publisher's key alone.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use varve_edition::{
    EditionKey, MapEntry, ObjectName, ObjectPart, PAGE_ENTRIES_MAX, PROFILE_BYTES_MAX, PublishedImage,
    StoredPart,
};
use varve_remote::Target;
use varve_world::{Workers, read_each};

use crate::published::{ReadPartError, ReadPublicationError, open_head, read_part, visit_pages};

/// At most this number of findings is kept. All are counted.
const FINDINGS_MAX: usize = 1000;

/// An object that is missing or damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationFinding {
    /// The first image that needs it.
    pub image: String,
    pub object: ObjectName,
    pub reason: String,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedPublication {
    pub serial: u64,
    pub image_count: usize,
    /// The stored blocks that were read, each once.
    pub block_count: u64,
    pub block_bytes: u64,
    pub finding_count: u64,
    pub findings: Vec<PublicationFinding>,
}

struct CheckRun<'a> {
    target: &'a dyn Target,
    done: Mutex<CheckState>,
}

#[derive(Default)]
struct CheckState {
    /// The stored blocks that were read, or are being read.
    read: BTreeSet<ObjectName>,
    damaged: BTreeSet<ObjectName>,
    report: CheckedPublication,
}

/// Reads every object that the images of the head lead to, and checks it.
///
/// # Errors
/// [`ReadPublicationError`] when the head cannot be read, or is not signed by a trusted key.
pub fn check_publication(
    target: &dyn Target,
    trusted: &[EditionKey],
    workers: &dyn Workers,
) -> Result<CheckedPublication, ReadPublicationError> {
    let opened = open_head(target, trusted)?;
    let head = opened.head.fields();
    let report = CheckedPublication {
        serial: head.serial,
        image_count: head.images.len(),
        ..CheckedPublication::default()
    };
    let run = CheckRun { target, done: Mutex::new(CheckState { report, ..CheckState::default() }) };
    for image in &head.images {
        run.check_image(image, workers);
    }
    Ok(run.done.into_inner().report)
}

impl CheckRun<'_> {
    fn check_image(&self, image: &PublishedImage, workers: &dyn Workers) {
        for part in [image.profile, image.machine].into_iter().flatten() {
            self.check_object(image, part);
        }
        let checked = visit_pages(self.target, image, |page, part, entries| {
            match entries {
                Ok(entries) => {
                    let first = page * u64::from(PAGE_ENTRIES_MAX);
                    let blocks: Vec<_> = (first..).zip(entries.entries()).collect();
                    read_each(workers, &blocks, |(block, entry)| self.check_block(image, *block, entry));
                }
                Err(error) => self.found(image, part.object, &error),
            }
            Ok::<(), ReadPartError>(())
        });
        if let Err(error) = checked {
            self.found(image, image.root.name, &error);
        }
    }

    fn check_object(&self, image: &PublishedImage, part: StoredPart) {
        let part = ObjectPart::alone(part.name, part.bytes);
        match read_part(self.target, &part, |block| Ok(block.unpack(PROFILE_BYTES_MAX)?)) {
            Ok(_) => self.count(&part),
            Err(error) => self.found(image, part.object, &error),
        }
    }

    fn check_block(&self, image: &PublishedImage, block: u64, entry: &MapEntry) {
        let MapEntry::Stored(part) = entry else { return };
        if !self.done.lock().read.insert(part.name) {
            return;
        }
        let range = image.shape.block_range(block);
        let read = read_part(self.target, part, |block| {
            let bytes_max = usize::try_from(image.shape.block_bytes.get()).unwrap_or(usize::MAX);
            let content = block.unpack(bytes_max)?;
            let expected = range.end - range.start;
            if content.len() as u64 == expected {
                Ok(())
            } else {
                Err(ReadPartError::Length { expected, actual: content.len() })
            }
        });
        match read {
            Ok(()) => self.count(part),
            Err(error) => self.found(image, part.object, &error),
        }
    }

    fn count(&self, part: &ObjectPart) {
        let report = &mut self.done.lock().report;
        report.block_count += 1;
        report.block_bytes += u64::from(part.bytes);
    }

    fn found(&self, image: &PublishedImage, object: ObjectName, error: &ReadPartError) {
        let CheckState { damaged, report, .. } = &mut *self.done.lock();
        if !damaged.insert(object) {
            return;
        }
        report.finding_count += 1;
        if report.findings.len() < FINDINGS_MAX {
            let reason = varve_block::with_causes(error);
            report.findings.push(PublicationFinding { image: image.name.clone(), object, reason });
        }
    }
}
