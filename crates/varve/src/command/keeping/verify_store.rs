//! `varve verify`

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::{Archive, Harm, Verified, verify, verify_blocks};
use varve_block::with_causes;
use varve_replica::{ClumpShare, ReplicaToAudit, audit};
use varve_session::{ReadReplica, StoreLocation, UsageError};
use varve_store::{FormatPage, Permission};
use varve_venti::Address;
use varve_world::Timestamp;

use super::lost_data;
use super::transfer_progress::TransferProgress;
use super::verify_vac;
use crate::arguments::VerifyArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, args: &VerifyArgs) -> Result<CommandOutcome> {
    if !args.archives.is_empty() {
        return verify_vac::run(invocation, &args.archives);
    }
    if let StoreLocation::Venti(address) = invocation.session.home()? {
        return venti(invocation, args, &address);
    }
    let (store, replica) = invocation.session.read_at(&invocation.session.store_path()?)?;
    let archive = Archive::open(store)?;
    let role = archive.store().role();
    let share = args.data_share(archive.store().world().clock.now());
    if share.is_some() {
        role.require(Permission::Read)
            .context("--data, --share and --since read every byte; without them, the codes of pages and seals are checked")?;
    }
    let can_read = role.allows(Permission::Read);
    let progress = cancellable_progress()?;
    let shown = ShownProgress::start("verifying", &progress, invocation.quiet);
    let verified = verify(&archive, share, &progress)?;
    drop(shown);
    let replica_faults = match &replica {
        Some(replica) => replica_faults(invocation, &archive, replica, &verified)?,
        None => Vec::new(),
    };
    if can_read {
        // Record the lost blocks as a hint, so that the next snapshots can heal them.
        archive.store().remember_lost(&verified.lost);
    }
    let page = archive.store().vault().format_page().context("cannot read FORMAT.md")?;
    let findings = Findings { verified, page, is_replica: replica.is_some(), replica_faults };
    if invocation.json {
        print_json(&findings, can_read);
    } else {
        print(invocation, args, &findings, can_read);
    }
    let is_well = findings.is_well() && page_fault(page).is_none();
    Ok(if is_well { CommandOutcome::Done } else { CommandOutcome::Damage })
}

/// Everything that was found in a store.
struct Findings {
    verified: Verified,
    page: FormatPage,
    /// The store was read in a replica.
    is_replica: bool,
    /// The faults of the replica in which the store was read, one sentence each.
    replica_faults: Vec<String>,
}

impl Findings {
    /// Returns true if no part of the log or of a snapshot is wrong.
    fn is_well(&self) -> bool {
        let Verified { damage, harm, losses, .. } = &self.verified;
        damage.is_empty() && harm.is_empty() && losses.is_empty() && self.replica_faults.is_empty()
    }
}

/// Returns the faults of a replica that the store in it does not show: an object that has lost its
/// end looks like the end of a shorter log.
fn replica_faults(
    invocation: &Invocation,
    archive: &Archive,
    read: &ReadReplica,
    verified: &Verified,
) -> Result<Vec<String>> {
    let (store, home) = (archive.store(), &read.home);
    let log = store.vault().log();
    let audited = ReplicaToAudit { replica: &home.replica, world: &home.world, store, log };
    let progress = cancellable_progress()?;
    let _shown = ShownProgress::start("verifying the objects", &progress, invocation.quiet);
    let audit = audit(audited, ClumpShare::NONE, &TransferProgress(Arc::clone(&progress)))?;
    let known: BTreeSet<_> =
        verified.damage.iter().map(|damage| (Some(damage.arena), damage.offset)).collect();
    let new = audit
        .findings
        .iter()
        .filter(|finding| finding.is_of_log() && !known.contains(&(finding.arena, finding.offset)));
    let is_older = read.is_older.then(|| "the replica is older than this machine knows it".to_owned());
    Ok(new.map(ToString::to_string).chain(is_older).collect())
}

/// Returns what is wrong with `FORMAT.md`: one word, and a sentence.
fn page_fault(page: FormatPage) -> Option<(&'static str, &'static str)> {
    match page {
        FormatPage::Missing => Some(("missing", "FORMAT.md is missing")),
        FormatPage::Altered => {
            Some(("altered", "FORMAT.md was altered: no program of this store has written it"))
        }
        FormatPage::Current | FormatPage::Earlier => None,
    }
}

