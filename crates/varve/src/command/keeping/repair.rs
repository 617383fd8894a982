//! `varve repair`

mod accept_loss;

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_archive::{Harm, RepairReport, RepairScope, plan_repair, repair};
use varve_log::ArenaId;
use varve_store::{OpenStoreError, Permission, Store};
use varve_upkeep::{ArenaMend, MendWay};
use varve_world::World;

use super::lost_data;
use super::verify_store;
use crate::arguments::RepairArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
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
    let progress = cancellable_progress()?;
    let shown = ShownProgress::start("checking", &progress, invocation.quiet || invocation.json);
    let scope = if args.data { RepairScope::All } else { RepairScope::Known };
    let report = match args.plan {
        true => RepairReport::of_plan(plan_repair(&store, &sources, scope, &progress)?),
        false => repair(&store, &sources, scope, &progress)?,
    };
    drop(shown);
    if !args.plan && (report.plan.end_was_lost || report.brought_back_count > 0) {
        invocation.session.forget_seen(&store.config().id);
    }
    store.close()?;
    if invocation.json {
        print_json(args, &report);
    } else {
        print(invocation, args, &report);
    }
    // Nothing here names the data behind a lost end. Without a copy, completeness cannot be
    // claimed.
    let is_end_open = report.plan.end_was_lost && (args.plan || args.from.is_empty());
    let is_well = harm_left(args, &report).is_empty()
        && report.plan.losses.is_empty()
        && !is_end_open
        && (!args.plan || report.plan.is_empty());
    Ok(if is_well { CommandOutcome::Done } else { CommandOutcome::Damage })
}

/// The harm that a repair has left, or the present harm if it is only planned.
fn harm_left<'a>(args: &RepairArgs, report: &'a RepairReport) -> &'a [Harm] {
    if args.plan { &report.plan.before.harm } else { &report.harm_left }
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
            warning!("{file} was restored from {}", path.display());
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

/// Prints the plan, or the outcome of each of its steps.
fn print(invocation: &Invocation, args: &RepairArgs, report: &RepairReport) {
    let plan = &report.plan;
    if args.plan {
        print_ways(args, report);
    }
    for arena in &report.replaced {
        say!("arena {arena}, which was put in place from outside, is in use now");
    }
    if !args.plan {
        for (arena, mend) in plan.log.arenas.iter().chain(&report.late.arenas) {
            say!("arena {arena} was salvaged: {}", mend.reasons.join("; "));
        }
    }
    for (arena, way) in &report.mended {
        match way {
            MendWay::FromParity => say!("arena {arena} was mended from its parity"),
            _ => say!("arena {arena} was taken unchanged from a copy"),
        }
    }
    for arena in &plan.log.parity {
        say!("the parity of arena {arena} {} made again", if args.plan { "would be" } else { "was" });
    }
    if plan.catalog_was_lost {
        let known = show::count(plan.before.snapshot_count, "snapshot");
        say!("the newest catalog is lost; older catalogs know {known}");
    }
    if plan.end_was_lost {
        say!("the end of the log is gone: the newest snapshots may be missing, and cannot be named here");
    }
    if report.brought_back_count > 0 {
        let snapshots = show::count(report.brought_back_count, "snapshot");
        match args.plan {
            true => say!("would bring back {snapshots} that only a copy knows"),
            false => say!("brought back {snapshots} that only a copy knew"),
        }
    }
    if !args.plan && report.fetched_block_count > 0 {
        say!("fetched {}", show::count(report.fetched_block_count, "block"));
    }
    verify_store::print_harm(harm_left(args, report));
    lost_data::print(&plan.losses);
    match args.plan {
        true => print_end_of_plan(args, report),
        false => print_end(invocation, args, report),
    }
}

/// Prints the steps that a plan words otherwise than the report of its outcome.
fn print_ways(args: &RepairArgs, report: &RepairReport) {
    let plan = &report.plan;
    if plan.log.takes_in_replaced {
        say!("sealed arenas that were put in place from outside would be used");
    }
    for (arena, mend) in &plan.log.arenas {
        let ways = mend.ways.iter().map(|way| match way {
            MendWay::FromParity => "mended from its parity".to_owned(),
            MendWay::FromCopy(number) => format!("taken unchanged from {}", copy_name(args, *number)),
            MendWay::Rewrite => "salvaged".to_owned(),
        });
        let ways = ways.collect::<Vec<_>>().join(", or otherwise ");
        say!("arena {arena} would be {ways}: {}", mend.reasons.join("; "));
    }
    if plan.log.may_name_more() {
        say!("after that, the remaining damage would be planned again");
    }
    for (number, blocks) in &plan.fetches {
        let blocks = show::count(blocks.len() as u64, "block");
        say!("{blocks} would be fetched from {}", copy_name(args, *number));
    }
}

