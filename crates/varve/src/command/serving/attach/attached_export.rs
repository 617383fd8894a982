//! The attached disk for clients that read it, and may write over it.

use std::sync::Arc;

use anyhow::Result;
use varve_attach::PublishedDisk;
use varve_edition::PublishedImage;
use varve_serve::nbd::{NbdSettings, Overlay, RecordedDisk, ServedDisk};
use varve_serve::published::PublishedExport;

use crate::arguments::AttachArgs;
use crate::command::keeping::profile::NewProfile;
use crate::invocation::Invocation;

/// The disk as clients read it.
pub(super) struct AttachedExport {
    pub(super) disk: Arc<dyn ServedDisk>,
    /// The profile that the reads become.
    recording: Option<(NewProfile, Arc<RecordedDisk>)>,
}

impl AttachedExport {
    /// Offers a disk. Begins a profile of the reads if one is requested.
    pub(super) fn new(invocation: &Invocation, args: &AttachArgs, disk: &Arc<PublishedDisk>) -> Result<Self> {
        let profile = args.record.as_deref().map(|path| NewProfile::create(invocation, path)).transpose()?;
        let plain: Arc<dyn ServedDisk> = Arc::new(PublishedExport(Arc::clone(disk)));
        let recording = profile.map(|profile| (profile, Arc::new(RecordedDisk::new(Arc::clone(&plain)))));
        let disk = recording.as_ref().map_or(plain, |(_, recorded)| Arc::clone(recorded) as _);
        Ok(Self { disk, recording })
    }

    /// Returns the disk whose reads become a profile.
    pub(super) fn recorded(&self) -> Option<Arc<RecordedDisk>> {
        self.recording.as_ref().map(|(_, recorded)| Arc::clone(recorded))
    }

    /// Writes the profile, once nobody reads the disk any more.
    pub(super) fn finish(self) -> Result<()> {
        match self.recording {
            Some((profile, recorded)) => profile.write_recorded(&recorded),
            None => Ok(()),
        }
    }
}

/// Reads wait for servers, so a client may have many at once.
pub(super) fn nbd_settings() -> NbdSettings {
    NbdSettings { workers_per_connection: 16, ..NbdSettings::default() }
}

/// Returns the disk with the writes that `--overlay` keeps.
pub(super) fn kept_overlay(
    args: &AttachArgs,
    image: &PublishedImage,
    export: &Arc<dyn ServedDisk>,
) -> Result<Option<Arc<dyn ServedDisk>>> {
    let Some(path) = &args.overlay else { return Ok(None) };
    let overlay = Overlay::keep(Arc::clone(export), &image.root.name.to_string(), path)?;
    Ok(Some(Arc::new(overlay)))
}
