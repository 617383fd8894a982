//! `varve stats`

use anyhow::Result;
use serde_json::{Value, json};
use varve_archive::Archive;
use varve_index::{DiskIndexStats, IndexStats};
use varve_log::ParityPercent;
use varve_store::{CompareMode, IndexPlace, StoreStats};

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
    let figures = ArchiveFigures::new(&archive)?;
    match invocation.json {
        true => say::record("stats", figures.to_json()),
        false => figures.print(),
    }
    Ok(CommandOutcome::Done)
}

/// The figures of an archive and its store.
struct ArchiveFigures<'a> {
    archive: &'a Archive,
    stats: StoreStats,
    /// The size of all snapshots together.
    shown_bytes: u64,
    /// The same without duplicates.
    new_bytes: u64,
    parity_percent: u8,
    compare: &'static str,
}

impl<'a> ArchiveFigures<'a> {
    fn new(archive: &'a Archive) -> Result<Self> {
        let (snapshots, config) = (archive.snapshots(), archive.store().config());
        let growths = snapshots.iter().filter_map(|snapshot| snapshot.growth);
        Ok(Self {
            archive,
            stats: archive.store().stats()?,
            shown_bytes: snapshots.iter().map(|snapshot| snapshot.size).sum(),
            new_bytes: growths.map(|growth| growth.new_bytes).sum(),
            parity_percent: config.parity_percent.map_or(0, ParityPercent::get),
            compare: match config.compare {
                CompareMode::Hash => "hash",
                CompareMode::Value => "value",
            },
        })
    }

    fn to_json(&self) -> Value {
        let (stats, store) = (&self.stats, self.archive.store());
        let index = stats.disk_index.as_ref();
        let withheld = store.check_nothing_withheld().err();
        json!({
            "snapshots": self.archive.snapshots().len(),
            "snapshot_bytes": self.shown_bytes,
            "unique_bytes": self.new_bytes,
            "stored_bytes": stats.log_bytes,
            "blocks": stats.block_count,
            "compare": self.compare,
            "arenas": stats.arena_count,
            "index_bytes": stats.index_bytes,
            "index": index.map_or_else(|| json!({ "kind": "memory" }), |index| disk_index_json(index, store.index_places())),
            "index_bucket_fills": stats.index.as_ref().map(|index| index.fills),
            "index_candidates": stats.index.as_ref().map(|index| index.candidates),
            "parity_percent": self.parity_percent,
            "parity_bytes": stats.parity_bytes,
            "parity_arenas": stats.parity_count,
            "end_is_lost": store.end_is_lost(),
            "withheld": withheld.map(
                |withheld| json!({ "arena": withheld.arena.0, "offset": withheld.offset })
            ),
        })
    }

    fn print(&self) {
        let stats = &self.stats;
        print_rows([
            ("snapshots", self.archive.snapshots().len().to_string()),
            ("size of snapshots", show::bytes(self.shown_bytes)),
            ("without duplicates", show::bytes(self.new_bytes)),
            ("on disk", show::bytes(stats.log_bytes)),
            ("saved", saved(self.shown_bytes, stats.log_bytes)),
            ("blocks", stats.block_count.to_string()),
            ("duplicates found by", self.compare.to_owned()),
            ("arenas", stats.arena_count.to_string()),
            ("index", format!("{} in memory", show::bytes(stats.index_bytes))),
        ]);
        if let Some(index) = &stats.disk_index {
            print_disk_index(index, self.archive.store().index_places());
        }
        if let Some(index) = &stats.index {
            print_memory_index(index);
        }
        if self.parity_percent > 0 || stats.parity_count > 0 {
            print_rows([
                ("parity", show::bytes(stats.parity_bytes)),
                ("arenas with parity", stats.parity_count.to_string()),
                ("parity of new arenas", format!("{} %", self.parity_percent)),
            ]);
        }
    }
}

fn print_rows<const COUNT: usize>(rows: [(&str, String); COUNT]) {
    for (what, value) in rows {
        say!("{what:<22}{value:>20}");
    }
}

fn print_disk_index(index: &DiskIndexStats, places: Vec<IndexPlace>) {
    print_rows([
        ("  its filter", show::bytes(index.filter_bytes)),
        ("  filter made for", show::count(index.filter_blocks, "block")),
        ("  the rest, at most", show::bytes(index.memory_bytes_max)),
        ("  on disk", show::bytes(index.file_bytes)),
    ]);
    for place in places {
        let trouble = place.trouble.map(|reason| format!(" (cannot be used: {reason})")).unwrap_or_default();
        say!("  in {}{trouble}", place.path);
    }
    if let Some(trouble) = &index.trouble {
        say!("The index cannot be used: {trouble}");
    }
}

fn print_memory_index(index: &IndexStats) {
    for (number, count) in index.fills.iter().enumerate().filter(|(_, count)| **count > 0) {
        let what = format!("buckets {} to {} % full", 5 * number, 5 * (number + 1));
        print_rows([(&what, count.to_string())]);
    }
    for (number, count) in (1..).zip(&index.candidates).filter(|(_, count)| **count > 0) {
        let what = format!("with {}", show::count(number, "candidate"));
        print_rows([(&what, count.to_string())]);
    }
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
