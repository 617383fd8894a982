//! `varve prune`: `forget` by rules, and then `gc`.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use varve_archive::ForgetPlan;
use varve_archive::retention::RetentionPolicy;
use varve_session::UsageError;
use varve_store::Permission;

use super::{forget, gc};
use crate::arguments::{ForgetArgs, PruneArgs};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::signals::cancellable_progress;
use crate::{moment, show};

pub fn run(invocation: &Invocation, args: &PruneArgs) -> Result<CommandOutcome> {
    let (forget_args, gc_args) = (args.forget(), args.gc());
    let Some(policy) = forget::policy(&forget_args)? else {
        let text = "say what to keep, with rules such as --keep-daily 7, or --policy FILE";
        bail!(UsageError(text.into()));
    };
    let progress = cancellable_progress()?;
    let archive = invocation.session.read()?;
    archive.store().role().require(Permission::Destroy)?;
    let now = archive.store().world().clock.now();
    let verdicts = forget::by_policy(invocation, &forget_args, &archive, &policy, now)?;
    forget::warn_of_claims(&verdicts, &policy, now);
    let planned = forget::plan(&forget_args, &archive, &forget::let_go(&verdicts), now)?;
    let verb = if args.dry_run { "would forget" } else { "will forget" };
    forget::print_verdicts(invocation, &forget_args, verb, &planned, &verdicts);
    if args.dry_run {
        print_sum(invocation, &forget_args, "would forget", &planned);
        if !planned.snapshots.is_empty() && args.undo_days > 0 {
            forget::print_freed(invocation, &archive, &forget::let_go(&verdicts))?;
        }
    }
    // With an undo they only go to the trash, which needs what they need.
    let dead: BTreeSet<_> = match args.undo_days {
        0 => planned.snapshots.iter().map(|snapshot| snapshot.id).collect(),
        _ => BTreeSet::new(),
    };
    let mut collection = gc::plan(invocation, &gc_args, &archive, &dead, &progress)?;
    drop(archive);
    gc::print_plan(invocation, &gc_args, collection.report());
    if args.dry_run {
        return Ok(CommandOutcome::Done);
    }
    if !planned.snapshots.is_empty() {
        let forgotten = forget_as_planned(invocation, &forget_args, &policy, &planned)?;
        print_sum(invocation, &forget_args, "forgot", &forgotten);
    }
    gc::carry_out(invocation, &gc_args, &mut collection, &progress)
}

/// Forgets the snapshots of a plan. Meanwhile another program may have forgotten what the rules
/// have kept, so they judge again.
fn forget_as_planned(
    invocation: &Invocation,
    args: &ForgetArgs,
    policy: &RetentionPolicy,
    planned: &ForgetPlan,
) -> Result<ForgetPlan> {
    let mut archive = invocation.session.write()?;
    let now = archive.store().world().clock.now();
    let let_go = forget::let_go(&forget::by_policy(invocation, args, &archive, policy, now)?);
    let ids: Vec<_> = planned.snapshots.iter().map(|snapshot| snapshot.id).collect();
    if !ids.iter().all(|id| let_go.contains(id)) {
        bail!(
            "the snapshots have changed since the plan was made: nothing is forgotten or freed; run it again"
        );
    }
    let forgotten = forget::forget(args, &mut archive, &ids, now)?;
    archive.close()?;
    Ok(forgotten)
}

fn print_sum(invocation: &Invocation, args: &ForgetArgs, verb: &str, plan: &ForgetPlan) {
    if invocation.json || invocation.quiet {
        return;
    }
    let count = show::count(plan.snapshots.len(), "snapshot");
    if plan.snapshots.is_empty() {
        say!("{verb} {count}");
    } else if args.undo_days == 0 {
        say!("{verb} {count}, without undo");
    } else {
        let until = moment::show(plan.undo_until);
        say!(
            "{verb} {count}; `forget --undo` brings them back, at least until {until}; a `prune` after that frees their space"
        );
    }
}
