//! `varve status`: the promises of a configuration, judged from the archive.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use varve_archive::Archive;
use varve_block::with_causes;
use varve_session::{CommandSession, StoreLocation};
use varve_watch::{
    ConfiguredReplica, ConfiguredStore, JudgedPromise, PromiseKind, PromiseState, age, judge_age, judge_room,
    show_time_span,
};
use varve_world::{Clock, RealClock, Timestamp};

use super::config_file::LoadedConfig;
use super::facts::{self, SnapshotFact, StoreFacts};
use super::job_history::Histories;
use super::jobs::{is_of_source, is_series_of};
use super::state_folder::StateFolder;
use crate::arguments::StatusArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// The growth of a store is taken from this time.
const GROWTH_TIME: Duration = Duration::from_secs(60 * 86_400);
/// A shorter history says too little about growth.
const GROWTH_TIME_MIN: Duration = Duration::from_secs(86_400);
/// A snapshot that is dated later than this shows a wrong clock.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);
/// A series without a source is noted once its newest snapshot is older than this.
const ORPHAN_AGE: Duration = Duration::from_secs(7 * 86_400);

pub fn run(invocation: &Invocation, args: &StatusArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref())?;
    let state = StateFolder::to_read(&loaded.state);
    let judge =
        PromiseJudge { invocation, loaded: &loaded, histories: state.histories(), now: RealClock.now() };
    let mut judged = Vec::new();
    for (name, store) in &loaded.config.stores {
        judged.extend(judge.store(name, store));
    }
    judged.sort_by(|a, b| (a.state, a.kind, &a.subject).cmp(&(b.state, b.kind, &b.subject)));
    print(invocation, &state, &judged);
    let has = |state| judged.iter().any(|promise| promise.state == state);
    Ok(match (has(PromiseState::Broken), has(PromiseState::Unknown)) {
        (true, _) => CommandOutcome::PromiseBroken,
        (false, true) => CommandOutcome::Failed,
        (false, false) => CommandOutcome::Done,
    })
}

struct PromiseJudge<'a> {
    invocation: &'a Invocation,
    loaded: &'a LoadedConfig,
    /// The state of replicas that are away now, as earlier runs saw it.
    histories: Histories,
    now: Timestamp,
}

