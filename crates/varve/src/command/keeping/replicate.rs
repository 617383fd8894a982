//! `varve replicate`

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Error, Result, bail};
use serde_json::json;
use varve_block::with_causes;
use varve_daily::usual_replicas;
use varve_remote::Target;
use varve_replica::{
    DamagedInStore, RememberedTargets, ReplicateOptions, Replicated, ReplicationPlan, ReplicationSource,
    SegmentName, WrongLength,
};
use varve_session::{NamedBy, UsageError, WithHint, is_lock_free, leads_into, target};
use varve_store::{Permission, Secret, Store};
use varve_world::{FileName, RealWorkers, World};

use super::copy_notes::CopyNotes;
use super::replica_shrinking;
use super::replication_run::{ReplicationRun, replication_hint};
use super::transfer_progress::TransferProgress;
use super::upload_pace;
use crate::arguments::ReplicateArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{complaint, say, show};

/// The most plans of one replication while a collector replaces arenas. It replaces each at most
/// once in a run.
const PLANS_MAX: usize = 64;

pub fn run(invocation: &Invocation, args: &ReplicateArgs) -> Result<CommandOutcome> {
    let path = invocation.session.store_folder()?;
    let world = World::real(&path);
    let name = path.display().to_string();
    let options = options(args)?;
    let mut remembered = RememberedTargets::read(world.storage.as_ref())?;
    let (targets, named_by) = match args.targets.as_slice() {
        [] if remembered.targets.is_empty() => (configured(&path), NamedBy::User),
        [] => (remembered.targets.clone(), NamedBy::Store),
        named => (named.to_vec(), NamedBy::User),
    };
    if targets.is_empty() {
        bail!(UsageError(
            "no target is given, and the configuration has no replica of this store: name one, or remember one with --remember"
                .into()
        ));
    }
    let secret = invocation.session.secret_of(&world, &name)?;
    if let Some(secret) = &secret {
        require_permission(invocation, args, secret)?;
    }
    let notes = match args.dry_run {
        true => None,
        false => CopyNotes::open(invocation, &world, &name, secret.as_ref()),
    };
    let context = || format!("cannot open the store {name}");
    let (config, log) = Store::unlock(&world, secret.as_ref()).with_context(context)?;
    let source = ReplicationSource { world: &world, config: &config, log: &log };
    let progress = cancellable_progress()?;
    let run = ReplicationRun { invocation, args, source, secret: secret.as_ref(), options, progress };
    let mut outcome = CommandOutcome::Done;
    for text in &targets {
        // The failure of one target must not keep the others from being updated.
        let mut is_up_to_date = false;
        let done = target_name(text).and_then(|text| {
            require_elsewhere(&path, &text)?;
            // Open the target first, so that an invalid one is not remembered.
            let there =
                invocation.session.target(&text, named_by, upload_pace::of(args.limit_rate.as_ref()))?;
            if args.remember && !args.dry_run {
                remembered.add(world.storage.as_ref(), &text)?;
            }
            let is_free = || is_lock_free(&path, "replicate.lock");
            let shown = target::shown(&text);
            let done = invocation
                .session
                .until_free(Some(&is_free), || one(&run, &there, &shown, &mut is_up_to_date))?;
            if let Some(notes) = notes.as_ref().filter(|_| done == CommandOutcome::Done) {
                notes.brought_up_to_date(&shown);
            }
            Ok(done)
        });
        match done.map_err(|error| match is_up_to_date {
            true => error.context(format!("{} keeps its earlier generations", target::shown(text))),
            false => not_up_to_date(error, text),
        }) {
            Ok(done) => outcome = outcome.max(done),
            Err(error) if targets.len() == 1 || run.progress.is_cancelled() => return Err(error),
            Err(error) => {
                complaint::print(&error);
                outcome = outcome.max(CommandOutcome::Failed);
            }
        }
    }
    Ok(outcome)
}

/// Returns the replicas that the usual configuration has for a store.
fn configured(store: &Path) -> Vec<String> {
    let absolute = std::path::absolute(store).unwrap_or_else(|_| store.to_owned());
    let own = usual_replicas().into_iter().filter(|replica| Path::new(&replica.store) == absolute);
    own.map(|replica| replica.at).collect()
}

/// The error for a target that was not updated.
fn not_up_to_date(error: Error, text: &str) -> Error {
    if target::is_named_by(&error, text) {
        return error.context("not brought up to date");
    }
    error.context(format!("{} was not brought up to date", target::shown(text)))
}

/// Requires a key that may destroy for changes and removals at a target. Keys that only add are for
/// machines that an attacker may take over.
fn require_permission(invocation: &Invocation, args: &ReplicateArgs, secret: &Secret) -> Result<()> {
    if args.replaced.is_empty() && !args.delete_extra_keys && args.drop_superseded.is_none() {
        return Ok(());
    }
    let role = invocation.session.keyring()?.unlock(secret)?.entry.role;
    role.require(if args.delete_extra_keys { Permission::ManageKeys } else { Permission::Destroy })?;
    Ok(())
}

