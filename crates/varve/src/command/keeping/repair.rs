//! `varve repair`

mod accept_loss;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::json;
use varve_archive::{Progress, RepairReport, RepairScope, plan_repair, repair};
use varve_store::{OpenStoreError, Permission, Store};
use varve_world::World;

use super::lost_data;
use super::verify_store;
use crate::arguments::RepairArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancel_on_signal;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &RepairArgs) -> Result<CommandOutcome> {
    if let Some(plan) = &args.accept_loss {
        return accept_loss::run(invocation, plan.as_deref());
    }
    if !args.plan {
        bring_back_settings(invocation, args)?;
    }
    let store =
        if args.plan { invocation.session.read_store()? } else { invocation.session.write_store()? };
    let permission = if args.plan { Permission::Read } else { Permission::Destroy };
    store.role().require(permission)?;
    let sources = args.from.iter().map(|path| source(invocation, path)).collect::<Result<Vec<_>>>()?;
    let sources: Vec<&Store> = sources.iter().collect();
    let progress = Arc::new(Progress::new());
    cancel_on_signal(&progress)?;
    let shown = ShownProgress::start("checking", &progress, invocation.quiet || invocation.json);
    let scope = if args.data { RepairScope::All } else { RepairScope::Known };
    let report = match args.plan {
        true => plan_repair(&store, scope, &progress)?,
        false => repair(&store, &sources, scope, &progress)?,
    };
    drop(shown);
    if !args.plan && (report.end_was_lost || report.brought_back_count > 0) {
        invocation.session.forget_seen(&store.config().id);
    }
    store.close()?;
    if invocation.json {
        print_json(args, &report);
    } else {
        print(invocation, args, &report);
    }
    let left = if args.plan { &report.before.harm } else { &report.harm_left };
    // Nothing here names the data behind a lost end. Without a copy, completeness cannot be
    // claimed.
    let is_end_open = report.end_was_lost && (args.plan || args.from.is_empty());
    let is_well =
        left.is_empty() && report.losses.is_empty() && !is_end_open && (!args.plan || report.plan.is_empty());
    Ok(if is_well { CommandOutcome::Done } else { CommandOutcome::Damage })
}

/// Restores from copies the small files without which the store does not open.
fn bring_back_settings(invocation: &Invocation, args: &RepairArgs) -> Result<()> {
    let world = World::real(&invocation.session.store_folder()?);
    if matches!(Store::read_config(&world), Err(OpenStoreError::NotAStore | OpenStoreError::NotAFolder)) {
        return Ok(());
    }
    for path in &args.from {
        let copy = invocation.session.storage_at(path)?;
        let context = || format!("cannot restore the settings from {}", path.display());
        let secret = match varve_store::settings_need_secret(copy.as_ref()).with_context(context)? {
            true => Some(invocation.session.secret()?),
            false => None,
        };
        let put_back = varve_store::bring_back_settings(&world, copy.as_ref(), secret.as_ref());
        let put_back = put_back.with_context(context)?;
        for file in put_back {
            remark!("varve: {file} was restored from {}", path.display());
        }
    }
    Ok(())
}

/// Opens a store with the same key, to fetch lost blocks from it.
fn source(invocation: &Invocation, path: &Path) -> Result<Store> {
    let context = || format!("cannot fetch from {}", path.display());
    let store = invocation.session.read_store_at(path).with_context(context)?;
    store.role().require(Permission::Read).with_context(context)?;
    Ok(store)
}

fn print(invocation: &Invocation, args: &RepairArgs, report: &RepairReport) {
    for (arena, reasons) in &report.plan.arenas {
        say!(
            "arena {arena} {}: {}",
            if args.plan { "would be written anew" } else { "was written anew" },
            reasons.join("; ")
        );
    }
    for arena in &report.mended {
        say!("arena {arena} was mended from its parity");
    }
    for arena in &report.copied {
        say!("arena {arena} was taken from a copy, as it was");
    }
    for arena in &report.plan.parity {
        say!("the parity of arena {arena} {} made again", if args.plan { "would be" } else { "was" });
    }
    if report.catalog_was_lost {
        let known = show::count(report.before.snapshot_count, "snapshot");
        say!("the newest catalog is lost; older catalogs know {known}");
    }
    if report.end_was_lost {
        say!("the end of the log is gone: the newest snapshots may be missing, and cannot be named here");
    }
    if report.brought_back_count > 0 {
        let snapshots = show::count(report.brought_back_count, "snapshot");
        say!("brought back {snapshots} that only a copy knew");
    }
    if args.plan {
        verify_store::print_harm(&report.before.harm);
        lost_data::print(&report.losses);
        let is_well = report.plan.is_empty() && report.before.harm.is_empty() && report.losses.is_empty();
        if is_well && !report.end_was_lost {
            say!("nothing to repair");
        } else {
            remark!(
                "hint: run it without --plan to do this; add --from COPY to fetch lost data from a copy of the store"
            );
        }
        return;
    }
    if report.fetched_block_count > 0 {
        say!("fetched {}", show::count(report.fetched_block_count, "block"));
    }
    verify_store::print_harm(&report.harm_left);
    lost_data::print(&report.losses);
    if !report.harm_left.is_empty() {
        remark!("hint: archive the same data again, or name a copy of the store with --from");
    } else if let Some(lost) = lost_data::summary(&report.losses) {
        say!("{lost}: `varve verify` reports this until it is back");
        lost_data::print_hint(&report.losses);
    } else if report.end_was_lost && args.from.is_empty() {
        remark!("hint: name a copy of the store, or a replica, with --from: it may have the lost snapshots");
    } else if report.plan.is_empty()
        && report.mended.is_empty()
        && report.copied.is_empty()
        && !report.catalog_was_lost
        && report.brought_back_count == 0
        && report.fetched_block_count == 0
    {
        say!("nothing to repair");
    } else if !invocation.quiet {
        match report.is_all_checked {
            true if report.before.snapshot_count == 1 => say!("the one snapshot is whole"),
            true => say!("all {} snapshots are whole", report.before.snapshot_count),
            false => {
                say!("all known damage is repaired; `varve repair --data` reads everything")
            }
        }
    }
    if report.repaired.arena_count > 0 && !invocation.quiet {
        say!("the old arenas are in the store's folder \"quarantine\", which no command needs");
    }
}

fn print_json(args: &RepairArgs, report: &RepairReport) {
    let arenas: Vec<_> = report
        .plan
        .arenas
        .iter()
        .map(|(arena, reasons)| json!({ "arena": arena.0, "reasons": reasons }))
        .collect();
    let left = if args.plan { &report.before.harm } else { &report.harm_left };
    let kind = if args.plan { "repair_plan" } else { "repaired" };
    say::record(
        kind,
        json!({
            "arenas": arenas,
            "copied": report.copied.iter().map(|arena| arena.0).collect::<Vec<_>>(),
            "all_checked": report.is_all_checked,
            "mended": report.mended.iter().map(|arena| arena.0).collect::<Vec<_>>(),
            "catalog_was_lost": report.catalog_was_lost,
            "end_was_lost": report.end_was_lost,
            "brought_back_snapshots": report.brought_back_count,
            "fetched_blocks": report.fetched_block_count,
            "kept_blocks": report.repaired.kept_block_count,
            "snapshots": report.before.snapshot_count,
            "lost": lost_data::as_json(&report.losses),
            "harm": left.iter().map(verify_store::harm_as_json).collect::<Vec<_>>(),
        }),
    );
}
