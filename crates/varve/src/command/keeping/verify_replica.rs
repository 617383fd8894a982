//! `varve verify --replica`

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::json;
use varve_archive::{Archive, Catalog, Harm, harm_of};
use varve_block::with_causes;
use varve_content::Progress;
use varve_remote::{HiddenObjects, ObjectLock};
use varve_replica::{
    AuditReport, ClumpShare, ReplicaToAudit, ReplicateError, ReplicateOptions, ReplicationPlan,
    ReplicationSource, audit,
};
use varve_session::{History, NamedBy, lock_has_ended, lock_sentence, target};
use varve_store::{Store, StoreAccess};
use varve_world::World;

use super::copy_notes::CopyNotes;
use super::replicate::target_name;
use super::transfer_progress::TransferProgress;
use super::verify_store::{harm_as_json, print_harm};
use crate::arguments::VerifyArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{say, show};

/// The protection of the replica by its target, as far as the target tells.
struct TargetProtection {
    /// Objects that are kept, but no longer listed. Asked for only if something is missing.
    hidden: Option<HiddenObjects>,
    /// The lock of the replica's first object.
    lock: Option<ObjectLock>,
}

/// The result of comparing a replica with its store.
struct ReplicaComparison {
    history: History,
    behind_bytes: u64,
    complaints: Vec<String>,
}

pub fn run(invocation: &Invocation, args: &VerifyArgs, text: &str) -> Result<CommandOutcome> {
    let there = invocation.session.replica(text, NamedBy::User)?;
    let mut compared = match invocation.session.names_store() {
        true => Some(compare(invocation, text)?),
        false => None,
    };
    let address = target::shown(&target_name(text)?);
    // The text is only printed from here on, so it needs no password.
    let text = &target::shown(text);
    let secret = invocation.session.secret_of(&there.world, text)?;
    // These findings may explain why the replica does not open.
    let in_the_way = there.replica.in_the_way().iter().map(ToString::to_string);
    let complaints = compared.iter().flat_map(|compared| compared.complaints.iter().cloned());
    let known = in_the_way.chain(complaints).collect::<Vec<_>>().join("; ");
    let context = || match known.as_str() {
        "" => format!("cannot open the replica {text}"),
        known => format!("cannot open the replica {text}: {known}"),
    };
    let (_, log) = Store::unlock(&there.world, secret.as_ref()).with_context(context)?;
    let store = Store::open(there.world.clone(), secret.as_ref(), StoreAccess::Read, &mut |_| {})
        .with_context(context)?;
    let share = if args.data { ClumpShare::ALL } else { args.sample.unwrap_or(ClumpShare::NONE) };
    let progress = cancellable_progress()?;
    let shown = ShownProgress::start("verifying", &progress, invocation.quiet);
    let audited = ReplicaToAudit { replica: &there.replica, world: &there.world, store: &store, log: &log };
    let audit = audit(audited, share, &TransferProgress(Arc::clone(&progress)))?;
    if let Some(compared) = &mut compared {
        // A complaint about an object that the audit has reported is not repeated.
        let is_reported = |complaint: &String| {
            let objects = audit.findings.iter().filter_map(|finding| finding.object.as_ref());
            objects.into_iter().any(|object| complaint.starts_with(object.as_str()))
        };
        compared.complaints.retain(|complaint| !is_reported(complaint));
    }
    let history = compared.as_ref().map_or(History::Unknown, |compared| compared.history);
    let is_older = invocation.session.notice_rollback(&store, &there, history, text);
    let held = Catalog::load_of(&store, &store).ok();
    let held = held.map(|catalog| catalog.snapshots().iter().map(|snapshot| snapshot.id).collect());
    // Snapshots need to be walked only if the audit found something: intact objects lead only to
    // intact blocks.
    let (harm, unread) =
        if audit.findings.is_empty() { (Vec::new(), None) } else { harm(store, &audit, &progress) };
    drop(shown);
    let has_nothing = has_nothing(&audit, compared.as_ref());
    let is_complete = audit.findings.is_empty() && !has_nothing;
    let protection = TargetProtection {
        hidden: if is_complete { None } else { there.replica.target().hidden().unwrap_or_default() },
        lock: there.replica.oldest_lock().unwrap_or_default(),
    };
    if invocation.json {
        print_json(text, &audit, compared.as_ref(), &harm, &protection, is_older, has_nothing);
    } else {
        print(invocation, text, &audit, compared.as_ref(), &harm);
        print_protection(invocation, &protection);
    }
    if let Some(error) = unread {
        warning!("the harm cannot be determined: {error}");
    }
    let is_well = audit.findings.is_empty()
        && !is_older
        && !has_nothing
        && compared.as_ref().is_none_or(|compared| compared.complaints.is_empty());
    if compared.is_some()
        && let Some(notes) = own_notes(invocation)?
    {
        notes.verified(&address, held.filter(|_| is_well), share == ClumpShare::ALL);
    }
    Ok(if is_well { CommandOutcome::Done } else { CommandOutcome::Damage })
}