/// Makes the name of a folder absolute before it is remembered, because the next run may start in
/// another folder.
pub(super) fn target_name(text: &str) -> Result<String> {
    if target::is_url(text) {
        return Ok(text.to_owned());
    }
    let path = std::path::absolute(text)?;
    path.to_str().map(str::to_owned).with_context(|| format!("{text}: the path of a folder must be UTF-8"))
}

/// Refuses a target inside the store's folder: that copy would be lost with the store, and would be
/// mistaken for a part of it.
fn require_elsewhere(store: &Path, text: &str) -> Result<()> {
    if target::folder_of(text).is_some_and(|folder| leads_into(&folder, store)) {
        bail!("{text} is in the folder of the store itself: choose another place, best on another disk");
    }
    Ok(())
}

fn options(args: &ReplicateArgs) -> Result<ReplicateOptions> {
    if !(1 << 20..=1 << 30).contains(&args.segment_size) {
        bail!(UsageError(format!("--segment-size {}: from 1M to 1G", args.segment_size)));
    }
    let replace = args.replaced.iter().map(|name| FileName::new(name)).collect::<Result<_, _>>()?;
    let delete_extra_keys = args.delete_extra_keys;
    Ok(ReplicateOptions {
        segment_bytes: args.segment_size,
        replace,
        delete_extra_keys,
        recreate: args.recreate,
    })
}

/// Sets `is_up_to_date` once everything is uploaded, before anything is removed.
fn one(
    run: &ReplicationRun<'_>,
    there: &Arc<dyn Target>,
    text: &str,
    is_up_to_date: &mut bool,
) -> Result<CommandOutcome> {
    let plan = ReplicationPlan::new(run.source, there, &run.options).with_hint(replication_hint)?;
    let outcome = report_plan(run.invocation, run.args, &plan, text);
    if run.args.dry_run {
        print_dry_run(run.invocation, &plan, text);
        if let Some(age) = run.args.drop_superseded {
            replica_shrinking::print_dry_run(run, there, text, &plan, age);
        }
        return Ok(outcome);
    }
    let (done, of_upload) = bring_up_to_date(run, there, text, plan)?;
    let outcome = outcome.max(of_upload);
    *is_up_to_date = true;
    match run.args.drop_superseded {
        Some(age) => Ok(outcome.max(replica_shrinking::run(run, there, text, age, done)?)),
        None => Ok(outcome),
    }
}

/// Applies the plan. If a collector replaces an arena meanwhile, goes on with a new plan.
fn bring_up_to_date(
    run: &ReplicationRun<'_>,
    there: &Arc<dyn Target>,
    text: &str,
    mut plan: ReplicationPlan,
) -> Result<(Replicated, CommandOutcome)> {
    let ReplicationRun { invocation, args, source, options, progress, .. } = run;
    let (mut object_count, mut uploaded_bytes) = (0, 0);
    let mut plan_count = 0;
    let (done, present, planned, wrong) = loop {
        let (present, planned) = (plan.present_bytes, plan.damaged.len());
        let wrong: Vec<_> = left_wrong(args, &plan)
            .map(|wrong| &wrong.object)
            .chain(&plan.wrong_settings)
            .map(ToString::to_string)
            .collect();
        let shown = ShownProgress::start(text, progress, invocation.quiet);
        let workers = RealWorkers::new(usize::from(args.jobs));
        let done = plan.apply(*source, there, options, &workers, &TransferProgress(Arc::clone(progress)));
        drop(shown);
        let mut done = done.with_hint(replication_hint)?;
        object_count += done.object_count;
        uploaded_bytes += done.uploaded_bytes;
        plan_count += 1;
        if !done.is_outdated {
            let present = (present + done.uploaded_bytes).saturating_sub(uploaded_bytes);
            (done.object_count, done.uploaded_bytes) = (object_count, uploaded_bytes);
            break (done, present, planned, wrong);
        }
        if plan_count == PLANS_MAX {
            bail!(
                "the log was changed during each of {PLANS_MAX} attempts: try again when `varve gc` has ended"
            );
        }
        plan = done.plan_again(*source, there, options).with_hint(replication_hint)?;
    };
    for damage in &done.damaged[planned..] {
        print_damage(damage);
    }
    let is_damaged = !done.damaged.is_empty();
    if is_damaged {
        hint!("`varve verify` shows what that harms; everything else was replicated");
    }
    if !wrong.is_empty() {
        hint!(
            "`varve verify --replica {text}` shows what is still missing there; `--replace OBJECT` uploads it again"
        );
    }
    print_done(invocation, &done, text, present, &wrong);
    Ok((done, if is_damaged { CommandOutcome::Damage } else { CommandOutcome::Done }))
}

/// Returns the objects of a wrong length that are not replaced.
fn left_wrong<'a>(
    args: &'a ReplicateArgs,
    plan: &'a ReplicationPlan,
) -> impl Iterator<Item = &'a WrongLength> {
    plan.wrong.iter().filter(|wrong| !args.replaced.contains(&wrong.object.to_string()))
}

