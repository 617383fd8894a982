//! The report of `varve optimize`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use varve_image::{RelocatedDisk, Relocation, VolumeRelocation};

use super::check::CheckedImage;
use crate::invocation::Invocation;
use crate::{say, show};

/// The unit in which a publication is read.
const UNIT_BYTES: u64 = 128 << 10;

/// Prints what moves, and what stays.
pub(super) fn print(invocation: &Invocation, plan: &RelocatedDisk) {
    for volume in plan.volumes() {
        match volume.outcome() {
            Ok(moved) => print_moved(invocation, volume, moved),
            Err(reason) if invocation.json => {
                let fields =
                    json!({ "volume": volume.name(), "read_bytes": volume.read_bytes(), "reason": reason });
                say::record("refused_volume", fields);
            }
            Err(reason) => {
                let bytes = show::bytes(volume.read_bytes());
                say!("{}: stays as it is, {bytes} of the profile: {}", volume.name(), show::plain(reason));
            }
        }
    }
    let [before, after] = plan.units_read(UNIT_BYTES);
    if invocation.json {
        let fields = json!({
            "changed_bytes": plan.changed_bytes(),
            "unit_bytes": UNIT_BYTES,
            "units_before": before,
            "units_after": after,
        });
        say::record("relocation", fields);
    } else if !invocation.quiet {
        let unit = show::bytes(UNIT_BYTES);
        say!("blocks of {unit} that the profile reads: {before} before, {after} after");
    }
}

fn print_moved(invocation: &Invocation, volume: &VolumeRelocation, moved: &Relocation) {
    let bytes = |blocks: u64| blocks.saturating_mul(moved.block_bytes());
    let moved_blocks = moved.moved().iter().map(|run| run.count).sum::<u64>();
    let mut files: Vec<_> = moved.moved().iter().map(|run| run.file).collect();
    files.sort_unstable();
    files.dedup();
    let mut left: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for file in moved.left() {
        let (files, blocks) = left.entry(file.reason).or_default();
        *files += 1;
        *blocks += file.blocks;
    }
    let ranges = moved.region().len() as u64;
    if invocation.json {
        let left: Vec<_> = left
            .iter()
            .map(|(reason, (files, blocks))| json!({ "files": files, "bytes": bytes(*blocks), "reason": reason }))
            .collect();
        let fields = json!({
            "volume": volume.name(),
            "read_bytes": volume.read_bytes(),
            "files": files.len(),
            "moved_bytes": bytes(moved_blocks),
            "ranges": ranges,
            "grown_files": moved.grown_files().count(),
            "other_bytes": bytes(moved.blocks_of_no_file()),
            "left": left,
        });
        say::record("relocated_volume", fields);
        return;
    }
    if invocation.quiet {
        return;
    }
    say!(
        "{}: {} of {} moved to {}; the profile reads {}",
        volume.name(),
        show::bytes(bytes(moved_blocks)),
        show::count(files.len() as u64, "file"),
        show::count(ranges, "range"),
        show::bytes(volume.read_bytes())
    );
    for (reason, (files, blocks)) in left {
        say!("  {} of {} left in place: {reason}", show::bytes(bytes(blocks)), show::count(files, "file"));
    }
    if moved.blocks_of_no_file() > 0 {
        say!("  {} left in place: metadata, and free space", show::bytes(bytes(moved.blocks_of_no_file())));
    }
    let grown = moved.grown_files().count() as u64;
    if grown > 0 {
        say!("  one block more, for its map: {}", show::count(grown, "file"));
    }
}

/// Prints how the new image was checked.
pub(super) fn checked(invocation: &Invocation, checked: &CheckedImage) {
    if invocation.json {
        say::record("relocation_checked", json!({ "e2fsck": checked.e2fsck }));
    } else if !invocation.quiet {
        match &checked.e2fsck {
            Some(clean) => say!("all files are equal; e2fsck finds no problem in {}", clean.join(", ")),
            None => say!("all files are equal"),
        }
    }
    if checked.e2fsck.is_none() {
        warning!("e2fsck is not installed: only varve itself has checked the new image");
    }
}

/// Prints that the new image has its name.
pub(super) fn made(invocation: &Invocation, output: &Path, size: u64) {
    if invocation.json {
        let fields = json!({ "output": output.display().to_string(), "bytes": size });
        say::record("optimized_image", fields);
    } else if !invocation.quiet {
        say!("{}: {}", output.display(), show::bytes(size));
    }
}