/// Returns the notes of the store of the replica, if its key may read.
fn own_notes(invocation: &Invocation) -> Result<Option<CopyNotes>> {
    let path = invocation.session.store_folder()?;
    let (world, name) = (World::real(&path), path.display().to_string());
    let secret = invocation.session.secret_of(&world, &name)?;
    Ok(CopyNotes::open(invocation, &world, &name, secret.as_ref()))
}

/// Reports whether the replica has no part of the log, although the store here is not known to be
/// empty. If every object was removed, no object is left that could be found damaged.
fn has_nothing(audit: &AuditReport, compared: Option<&ReplicaComparison>) -> bool {
    let is_empty_here = compared.is_some_and(|compared| compared.behind_bytes == 0);
    audit.segment_count == 0 && !is_empty_here
}

/// Compares a replica with its store.
fn compare(invocation: &Invocation, text: &str) -> Result<ReplicaComparison> {
    let path = invocation.session.store_folder()?;
    let world = World::real(&path);
    let name = path.display().to_string();
    let secret = invocation.session.secret_of(&world, &name)?;
    let (config, log) =
        Store::unlock(&world, secret.as_ref()).with_context(|| format!("cannot open the store {name}"))?;
    let source = ReplicationSource { world: &world, config: &config, log: &log };
    let there = invocation.session.target(text, NamedBy::User, None)?;
    let plan = match ReplicationPlan::new(source, &there, &ReplicateOptions::default()) {
        Ok(plan) => plan,
        Err(
            error @ (ReplicateError::Diverged { .. }
            | ReplicateError::Ahead { .. }
            | ReplicateError::ForeignObject { .. }),
        ) => {
            let history = match error {
                ReplicateError::Diverged { .. } => History::Other,
                ReplicateError::Ahead { .. } => History::Own,
                _ => History::Unknown,
            };
            return Ok(ReplicaComparison { history, behind_bytes: 0, complaints: vec![error.to_string()] });
        }
        // The audit finds the same object and goes on.
        Err(ReplicateError::InTheWay(_)) => {
            return Ok(ReplicaComparison {
                history: History::Unknown,
                behind_bytes: 0,
                complaints: Vec::new(),
            });
        }
        Err(error) => return Err(error.into()),
    };
    let mut complaints = Vec::new();
    if plan.lost_there.is_some() {
        complaints.push("it is older than when this machine last saw it".to_owned());
    }
    for wrong in &plan.wrong {
        let (object, bytes, expected) = (&wrong.object, wrong.bytes, wrong.expected);
        complaints.push(format!("{object}: it has {bytes} bytes, but should have {expected}"));
    }
    let wrong = plan.wrong_settings.iter();
    // The audit judges a page that is there.
    let planned = plan.settings.iter().filter(|setting| !(setting.replaces && setting.is_page()));
    for file in planned.map(|setting| &setting.file).chain(wrong) {
        complaints.push(format!("{file}: it is missing, or differs from the store's"));
    }
    Ok(ReplicaComparison { history: History::Own, behind_bytes: plan.bytes(), complaints })
}

/// Returns the harm of the findings, and the reason if it could not be determined completely.
fn harm(store: Store, audit: &AuditReport, progress: &Progress) -> (Vec<Harm>, Option<String>) {
    let lost: BTreeSet<_> =
        audit.findings.iter().flat_map(|finding| finding.blocks.iter().copied()).collect();
    match Archive::open(store) {
        Ok(archive) => match harm_of(archive.store(), archive.snapshots(), lost, usize::MAX, progress) {
            Ok(harm) => (harm, None),
            Err(error) => (Vec::new(), Some(with_causes(&error))),
        },
        Err(error) => (Vec::new(), Some(with_causes(&error))),
    }
}