/// Verifies a Venti server by its answers alone: whether all blocks of the snapshots are present,
/// and whether their bytes match their scores.
fn venti(invocation: &Invocation, args: &VerifyArgs, address: &Address) -> Result<CommandOutcome> {
    if args.share.is_some() || args.since.is_some() {
        bail!(UsageError(
            "--share and --since are for stores, which record when data was read: use --data to read every byte".into()
        ));
    }
    let (archive, blocks) = invocation.session.venti_snapshots(address)?;
    let progress = cancellable_progress()?;
    let shown = ShownProgress::start("verifying", &progress, invocation.quiet);
    let harm = verify_blocks(&*blocks, archive.snapshots(), args.data, &progress)?;
    let checked_bytes = progress.snapshot().bytes_done;
    drop(shown);
    let snapshot_count = archive.snapshots().len();
    if invocation.json {
        let harm: Vec<_> = harm.iter().map(harm_as_json).collect();
        say::record(
            "verified",
            json!({ "snapshots": snapshot_count, "checked_bytes": checked_bytes, "harm": harm }),
        );
    } else if !harm.is_empty() {
        print_harm(&harm);
        say!("{} harmed", show::count(harm.len(), "part"));
    } else if !invocation.quiet {
        let read = match args.data {
            true => format!("{} of their data read and checked", show::bytes(checked_bytes)),
            false => "all of their blocks exist".into(),
        };
        say!("all is well: {}, {read}", show::count(snapshot_count, "snapshot"));
    }
    Ok(if harm.is_empty() { CommandOutcome::Done } else { CommandOutcome::Damage })
}

fn print(invocation: &Invocation, args: &VerifyArgs, findings: &Findings, can_read: bool) {
    let Findings { verified, page, replica_faults, .. } = findings;
    if let Some((_, fault)) = page_fault(*page) {
        say!("{fault}");
        hint!("`varve repair` or the next snapshot writes FORMAT.md anew; no snapshot is harmed by it");
    }
    for fault in replica_faults {
        say!("{fault}");
    }
    for damage in &verified.damage {
        let reason = with_causes(&damage.kind);
        let place = format!("arena {}, offset {}", damage.arena, damage.offset);
        let line = if reason.starts_with("arena ") { reason } else { format!("{place}: {reason}") };
        say!("{line}");
    }
    // A replica has no next snapshot. Its objects tell whether their ends are missing.
    let ends = verified.unfinished.iter().filter(|_| !invocation.quiet && !findings.is_replica);
    for end in ends {
        say!(
            "arena {}, offset {}: an unfinished end, as a crash leaves it; the next snapshot cuts it off",
            end.arena,
            end.offset
        );
    }
    if !verified.without_parity.is_empty() && !invocation.quiet {
        say!(
            "{} without parity yet: each snapshot makes up for a part, and `varve repair --data` for all",
            show::count(verified.without_parity.len(), "arena")
        );
    }
    print_harm(&verified.harm);
    lost_data::print(&verified.losses);
    if !findings.is_well() {
        let lost = lost_data::summary(&verified.losses).map(|lost| format!(", {lost}")).unwrap_or_default();
        say!(
            "{} damaged, {} harmed{lost}",
            show::count(verified.damage.len() + replica_faults.len(), "place"),
            show::count(verified.harm.len(), "part")
        );
        print_hint(findings);
    } else if page_fault(*page).is_some() {
        // Not all is well.
    } else if !invocation.quiet {
        say!("{}", all_is_well(args, verified, can_read));
    }
}

/// Says that nothing is wrong, and what was not read.
fn all_is_well(args: &VerifyArgs, verified: &Verified, can_read: bool) -> String {
    let snapshots = show::count(verified.snapshot_count, "snapshot");
    let arenas = show::count(verified.arena_count, "arena");
    let blocks = show::count(verified.block_count, "block");
    if !can_read {
        return format!(
            "the codes of all pages and seals are correct: {arenas}, {blocks}; this key cannot read the data, so the data was not checked"
        );
    }
    let read = match (share_is_all(args), verified.oldest_read) {
        _ if !args.data && share_is_all(args) => "; contents not read: `verify --data` reads them".to_owned(),
        _ if verified.read_count == 0 => String::new(),
        (true, _) => format!(", {} read and checked", show::bytes(verified.checked_bytes)),
        (false, oldest) => format!(
            ", {} in {} read and checked; {}",
            show::bytes(verified.checked_bytes),
            show::count(verified.read_count, "arena"),
            match oldest {
                Some(oldest) => format!("all were read since {}", moment::show(oldest)),
                None => "some were never read".into(),
            }
        ),
    };
    format!("all is well: {snapshots}, {arenas}, {blocks}{read}")
}