/// The name that the user gave to the copy with this number.
fn copy_name(args: &RepairArgs, number: usize) -> String {
    args.from.get(number).map(|path| path.display().to_string()).unwrap_or_default()
}

fn print_end_of_plan(args: &RepairArgs, report: &RepairReport) {
    let plan = &report.plan;
    if plan.is_empty() && plan.before.harm.is_empty() && plan.losses.is_empty() {
        say!("nothing to repair");
    } else if args.from.is_empty() {
        hint!(
            "run it without --plan to do this; add --from COPY to fetch lost data from a copy of the store"
        );
    } else {
        hint!("run it without --plan to do this");
    }
}

fn print_end(invocation: &Invocation, args: &RepairArgs, report: &RepairReport) {
    let plan = &report.plan;
    if !report.harm_left.is_empty() {
        hint!("archive the same data again, or name a copy of the store with --from");
    } else if let Some(lost) = lost_data::summary(&plan.losses) {
        say!("{lost}: `varve verify` reports this until it is back");
        lost_data::print_hint(&plan.losses);
    } else if plan.end_was_lost && args.from.is_empty() {
        hint!("name a copy of the store, or a replica, with --from: it may have the lost snapshots");
    } else if report.is_idle() {
        say!("nothing to repair");
    } else if !invocation.quiet {
        match plan.is_all_checked {
            true if plan.before.snapshot_count == 1 => say!("the one snapshot is whole"),
            true => say!("all {} snapshots are whole", plan.before.snapshot_count),
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
    let plan = &report.plan;
    let numbers =
        |arenas: &mut dyn Iterator<Item = &ArenaId>| arenas.map(|arena| arena.0).collect::<Vec<_>>();
    let mended = |is_from_parity: bool| {
        let mended = report.mended.iter();
        let mended = mended.filter(|(_, way)| matches!(way, MendWay::FromParity) == is_from_parity);
        numbers(&mut mended.map(|(arena, _)| arena))
    };
    let fetches = plan
        .fetches
        .iter()
        .map(|(number, blocks)| json!({ "from": copy_name(args, *number), "blocks": blocks.len() }));
    let kind = if args.plan { "repair_plan" } else { "repaired" };
    say::record(
        kind,
        json!({
            "planned": report.first.arenas.iter().map(|one| arena_as_json(args, one)).collect::<Vec<_>>(),
            "takes_in_replaced": report.first.takes_in_replaced,
            "may_name_more": report.first.may_name_more(),
            "replaced": numbers(&mut report.replaced.iter()),
            "arenas": plan.log.arenas.iter().map(|one| arena_as_json(args, one)).collect::<Vec<_>>(),
            "late": numbers(&mut report.late.arenas.keys()),
            "parity": numbers(&mut plan.log.parity.iter()),
            "copied": mended(false),
            "all_checked": plan.is_all_checked,
            "mended": mended(true),
            "catalog_was_lost": plan.catalog_was_lost,
            "end_was_lost": plan.end_was_lost,
            "accepts_end": plan.log.accepts_end,
            "brought_back_snapshots": report.brought_back_count,
            "fetches": fetches.collect::<Vec<_>>(),
            "fetched_blocks": report.fetched_block_count,
            "kept_blocks": report.repaired.kept_block_count,
            "snapshots": plan.before.snapshot_count,
            "lost": lost_data::as_json(&plan.losses),
            "harm": harm_left(args, report).iter().map(verify_store::harm_as_json).collect::<Vec<_>>(),
        }),
    );
}

fn arena_as_json(args: &RepairArgs, (arena, mend): (&ArenaId, &ArenaMend)) -> Value {
    let ways = mend.ways.iter().map(|way| match way {
        MendWay::FromParity => json!({ "way": "parity" }),
        MendWay::FromCopy(number) => json!({ "way": "copy", "from": copy_name(args, *number) }),
        MendWay::Rewrite => json!({ "way": "rewrite" }),
    });
    json!({ "arena": arena.0, "reasons": mend.reasons, "ways": ways.collect::<Vec<_>>() })
}