fn print(
    invocation: &Invocation,
    text: &str,
    audit: &AuditReport,
    compared: Option<&ReplicaComparison>,
    harm: &[Harm],
) {
    for finding in &audit.findings {
        say!("{finding}");
    }
    for complaint in compared.iter().flat_map(|compared| &compared.complaints) {
        say!("{complaint}");
    }
    print_harm(harm);
    if !audit.findings.is_empty() {
        hint!(
            "`varve replicate {text}` uploads missing objects, and with --replace OBJECT damaged ones; remove there by hand all that belongs to no replica, or is in place of an object"
        );
    } else if has_nothing(audit, compared) {
        say!("the replica has no arenas, only settings");
        match compared {
            Some(_) => hint!("`varve replicate {text}` uploads all of the store again"),
            None => {
                hint!("`varve -s STORE verify --replica {text}` shows whether the store has more")
            }
        }
    } else if !invocation.quiet && compared.is_none_or(|compared| compared.complaints.is_empty()) {
        say!(
            "all is well: {} in {}, {}; {} of {} read and checked",
            show::count(audit.arena_count, "arena"),
            show::count(audit.segment_count, "object"),
            show::bytes(audit.segment_bytes),
            audit.checked_count,
            show::count(audit.clump_count, "clump")
        );
    }
    if let Some(compared) = compared.filter(|compared| compared.behind_bytes > 0 && !invocation.quiet) {
        say!("it is behind the store by {}", show::bytes(compared.behind_bytes));
    }
}

fn print_protection(invocation: &Invocation, protection: &TargetProtection) {
    if let Some(hidden) = &protection.hidden {
        warning!("{hidden}");
    }
    match &protection.lock {
        Some(lock) if lock_has_ended(lock) => warning!("{}", lock_sentence(lock)),
        Some(lock) if !invocation.quiet => say!("{}", lock_sentence(lock)),
        _ => {}
    }
}

fn print_json(
    text: &str,
    audit: &AuditReport,
    compared: Option<&ReplicaComparison>,
    harm: &[Harm],
    protection: &TargetProtection,
    is_older: bool,
    has_nothing: bool,
) {
    let findings: Vec<_> = audit
        .findings
        .iter()
        .map(|finding| {
            json!({
                "object": finding.object.as_ref().map(ToString::to_string),
                "arena": finding.arena.map(|arena| arena.0),
                "offset": finding.offset,
                "reason": with_causes(&finding.kind),
                "blocks": finding.blocks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        })
        .collect();
    let value = json!({
        "target": text,
        "arenas": audit.arena_count,
        "objects": audit.segment_count,
        "bytes": audit.segment_bytes,
        "clumps": audit.clump_count,
        "checked_clumps": audit.checked_count,
        "checked_bytes": audit.checked_bytes,
        "findings": findings,
        "harm": harm.iter().map(harm_as_json).collect::<Vec<_>>(),
        "older_than_seen": is_older,
        "has_nothing": has_nothing,
        "behind_bytes": compared.map(|compared| compared.behind_bytes),
        "compared": compared.map(|compared| &compared.complaints),
        "hidden": protection.hidden.as_ref().map(|hidden| hidden.count),
        "hidden_since": protection.hidden.as_ref().map(|hidden| &hidden.since),
        "oldest_lock": protection.lock.as_ref().map(|lock| match lock {
            ObjectLock::Until(day) => day.as_str(),
            ObjectLock::LegalHold => "legal hold",
        }),
    });
    say::record("replica_verified", value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_without_objects_is_not_well() {
        let compared =
            |behind_bytes| ReplicaComparison { history: History::Own, behind_bytes, complaints: Vec::new() };
        let (empty, full) =
            (AuditReport::default(), AuditReport { segment_count: 1, ..AuditReport::default() });
        assert!(has_nothing(&empty, None));
        assert!(has_nothing(&empty, Some(&compared(700))));
        assert!(!has_nothing(&empty, Some(&compared(0))), "the store has nothing either");
        assert!(!has_nothing(&full, None));
    }
}