/// Reports the findings of the plan before anything is done.
fn report_plan(
    invocation: &Invocation,
    args: &ReplicateArgs,
    plan: &ReplicationPlan,
    text: &str,
) -> CommandOutcome {
    let mut outcome = CommandOutcome::Done;
    if plan.lost_there.is_some() && !args.recreate {
        warning!(
            "{text} is older than when this machine last saw it: it was emptied, put back to an older state, or changed. The missing objects are uploaded again"
        );
        outcome = CommandOutcome::Damage;
    }
    for damage in &plan.damaged {
        print_damage(damage);
        outcome = CommandOutcome::Damage;
    }
    for (arena, offset) in plan.unfinished.iter().filter(|_| !invocation.quiet) {
        warning!(
            "arena {arena}, offset {offset}: an unfinished end, as a crash leaves it, is not replicated; the next snapshot cuts it off"
        );
    }
    for arena in &plan.missing_here {
        warning!("arena {arena} is missing here; the replica has it");
        outcome = CommandOutcome::Damage;
    }
    for wrong in left_wrong(args, plan) {
        warning!(
            "{} at the replica has {} bytes, but should have {}; the missing part is uploaded beside it if possible",
            wrong.object,
            wrong.bytes,
            wrong.expected
        );
        outcome = CommandOutcome::Damage;
    }
    for file in &plan.wrong_settings {
        warning!("{file} at the replica differs from the store's: --replace {file} uploads it again");
        outcome = CommandOutcome::Damage;
    }
    for stray in plan.strangers.iter().filter(|file| SegmentName::of_file(file).is_some()) {
        warning!("{stray} at the replica does not belong to this store: remove it there by hand");
        outcome = CommandOutcome::Damage;
    }
    if !args.delete_extra_keys && !invocation.quiet {
        for key in &plan.extra_keys {
            warning!(
                "{key} still opens the replica, but the store no longer has it (--delete-extra-keys removes it)"
            );
        }
    }
    outcome
}

fn print_damage(damage: &DamagedInStore) {
    let reason = with_causes(&damage.reason);
    warning!("this store is damaged, and the damaged part was not replicated: {reason}");
}

fn print_dry_run(invocation: &Invocation, plan: &ReplicationPlan, text: &str) {
    let settings = plan.settings.iter().map(|setting| setting.file.to_string());
    let segments = plan.segments.iter().map(|segment| segment.name.file_name().to_string());
    let objects: Vec<_> = settings.chain(segments).collect();
    if invocation.json {
        say::record("replication_plan", json!({ "target": text, "objects": objects, "bytes": plan.bytes() }));
        return;
    }
    for object in &objects {
        say!("{object}");
    }
    if !invocation.quiet {
        let objects = show::count(objects.len() as u64, "object");
        say!("{objects} would be uploaded to {text}, {}", show::bytes(plan.bytes()));
    }
}

fn print_done(invocation: &Invocation, done: &Replicated, text: &str, present: u64, wrong: &[String]) {
    let total = present + done.uploaded_bytes;
    if invocation.json {
        let value = json!({
            "target": text,
            "objects": done.object_count,
            "uploaded_bytes": done.uploaded_bytes,
            "total_bytes": total,
            "damaged_arenas": done.damaged.iter().map(|damage| damage.arena.0).collect::<Vec<_>>(),
            "wrong_objects": wrong,
            "removed_keys": done.removed_keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        say::record("replicated", value);
    } else if !invocation.quiet {
        say!(
            "{text} is up to date{}: {} uploaded in {}, {} in all",
            if wrong.is_empty() { "" } else { ", except for the objects above" },
            show::bytes(done.uploaded_bytes),
            show::count(done.object_count, "object"),
            show::bytes(total)
        );
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use varve_session::{KeyOptions, ReplicaReads};

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn what_failed_names_its_place_once_and_no_password() {
        let place = "webdav+http://u:hunter2@h/x";
        let failed = not_up_to_date(anyhow::anyhow!("webdav+http://u@h/x: failed"), place);
        assert_eq!(format!("{failed:#}"), "not brought up to date: webdav+http://u@h/x: failed");
        let failed = not_up_to_date(anyhow::anyhow!("config.toml: failed"), place);
        assert_eq!(
            format!("{failed:#}"),
            "webdav+http://u@h/x was not brought up to date: config.toml: failed"
        );
        let arguments = Arguments::parse_from(["varve", "stats"]);
        let invocation = Invocation::new(
            &arguments.global,
            ReplicaReads::Cached,
            Err("none".into()),
            KeyOptions::default(),
        );
        let place = "foo://u:hunter2@h";
        let failed =
            not_up_to_date(invocation.session.target(place, NamedBy::User, None).err().unwrap(), place);
        assert!(format!("{failed:#}").starts_with("not brought up to date: foo://...@h: "), "{failed:#}");
    }
}
