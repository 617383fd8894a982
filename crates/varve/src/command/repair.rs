//! `varve repair`

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::json;
use varve_archive::{Progress, RepairReport, plan_repair, repair};
use varve_store::{Permission, Store};

use super::{Outcome, verify};
use crate::arguments::{Arguments, Repair};
use crate::progress_bar::{Shown, cancel_on_signal};
use crate::session;

pub(super) fn run(arguments: &Arguments, words: &Repair) -> Result<Outcome> {
    let store = if words.plan { session::read_store(arguments)? } else { session::write_store(arguments)? };
    let permission = if words.plan { Permission::Read } else { Permission::Destroy };
    store.role().require(permission)?;
    let sources = words.from.iter().map(|path| source(arguments, path)).collect::<Result<Vec<_>>>()?;
    let sources: Vec<&Store> = sources.iter().collect();
    let progress = Arc::new(Progress::new());
    cancel_on_signal(&progress)?;
    let shown = Shown::start("checking", &progress, arguments.quiet || arguments.json);
    let report =
        if words.plan { plan_repair(&store, &progress)? } else { repair(&store, &sources, &progress)? };
    drop(shown);
    store.close()?;
    if arguments.json {
        print_json(words, &report);
    } else {
        print(arguments, words, &report);
    }
    let left = if words.plan { &report.before.harm } else { &report.harm_left };
    let is_well = left.is_empty() && (!words.plan || report.plan.is_empty());
    Ok(if is_well { Outcome::Done } else { Outcome::Found })
}

/// A store to fetch lost blocks from, opened with the same key.
fn source(arguments: &Arguments, path: &Path) -> Result<Store> {
    let context = || format!("cannot fetch from {}", path.display());
    let store = session::read_store_at(arguments, path).with_context(context)?;
    store.role().require(Permission::Read).with_context(context)?;
    Ok(store)
}

fn print(arguments: &Arguments, words: &Repair, report: &RepairReport) {
    for (arena, reasons) in &report.plan.arenas {
        say!(
            "arena {arena} {}: {}",
            if words.plan { "would be written anew" } else { "was written anew" },
            reasons.join("; ")
        );
    }
    for arena in &report.mended {
        say!("arena {arena} was mended from its parity");
    }
    for arena in &report.plan.parity {
        say!("the parity of arena {arena} {} made again", if words.plan { "would be" } else { "was" });
    }
    if report.catalog_was_lost {
        say!("the newest catalog is lost; others know {} snapshots", report.before.snapshot_count);
    }
    if words.plan {
        verify::print_harm(&report.before.harm);
        if report.plan.is_empty() && report.before.harm.is_empty() {
            say!("nothing to repair");
        } else {
            eprintln!(
                "hint: without --plan this is done; with --from a copy of the store, what is lost comes back"
            );
        }
        return;
    }
    if report.fetched_block_count > 0 {
        say!("{} blocks were fetched", report.fetched_block_count);
    }
    verify::print_harm(&report.harm_left);
    if !report.harm_left.is_empty() {
        eprintln!("hint: archive the same data again, or name a copy of the store with --from");
    } else if report.plan.is_empty()
        && report.mended.is_empty()
        && !report.catalog_was_lost
        && report.fetched_block_count == 0
    {
        say!("nothing to repair");
    } else if !arguments.quiet {
        say!("all {} snapshots are whole", report.before.snapshot_count);
    }
    if report.repaired.arena_count > 0 && !arguments.quiet {
        say!("what the arenas were is in the store's folder \"quarantine\"; nothing needs it any more");
    }
}

fn print_json(words: &Repair, report: &RepairReport) {
    let arenas: Vec<_> = report
        .plan
        .arenas
        .iter()
        .map(|(arena, reasons)| json!({ "arena": arena.0, "reasons": reasons }))
        .collect();
    let left = if words.plan { &report.before.harm } else { &report.harm_left };
    say!(
        "{}",
        json!({
            "planned": words.plan,
            "arenas": arenas,
            "mended": report.mended.iter().map(|arena| arena.0).collect::<Vec<_>>(),
            "catalog_was_lost": report.catalog_was_lost,
            "fetched_blocks": report.fetched_block_count,
            "kept_blocks": report.repaired.kept_block_count,
            "snapshots": report.before.snapshot_count,
            "harm": left.iter().map(verify::harm_as_json).collect::<Vec<_>>(),
        })
    );
}