impl PromiseJudge<'_> {
    /// Judges the promises about a store, its sources and its replicas.
    fn store(&self, name: &str, store: &ConfiguredStore) -> Vec<JudgedPromise> {
        let opened = self.loaded.session(self.invocation, store).and_then(|session| {
            let found = facts::read(&session)?;
            Ok((session, found))
        });
        match opened {
            Ok((session, Some(found))) => self.open_store(name, &session, &found),
            Ok((_, None)) => {
                let text = "this key may not read: ask on a machine whose key may";
                self.unreadable(name, PromiseState::Unknown, text)
            }
            Err(error) => self.unreadable(name, PromiseState::Broken, &with_causes(error.as_ref())),
        }
    }

    fn open_store(&self, name: &str, session: &CommandSession, found: &StoreFacts) -> Vec<JudgedPromise> {
        let limits = &self.loaded.config.promises;
        let mut judged = self.sources(name, found);
        judged.push(whole(name, found));
        judged.push(self.clock(name, found));
        if let Some(limit) = limits.verified_within {
            let oldest = found.read_since.iter().copied().min().unwrap_or(self.now);
            let text = ("the part that was read longest ago was read or written", "");
            judged.push(judge_age(PromiseKind::VerifiedWithin, name, limit, Some(oldest), self.now, text));
        }
        if let Some(limit) = limits.reclaimed_within {
            let waiting = found.undo_ends.iter().copied().filter(|end| *end <= self.now).min();
            let kind = PromiseKind::ReclaimedWithin;
            judged.push(match waiting {
                Some(since) => {
                    let text = ("space has waited to be freed since its undo ended", "");
                    judge_age(kind, name, limit, Some(since), self.now, text)
                }
                None => kept(kind, name, Some(limit), "nothing waits to be freed"),
            });
        }
        if let Some(limit) = limits.room_for {
            judged.extend(self.room(name, session, found, limit));
        }
        if let Some(limit) = limits.replica_within {
            let own = self.loaded.config.replicas.iter().filter(|(_, replica)| replica.of == name);
            judged.extend(own.map(|(name, replica)| self.replica(name, replica, session, found, limit)));
        }
        judged
    }

    /// Judges a store whose facts cannot be read, and the age of the snapshots in it. Its other
    /// promises are not listed: that of the store stands for them.
    fn unreadable(&self, name: &str, state: PromiseState, text: &str) -> Vec<JudgedPromise> {
        let config = &self.loaded.config;
        let judged = |kind, subject: &str, limit, text: &str| JudgedPromise {
            kind,
            subject: subject.to_owned(),
            limit,
            state,
            figure: None,
            text: text.to_owned(),
        };
        let mut all = vec![judged(PromiseKind::Store, name, None, text)];
        for (source_name, source) in config.sources.iter().filter(|(_, source)| source.store == name) {
            if let Some(limit) = source.snapshot_within.or(config.promises.snapshot_within) {
                let text = format!("the store {name} cannot be read");
                all.push(judged(PromiseKind::SnapshotWithin, source_name, Some(limit), &text));
            }
        }
        all
    }

    fn sources(&self, store_name: &str, found: &StoreFacts) -> Vec<JudgedPromise> {
        let config = &self.loaded.config;
        let mut judged = Vec::new();
        for (name, source) in config.sources.iter().filter(|(_, source)| source.store == store_name) {
            let Some(limit) = source.snapshot_within.or(config.promises.snapshot_within) else { continue };
            let is_own = |one: &&SnapshotFact| is_of_source(self.loaded, name, source, one);
            let own = found.snapshots.iter().filter(is_own);
            let newest = own.map(|snapshot| snapshot.time).filter(|time| *time <= self.now).max();
            let text = ("the newest snapshot was taken", "there is no snapshot");
            judged.push(judge_age(PromiseKind::SnapshotWithin, name, limit, newest, self.now, text));
        }
        self.note_orphans(store_name, found);
        judged
    }

    /// Notes the series of this machine that no source continues.
    fn note_orphans(&self, store_name: &str, found: &StoreFacts) {
        let is_continued = |series: &str| {
            let sources = self.loaded.config.sources.iter();
            let mut own = sources.filter(|(_, source)| source.store == store_name);
            own.any(|(name, source)| is_series_of(self.loaded, name, source, series))
        };
        let own = found.snapshots.iter().filter(|snapshot| snapshot.host == self.loaded.host);
        let names: BTreeSet<_> = own.map(|snapshot| snapshot.name.as_str()).collect();
        for series in names.into_iter().filter(|series| !is_continued(series)) {
            let times = found.snapshots.iter().filter(|snapshot| snapshot.name == series);
            let newest = times.map(|snapshot| snapshot.time).max().unwrap_or(self.now);
            if age(newest, self.now) >= ORPHAN_AGE {
                let (series, ago) = (show::name(series.as_bytes()), show_time_span(age(newest, self.now)));
                remark!(
                    "varve: no source continues {series} in {store_name}: its newest snapshot is {ago} old"
                );
            }
        }
    }

    /// Snapshots from the future show that the clock was wrong, or is.
    fn clock(&self, name: &str, found: &StoreFacts) -> JudgedPromise {
        let newest = found.snapshots.iter().max_by_key(|snapshot| snapshot.time);
        match newest.map(|snapshot| (snapshot, age(self.now, snapshot.time))) {
            Some((snapshot, ahead)) if ahead > CLOCK_TOLERANCE => {
                let (series, time) = (show::name(snapshot.name.as_bytes()), moment::show(snapshot.time));
                let text = format!(
                    "{series} has a snapshot of {time}, {} ahead of this clock: the clock is wrong, or was",
                    show_time_span(ahead)
                );
                broken(PromiseKind::Clock, name, Some(CLOCK_TOLERANCE), &text)
            }
            _ => kept(PromiseKind::Clock, name, Some(CLOCK_TOLERANCE), "no snapshot is from the future"),
        }
    }

    fn room(
        &self,
        name: &str,
        session: &CommandSession,
        found: &StoreFacts,
        limit: Duration,
    ) -> Option<JudgedPromise> {
        let Ok(StoreLocation::Folder(folder)) = session.home() else { return None };
        let free = match rustix::fs::statvfs(&folder) {
            Ok(free) => free.f_bavail.saturating_mul(free.f_frsize),
            Err(error) => {
                return Some(broken(
                    PromiseKind::RoomFor,
                    name,
                    Some(limit),
                    &format!("the free space is not known: {error}"),
                ));
            }
        };
        let past = found.snapshots.iter().filter(|snapshot| snapshot.time <= self.now);
        let oldest = past.clone().map(|snapshot| snapshot.time).min().unwrap_or(self.now);
        let span = age(oldest, self.now).clamp(GROWTH_TIME_MIN, GROWTH_TIME);
        let recent = past.filter(|snapshot| age(snapshot.time, self.now) <= span);
        let grown = recent.fold(0_u64, |sum, snapshot| sum.saturating_add(snapshot.stored_bytes));
        Some(judge_room(name, limit, free, grown, span))
    }

    /// Judges a replica by the oldest snapshot of the store that it lacks.
    fn replica(
        &self,
        name: &str,
        replica: &ConfiguredReplica,
        session: &CommandSession,
        found: &StoreFacts,
        limit: Duration,
    ) -> JudgedPromise {
        let kind = PromiseKind::ReplicaWithin;
        let opened = session
            .read_store_at(Path::new(&replica.at))
            .and_then(|store| Ok(facts::snapshots(&Archive::open(store)?)));
        let past = found.snapshots.iter().filter(|snapshot| snapshot.time <= self.now);
        let lacking: Vec<Timestamp> = match (&opened, self.histories.replica_state(name)) {
            (Ok(there), _) => {
                let there: BTreeSet<_> = there.iter().map(|snapshot| snapshot.id).collect();
                past.filter(|snapshot| !there.contains(&snapshot.id)).map(|snapshot| snapshot.time).collect()
            }
            (Err(_), Some(known)) => {
                past.filter(|snapshot| snapshot.time > known).map(|snapshot| snapshot.time).collect()
            }
            (Err(error), None) => {
                let text = format!("it was never brought up to date: {}", with_causes(error.as_ref()));
                return broken(kind, name, Some(limit), &text);
            }
        };
        let away = match &opened {
            Ok(_) => String::new(),
            Err(_) => "; it cannot be reached now".to_owned(),
        };
        let mut judged = match lacking.iter().copied().min() {
            None => kept(kind, name, Some(limit), "it has every snapshot"),
            Some(oldest) => {
                let lacks = format!("it lacks {}, the first taken", show::count(lacking.len(), "snapshot"));
                judge_age(kind, name, limit, Some(oldest), self.now, (&lacks, ""))
            }
        };
        judged.text.push_str(&away);
        judged
    }
}