fn print_hint(findings: &Findings) {
    let verified = &findings.verified;
    if !findings.replica_faults.is_empty() {
        hint!("`varve -s STORE verify --replica TARGET` compares the replica with the store itself");
    }
    if verified.snapshot_count > 0 {
        hint!(
            "all snapshots that `varve snapshots` lists and that are not named here can be restored; see `varve repair --help`"
        );
    }
    lost_data::print_hint(&verified.losses);
}

fn share_is_all(args: &VerifyArgs) -> bool {
    args.share.is_none() && args.since.is_none()
}

/// Prints the harm to snapshots. A file that did not change between snapshots has one line.
pub(super) fn print_harm(harm: &[Harm]) {
    let mut groups: Vec<Vec<&Harm>> = Vec::new();
    let mut known = BTreeMap::new();
    for harm in harm {
        let range = harm.range.as_ref().map(|range| (range.start, range.end));
        let part = (&harm.snapshot_name, &harm.path, range, harm.reason.to_string());
        let place = *known.entry(part).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(harm),
            None => groups.push(vec![harm]),
        }
    }
    for group in groups {
        say!("  harms: {}", describe(&group));
    }
}

/// Describes the same harm to some snapshots.
fn describe(harmed: &[&Harm]) -> String {
    let Some(harm) = harmed.first() else { return String::new() };
    let name = show::name(harm.snapshot_name.as_bytes());
    let path = if harm.path.is_empty() { String::new() } else { format!(":{}", show::name(&harm.path)) };
    let range =
        harm.range.as_ref().map_or(String::new(), |range| format!(" (bytes {}..{})", range.start, range.end));
    if harmed.len() == 1 {
        return format!("{} {name}{path}{range}: {}", &harm.snapshot.to_string()[..8], harm.reason);
    }
    let times = harmed.iter().map(|harm| harm.snapshot_time);
    let day = |time: Option<Timestamp>| {
        time.map(moment::show).unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
    };
    let (first, last) = (day(times.clone().min()), day(times.max()));
    let days = if first == last { format!("of {first}") } else { format!("from {first} to {last}") };
    format!("{name}{path}{range} in {} {days}: {}", show::count(harmed.len(), "snapshot"), harm.reason)
}

fn print_json(findings: &Findings, can_read: bool) {
    let Findings { verified, page, replica_faults, .. } = findings;
    let damage: Vec<_> = verified
        .damage
        .iter()
        .map(|damage| {
            json!({
                "arena": damage.arena.0,
                "offset": damage.offset,
                "reason": with_causes(&damage.kind),
                "withheld": damage.kind.is_withheld(),
                "blocks": damage.blocks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        })
        .collect();
    let unfinished: Vec<_> =
        verified.unfinished.iter().map(|end| json!({ "arena": end.arena.0, "offset": end.offset })).collect();
    let harm: Vec<_> = verified.harm.iter().map(harm_as_json).collect();
    let value = json!({
        "snapshots": verified.snapshot_count,
        "arenas": verified.arena_count,
        "blocks": verified.block_count,
        "checked_bytes": verified.checked_bytes,
        "arenas_read": verified.read_count,
        "all_read_since": verified.oldest_read.map(moment::rfc3339),
        "contents_checked": can_read,
        "damage": damage,
        "harm": harm,
        "lost": lost_data::as_json(&verified.losses),
        "unfinished": unfinished,
        "without_parity": verified.without_parity.len(),
        "replica_faults": replica_faults,
        "format_page": page_fault(*page).map(|(word, _)| word),
    });
    say::record("verified", value);
}

/// Formats a harm for programs.
pub(super) fn harm_as_json(harm: &Harm) -> serde_json::Value {
    let mut value = json!({
        "snapshot": harm.snapshot.to_string(),
        "name": harm.snapshot_name,
        "start": harm.range.as_ref().map(|range| range.start),
        "end": harm.range.as_ref().map(|range| range.end),
        "reason": harm.reason,
    });
    show::put_name(&mut value, "path", &harm.path);
    value
}
