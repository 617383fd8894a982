//! The UEFI variables with which `varve boot` starts a machine.

use std::sync::Arc;

use anyhow::Result;
use varve_archive::{Firmware, Snapshot, SnapshotContent, SnapshotFilter, SnapshotId};
use varve_block::with_causes;
use varve_content::image::{CachedBlocks, ImageReader};
use varve_machine::boot::{Hardware, InstalledFirmware, KeptWrites, StartVariables, read_variables};
use varve_serve::nbd::SnapshotDisks;

use crate::arguments::BootArgs;

const FRESH: &str = "it starts with fresh ones, without boot entries that only these variables had";

/// Returns the variables that were archived with the disk, unless earlier ones are kept. Says so if
/// they cannot be used.
pub(super) fn choose(
    args: &BootArgs,
    hardware: &Hardware,
    snapshots: &SnapshotDisks,
    snapshot: &Snapshot,
    blocks: &Arc<CachedBlocks>,
) -> Result<StartVariables> {
    let kept = args.keep.as_ref().map(|path| std::path::absolute(KeptWrites::variables(path))).transpose()?;
    let mut variables = StartVariables { archived: None, kept };
    let is_kept = variables.kept.as_ref().is_some_and(|path| path.exists());
    let archived = snapshot.machine.as_ref().and_then(|machine| machine.firmware_variables());
    let Some(id) = archived.filter(|_| hardware.firmware == Firmware::Uefi && !is_kept) else {
        return Ok(variables);
    };
    match read(id, snapshots, blocks) {
        Ok(bytes) => variables.archived = Some(bytes),
        Err(reason) => {
            warning!("the UEFI variables of the machine (snapshot {id}) are not used: {reason}; {FRESH}");
        }
    }
    Ok(variables)
}

fn read(id: SnapshotId, snapshots: &SnapshotDisks, blocks: &Arc<CachedBlocks>) -> Result<Vec<u8>, String> {
    let found = snapshots.find_snapshot(&id.to_string(), &SnapshotFilter::default());
    let (snapshot, _) = found.map_err(|error| error.to_string())?;
    let SnapshotContent::Image(entry) = &snapshot.content else { return Err("they are a folder".into()) };
    let flash = ImageReader::new(Arc::clone(blocks), entry);
    read_variables(&flash, &InstalledFirmware::all()).map_err(|error| with_causes(&error))
}
