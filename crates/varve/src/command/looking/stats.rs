//! `varve stats`

use anyhow::Result;
use serde_json::{Value, json};
use varve_index::DiskIndexStats;
use varve_log::ParityPercent;
use varve_store::{CompareMode, IndexPlace};

use super::{arena_space, space_needs};
use crate::arguments::StatsArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &StatsArgs) -> Result<CommandOutcome> {
    if args.arenas {
        return arena_space::run(invocation, args);
    }
    if args.snapshots {
        return space_needs::run(invocation, args);
    }
    let archive = invocation.session.read()?;
    let stats = archive.store().stats()?;
    let shown_bytes: u64 = archive.snapshots().iter().map(|snapshot| snapshot.size).sum();
    let new_bytes: u64 = archive
        .snapshots()
        .iter()
        .filter_map(|snapshot| snapshot.growth)
        .map(|growth| growth.new_bytes)
        .sum();
    let percent = archive.store().config().parity_percent.map_or(0, ParityPercent::get);
    let compare = match archive.store().config().compare {
        CompareMode::Hash => "hash",
        CompareMode::Value => "value",
    };
    if invocation.json {
        let value = json!({
            "snapshots": archive.snapshots().len(),
            "snapshot_bytes": shown_bytes,
            "unique_bytes": new_bytes,
            "stored_bytes": stats.log_bytes,
            "blocks": stats.block_count,
            "compare": compare,
            "arenas": stats.arena_count,
            "index_bytes": stats.index_bytes,
            "index": stats.disk_index.as_ref().map_or_else(|| json!({ "kind": "memory" }), |index| disk_index_json(index, archive.store().index_places())),
            "index_bucket_fills": stats.index.as_ref().map(|index| index.fills),
            "index_candidates": stats.index.as_ref().map(|index| index.candidates),
            "parity_percent": percent,
            "parity_bytes": stats.parity_bytes,
            "parity_arenas": stats.parity_count,
            "end_is_lost": archive.store().end_is_lost(),
            "withheld": archive.store().check_nothing_withheld().err().map(
                |withheld| json!({ "arena": withheld.arena.0, "offset": withheld.offset })
            ),
        });
        say::record("stats", value);
        return Ok(CommandOutcome::Done);
    }
    let index = format!("{} in memory", show::bytes(stats.index_bytes));
    for (what, value) in [
        ("snapshots", archive.snapshots().len().to_string()),
        ("size of snapshots", show::bytes(shown_bytes)),
        ("without duplicates", show::bytes(new_bytes)),
        ("on disk", show::bytes(stats.log_bytes)),
        ("saved", saved(shown_bytes, stats.log_bytes)),
        ("blocks", stats.block_count.to_string()),
        ("duplicates found by", compare.to_owned()),
        ("arenas", stats.arena_count.to_string()),
        ("index", index),
    ] {
        say!("{what:<22}{value:>20}");
    }
    if let Some(index) = &stats.disk_index {
        for (what, value) in [
            ("  its filter", show::bytes(index.filter_bytes)),
            ("  filter made for", show::count(index.filter_blocks, "block")),
            ("  the rest, at most", show::bytes(index.memory_bytes_max)),
            ("  on disk", show::bytes(index.file_bytes)),
        ] {
            say!("{what:<22}{value:>20}");
        }
        for place in archive.store().index_places() {
            let trouble =
                place.trouble.map(|reason| format!(" (cannot be used: {reason})")).unwrap_or_default();
            say!("  in {}{trouble}", place.path);
        }
        if let Some(trouble) = &index.trouble {
            say!("The index cannot be used: {trouble}");
        }
    }
    if let Some(index) = &stats.index {
        for (number, count) in index.fills.iter().enumerate().filter(|(_, count)| **count > 0) {
            let what = format!("buckets {} to {} % full", 5 * number, 5 * (number + 1));
            say!("{what:<22}{count:>20}");
        }
        for (number, count) in (1..).zip(&index.candidates).filter(|(_, count)| **count > 0) {
            let what = format!("with {}", show::count(number, "candidate"));
            say!("{what:<22}{count:>20}");
        }
    }
    if percent > 0 || stats.parity_count > 0 {
        for (what, value) in [
            ("parity", show::bytes(stats.parity_bytes)),
            ("arenas with parity", stats.parity_count.to_string()),
            ("parity of new arenas", format!("{percent} %")),
        ] {
            say!("{what:<22}{value:>20}");
        }
    }
    Ok(CommandOutcome::Done)
}

fn disk_index_json(index: &DiskIndexStats, places: Vec<IndexPlace>) -> Value {
    let place = |place: IndexPlace| json!({ "path": place.path, "trouble": place.trouble });
    json!({
        "places": places.into_iter().map(place).collect::<Vec<_>>(),
        "kind": "disk",
        "filter_bytes": index.filter_bytes,
        "filter_blocks": index.filter_blocks,
        "memory_bytes": index.memory_bytes,
        "memory_bytes_max": index.memory_bytes_max,
        "fingerprint_bits": index.fingerprint_bits,
        "file_bytes": index.file_bytes,
        "file_blocks": index.file_blocks,
        "trouble": index.trouble,
    })
}

fn saved(shown_bytes: u64, stored_bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
    let ratio = shown_bytes as f64 / stored_bytes.max(1) as f64;
    format!("{ratio:.1} : 1")
}