/// Judges whether the store is whole, as far as is known.
fn whole(name: &str, found: &StoreFacts) -> JudgedPromise {
    let text = match (found.damaged_arena_count, found.lost_block_count) {
        (0, 0) => return kept(PromiseKind::Store, name, None, "no damage is known"),
        (damaged, 0) => format!("{} damaged", show::count(damaged, "arena")),
        (0, lost) => format!("{} lost", show::count(lost, "block")),
        (damaged, lost) => {
            format!("{} damaged, {} lost", show::count(damaged, "arena"), show::count(lost, "block"))
        }
    };
    broken(PromiseKind::Store, name, None, &format!("{text}: `varve repair` mends it"))
}

fn kept(kind: PromiseKind, subject: &str, limit: Option<Duration>, text: &str) -> JudgedPromise {
    let (subject, text) = (subject.to_owned(), text.to_owned());
    JudgedPromise { kind, subject, limit, state: PromiseState::Kept, figure: None, text }
}

fn broken(kind: PromiseKind, subject: &str, limit: Option<Duration>, text: &str) -> JudgedPromise {
    JudgedPromise { state: PromiseState::Broken, ..kept(kind, subject, limit, text) }
}

fn print(invocation: &Invocation, state: &StateFolder, judged: &[JudgedPromise]) {
    for promise in judged {
        let word = match promise.state {
            PromiseState::Broken => "BROKEN",
            PromiseState::Unknown => "unknown",
            PromiseState::Kept => "ok",
        };
        // The run log only adds a reason. It never decides.
        let reason = match (promise.kind, promise.state) {
            (PromiseKind::SnapshotWithin, PromiseState::Broken) => last_failure(state, &promise.subject),
            _ => None,
        };
        if invocation.json {
            let value = json!({
                "promise": promise.kind.name(),
                "subject": promise.subject,
                "state": word.to_lowercase(),
                "limit_seconds": promise.limit.map(|limit| limit.as_secs()),
                "figure_seconds": promise.figure.map(|figure| figure.as_secs()),
                "message": promise.text,
                "last_failure": reason,
            });
            say::record("promise", value);
            continue;
        }
        if invocation.quiet && promise.state == PromiseState::Kept {
            continue;
        }
        let limit = promise.limit.map(show_time_span).unwrap_or_default();
        let reason = reason.map(|reason| format!(" (last failure: {reason})")).unwrap_or_default();
        say!(
            "{word:<8} {:<17} {limit:<8} {:<16} {}{reason}",
            promise.kind.name(),
            promise.subject,
            show::plain(&promise.text)
        );
    }
}

/// Returns the message of the newest attempt at a snapshot, if it failed.
fn last_failure(state: &StateFolder, source: &str) -> Option<String> {
    let line = state.last_logged(&format!("snapshot {source}"))?;
    let has_failed = line["outcome"] != "done" && line["outcome"] != "gaps";
    has_failed.then(|| line["message"].as_str().map(show::plain)).flatten()
}
