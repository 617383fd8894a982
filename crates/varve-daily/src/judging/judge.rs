//! Judges the promises about a store, its sources and its replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use varve_archive::SnapshotId;
use varve_block::visible;
use varve_session::moment;
use varve_world::Timestamp;

use super::clock::{CLOCK_TOLERANCE, ServerClock, server_clock_fault};
use super::continued::ContinuedStore;
use super::drill_record::Drill;
use super::facts::{SnapshotFact, StoreFacts};
use super::series::{is_of_source, is_series_of};
use super::unread::{UNREAD_NIGHTS, UnreadFiles};
use crate::config::{ConfiguredReplica, ConfiguredSource, DailyConfig, ReplicaTrigger};
use crate::promise::{JudgedPromise, PromiseKind, PromiseState, judge_age, judge_room};
use crate::timing::{age, show_time_span};

/// The growth of a store is taken from this time.
const GROWTH_TIME: Duration = Duration::from_secs(60 * 86_400);
/// A shorter history says too little about growth.
const GROWTH_TIME_MIN: Duration = Duration::from_secs(86_400);

/// The settings and the moment by which promises are judged.
#[derive(Clone, Copy)]
pub struct JudgeContext<'a> {
    pub config: &'a DailyConfig,
    /// The name of this machine in snapshots.
    pub host: &'a str,
    pub now: Timestamp,
}

/// A store as it is found.
#[derive(Debug, Clone)]
pub enum StoreView {
    Open(Box<OpenStoreView>),
    /// The store opens, but its key may not read.
    WriteOnly(WriteOnlyView),
    /// The store does not open.
    Closed {
        error: String,
    },
}

/// The surroundings of a store whose key may not read.
#[derive(Debug, Clone, Default)]
pub struct WriteOnlyView {
    /// The sources whose folder has no entries now, although their last snapshot by this machine
    /// had as many.
    pub emptied_sources: BTreeMap<String, u64>,
    pub server_clocks: Vec<ServerClock>,
    /// The time for which no run has looked for due jobs, if it is too long.
    pub unlooked_for: Option<Duration>,
}

/// An open store, and its surroundings.
#[derive(Debug, Clone, Default)]
pub struct OpenStoreView {
    pub facts: StoreFacts,
    /// The files that could not be read lately, by source.
    pub unread: BTreeMap<String, UnreadFiles>,
    /// The free bytes of its file system, or why they are not known; `None` at a server.
    pub free_bytes: Option<Result<u64, String>>,
    /// The sources whose folder has no entries now.
    pub empty_sources: BTreeSet<String>,
    /// The number of snapshots of each source that its rules of retention had dropped already as
    /// long ago as forgotten data may wait.
    pub overdue: BTreeMap<String, usize>,
    pub server_clocks: Vec<ServerClock>,
    /// The time for which no run has looked for due jobs, if it is too long.
    pub unlooked_for: Option<Duration>,
    /// Its replicas by their names in the configuration.
    pub replicas: BTreeMap<String, ReplicaView>,
}

/// A replica as it is found.
#[derive(Debug, Clone)]
pub struct ReplicaView {
    pub held: HeldSnapshots,
    /// Why it does not open now; `None` if it does.
    pub error: Option<String>,
    /// True if its place can be reached, and holds no copy.
    pub is_gone: bool,
    /// True if it has not answered in time.
    pub is_silent: bool,
    /// How long its target protects its first object; `None` if it does not, or does not tell.
    pub lock: Option<String>,
}

impl ReplicaView {
    /// A replica that opens.
    #[must_use]
    pub fn open(held: BTreeSet<SnapshotId>) -> Self {
        let held = HeldSnapshots::Exactly(held);
        Self { held, error: None, is_gone: false, is_silent: false, lock: None }
    }

    /// A replica that does not open. `known` is the time up to which it had all snapshots when it
    /// was last seen.
    #[must_use]
    pub fn closed(known: Option<Timestamp>, error: String) -> Self {
        let held = known.map_or(HeldSnapshots::Unknown, HeldSnapshots::UpTo);
        Self { held, error: Some(error), is_gone: false, is_silent: false, lock: None }
    }
}

/// The snapshots that a replica holds, as far as is known.
#[derive(Debug, Clone)]
pub enum HeldSnapshots {
    Exactly(BTreeSet<SnapshotId>),
    /// All up to this time, as an earlier run saw it.
    UpTo(Timestamp),
    /// It was never seen.
    Unknown,
}

/// The promises about a store, with remarks about things that no promise covers.
#[derive(Debug, Clone, Default)]
pub struct StatusReport {
    /// The broken promises come first.
    pub promises: Vec<JudgedPromise>,
    pub notes: Vec<String>,
}

impl StatusReport {
    /// Adds another report.
    pub fn merge(&mut self, other: Self) {
        self.promises.extend(other.promises);
        self.notes.extend(other.notes);
        self.promises.sort_by(|a, b| (a.state, a.kind, &a.subject).cmp(&(b.state, b.kind, &b.subject)));
    }

    /// Reports whether a promise has this state.
    #[must_use]
    pub fn has(&self, state: PromiseState) -> bool {
        self.promises.iter().any(|promise| promise.state == state)
    }
}

/// Judges the promises about a store, its sources and its replicas.
#[must_use]
pub fn judge_store(context: JudgeContext<'_>, name: &str, view: &StoreView) -> StatusReport {
    let judge = StoreJudge { context, name };
    let mut report = StatusReport::default();
    report.merge(match view {
        StoreView::Open(view) => judge.open(view),
        StoreView::WriteOnly(view) => judge.write_only(view),
        StoreView::Closed { error } => {
            judge.unreadable(PromiseState::Broken, "the store cannot be read", Some(error))
        }
    });
    report
}

struct StoreJudge<'a> {
    context: JudgeContext<'a>,
    name: &'a str,
}

impl StoreJudge<'_> {
    fn open(&self, view: &OpenStoreView) -> StatusReport {
        let (now, limits, name) = (self.context.now, &self.context.config.promises, self.name);
        let facts = &view.facts;
        let mut judged = self.sources(view);
        judged.push(self.whole(facts));
        judged.push(self.continued(Some(facts), view.unlooked_for));
        judged.push(self.clock(Some(facts), &view.server_clocks));
        if let Some(limit) = limits.verified_within {
            let oldest = facts.read_since.iter().copied().min().unwrap_or(now);
            let text = ("the part that was read longest ago was read or written", "");
            judged.push(judge_age(PromiseKind::VerifiedWithin, name, limit, Some(oldest), now, text));
        }
        if let Some(limit) = limits.reclaimed_within {
            judged.push(self.reclaimed(view, limit));
        }
        if let Some(limit) = limits.drill_within {
            judged.extend(self.drilled_sources().map(|source| self.drills(source, view, limit)));
        }
        if let (Some(limit), Some(free)) = (limits.room_for, &view.free_bytes) {
            judged.push(self.room(facts, free, limit));
        }
        if let Some(limit) = limits.replica_within {
            let replica = |(name, _): (&String, _)| self.replica(name, view, limit);
            judged.extend(self.own_replicas().map(replica));
        }
        StatusReport { promises: judged, notes: self.emptied_sources(view) }
    }

    /// Judges whether forgotten data was freed in time, and whether the rules of retention were
    /// applied in time.
    fn reclaimed(&self, view: &OpenStoreView, limit: Duration) -> JudgedPromise {
        let (kind, name, now) = (PromiseKind::ReclaimedWithin, self.name, self.context.now);
        let waiting = view.facts.undo_ends.iter().copied().filter(|end| *end <= now).min();
        let mut judged = match waiting {
            Some(since) => {
                let text = ("space has waited to be freed since its undo ended", "");
                judge_age(kind, name, limit, Some(since), now, text)
            }
            None => kept(kind, name, Some(limit), "nothing waits to be freed"),
        };
        let count: usize = view.overdue.values().sum();
        // Rules wait for some nights of work after a long pause.
        if count > 0 && view.facts.nights.leap(now).is_none() {
            let names: Vec<_> = view.overdue.keys().map(String::as_str).collect();
            judged.state = PromiseState::Broken;
            judged.text = format!(
                "the rules of keep are not applied: {} of {} should have been forgotten {} ago",
                counted(count, "snapshot"),
                names.join(", "),
                show_time_span(limit)
            );
        }
        judged
    }

    /// Judges a store whose key may not read, by the things that are known without it.
    fn write_only(&self, view: &WriteOnlyView) -> StatusReport {
        let text = "this key may not read: ask on a machine whose key may";
        let mut report = self.unreadable(PromiseState::Unknown, text, None);
        for promise in &mut report.promises {
            if promise.kind == PromiseKind::SnapshotWithin
                && let Some(count) = view.emptied_sources.get(&promise.subject)
            {
                promise.state = PromiseState::Broken;
                promise.text = emptied_text(*count);
                promise.follows_from_store = None;
            }
        }
        let continued = self.continued(None, view.unlooked_for);
        if continued.state == PromiseState::Broken {
            report.promises.push(continued);
        }
        let clock = self.clock(None, &view.server_clocks);
        if clock.state == PromiseState::Broken || !view.server_clocks.is_empty() {
            report.promises.push(clock);
        }
        report
    }

    /// Judges a store whose facts cannot be read: every promise about it has the state of the
    /// store.
    fn unreadable(&self, state: PromiseState, text: &str, error: Option<&String>) -> StatusReport {
        let limits = &self.context.config.promises;
        let first = JudgedPromise::new(PromiseKind::Store, self.name, None, state, text);
        let first = JudgedPromise { detail: error.cloned(), ..first };
        let follows = format!("the store {} cannot be read", self.name);
        let other = |kind, subject: &str, limit: Option<Duration>| {
            limit.map(|limit| JudgedPromise {
                follows_from_store: Some(self.name.to_owned()),
                ..JudgedPromise::new(kind, subject, Some(limit), state, follows.clone())
            })
        };
        let mut all = vec![first];
        for (source_name, source) in self.own_sources() {
            let limit = source.snapshot_within.or(limits.snapshot_within);
            all.extend(other(PromiseKind::SnapshotWithin, source_name, limit));
        }
        for (source_name, _) in self.drilled_sources() {
            all.extend(other(PromiseKind::DrillWithin, source_name, limits.drill_within));
        }
        for (replica_name, _) in self.own_replicas() {
            all.extend(other(PromiseKind::ReplicaWithin, replica_name, limits.replica_within));
        }
        for (kind, limit) in [
            (PromiseKind::VerifiedWithin, limits.verified_within),
            (PromiseKind::ReclaimedWithin, limits.reclaimed_within),
            (PromiseKind::RoomFor, limits.room_for),
        ] {
            all.extend(other(kind, self.name, limit));
        }
        StatusReport { promises: all, notes: Vec::new() }
    }

    fn own_sources(&self) -> impl Iterator<Item = (&String, &ConfiguredSource)> {
        self.context.config.sources.iter().filter(|(_, source)| source.store == self.name)
    }

    /// The sources that are drilled. Without `[care] drill` these are all, since all are promised.
    fn drilled_sources(&self) -> impl Iterator<Item = (&String, &ConfiguredSource)> {
        let drill = self.context.config.care.drill.as_ref();
        self.own_sources().filter(move |(name, _)| drill.is_none_or(|drill| drill.has(name)))
    }

    /// Judges the drills of a source. A failed one breaks the promise until one is good.
    fn drills(
        &self,
        (name, source): (&String, &ConfiguredSource),
        view: &OpenStoreView,
        limit: Duration,
    ) -> JudgedPromise {
        let JudgeContext { config, host, now, .. } = self.context;
        let is_own = |drill: &&Drill| {
            drill.host == host && is_series_of(config, (name, source), &drill.series) && drill.time <= now
        };
        let own = view.facts.drills.iter().filter(is_own);
        let good = own.clone().filter(|drill| drill.failure.is_none()).map(|drill| drill.time).max();
        let kind = PromiseKind::DrillWithin;
        // Each series of a machine is drilled by itself.
        let mut newest: BTreeMap<&str, &Drill> = BTreeMap::new();
        for drill in own {
            newest.insert(&drill.series, drill);
        }
        if let Some(failed) = newest.into_values().find(|drill| drill.failure.is_some()) {
            let text = format!("the last drill failed {} ago", show_time_span(age(failed.time, now)));
            let judged = broken(kind, name, Some(limit), text);
            return JudgedPromise { detail: failed.failure.clone(), ..judged };
        }
        let text = ("files were restored and compared", "it was never drilled");
        judge_age(kind, name, limit, good, now, text)
    }

    fn own_replicas(&self) -> impl Iterator<Item = (&String, &ConfiguredReplica)> {
        self.context.config.replicas.iter().filter(|(_, replica)| replica.of == self.name)
    }

    fn sources(&self, view: &OpenStoreView) -> Vec<JudgedPromise> {
        let JudgeContext { config, host, now, .. } = self.context;
        let mut judged = Vec::new();
        for (name, source) in self.own_sources() {
            let Some(limit) = source.snapshot_within.or(config.promises.snapshot_within) else { continue };
            let is_own = |one: &&SnapshotFact| is_of_source(config, host, (name, source), one);
            let own = view.facts.snapshots.iter().filter(is_own);
            let newest = own.map(|snapshot| snapshot.time).filter(|time| *time <= now).max();
            let text = ("the newest snapshot was taken", "there is no snapshot");
            let mut promise = judge_age(PromiseKind::SnapshotWithin, name, limit, newest, now, text);
            if let Some(unread) = view.unread.get(name)
                && promise.state == PromiseState::Kept
            {
                let count = counted(unread.count, "file");
                promise.state = PromiseState::Broken;
                promise.text = format!("{count} could not be read in the last {UNREAD_NIGHTS} snapshots");
                promise.detail = Some(unread.examples.join(", "));
            }
            if let Some(emptied) = self.emptied((name, source), view) {
                promise.state = PromiseState::Broken;
                promise.text = format!("{}; {emptied}", promise.text);
            }
            judged.push(promise);
        }
        judged
    }

    /// Says that a source was emptied since its newest snapshot, if it was. The next snapshot is
    /// refused, so its promise cannot be kept.
    fn emptied(&self, (name, source): (&String, &ConfiguredSource), view: &OpenStoreView) -> Option<String> {
        let JudgeContext { config, host, .. } = self.context;
        if source.options.allow_empty || !view.empty_sources.contains(name) {
            return None;
        }
        let own = view.facts.snapshots.iter().filter(|one| is_of_source(config, host, (name, source), one));
        let count = own.max_by_key(|one| one.time).map_or(0, |one| one.entry_count);
        (count > 0).then(|| emptied_text(count))
    }

    /// Notes the sources without a promise that were emptied.
    fn emptied_sources(&self, view: &OpenStoreView) -> Vec<String> {
        let limits = &self.context.config.promises;
        let is_judged =
            |source: &ConfiguredSource| source.snapshot_within.or(limits.snapshot_within).is_some();
        let unjudged = self.own_sources().filter(|(_, source)| !is_judged(source));
        unjudged.filter_map(|found| Some(format!("{}: {}", found.0, self.emptied(found, view)?))).collect()
    }

    /// Judges whether work is looked for, and whether the series of this machine go on. Without
    /// the facts, as far as that is known.
    fn continued(&self, facts: Option<&StoreFacts>, unlooked_for: Option<Duration>) -> JudgedPromise {
        let JudgeContext { config, host, now, .. } = self.context;
        let store = ContinuedStore { config, name: self.name, host, now };
        let mut faults: Vec<_> = store.without_sources().into_iter().collect();
        faults.extend(
            unlooked_for.map(|span| format!("no timer has looked for due jobs for {}", show_time_span(span))),
        );
        if let Some(facts) = facts {
            faults.extend(store.orphans(facts));
            faults.extend(store.other_hosts(facts));
        }
        match faults.is_empty() {
            true => kept(PromiseKind::Continued, self.name, None, "every series goes on"),
            false => broken(PromiseKind::Continued, self.name, None, faults.join("; ")),
        }
    }

    /// Judges whether the store is whole, as far as is known.
    fn whole(&self, facts: &StoreFacts) -> JudgedPromise {
        let text = match (facts.damaged_arena_count, facts.lost_block_count) {
            (0, 0) => return kept(PromiseKind::Store, self.name, None, "no damage is known"),
            (damaged, 0) => format!("{} damaged", counted(damaged, "arena")),
            (0, lost) => format!("{} lost", counted(lost, "block")),
            (damaged, lost) => {
                format!("{} damaged, {} lost", counted(damaged, "arena"), counted(lost, "block"))
            }
        };
        broken(PromiseKind::Store, self.name, None, format!("{text}: `varve repair` mends it"))
    }

    /// Judges the clock of this machine by those of servers, and by snapshots from the future, if
    /// they are known.
    fn clock(&self, facts: Option<&StoreFacts>, servers: &[ServerClock]) -> JudgedPromise {
        let (kind, limit) = (PromiseKind::Clock, Some(CLOCK_TOLERANCE));
        if let Some(text) = server_clock_fault(servers) {
            return broken(kind, self.name, limit, text);
        }
        let newest = facts.and_then(|facts| facts.snapshots.iter().max_by_key(|snapshot| snapshot.time));
        match newest.map(|snapshot| (snapshot, age(self.context.now, snapshot.time))) {
            Some((snapshot, ahead)) if ahead > CLOCK_TOLERANCE => {
                let text = format!(
                    "{} has a snapshot of {}, {} ahead of this clock: the clock is wrong, or was",
                    visible(&snapshot.name),
                    moment::show(snapshot.time),
                    show_time_span(ahead)
                );
                broken(kind, self.name, limit, text)
            }
            _ => {
                let future = facts.map(|_| "no snapshot is from the future".to_owned());
                let agrees = |clock: &ServerClock| format!("{} has the same time", visible(&clock.server));
                let text: Vec<_> = future.into_iter().chain(servers.iter().map(agrees)).collect();
                kept(kind, self.name, limit, &text.join("; "))
            }
        }
    }

    fn room(&self, facts: &StoreFacts, free: &Result<u64, String>, limit: Duration) -> JudgedPromise {
        let now = self.context.now;
        let free = match free {
            Ok(free) => *free,
            Err(error) => {
                let judged =
                    broken(PromiseKind::RoomFor, self.name, Some(limit), "the free space is not known");
                return judged.with_detail(error);
            }
        };
        let past = facts.snapshots.iter().filter(|snapshot| snapshot.time <= now);
        let oldest = past.clone().map(|snapshot| snapshot.time).min().unwrap_or(now);
        let span = age(oldest, now).clamp(GROWTH_TIME_MIN, GROWTH_TIME);
        let recent = past.filter(|snapshot| age(snapshot.time, now) <= span);
        let grown = recent.fold(0_u64, |sum, snapshot| sum.saturating_add(snapshot.stored_bytes));
        judge_room(self.name, limit, free, grown, span)
    }

    /// Judges a replica by the oldest snapshot of the store that it lacks.
    fn replica(&self, name: &str, view: &OpenStoreView, limit: Duration) -> JudgedPromise {
        let (kind, now) = (PromiseKind::ReplicaWithin, self.context.now);
        let never = ReplicaView {
            held: HeldSnapshots::Unknown,
            error: None,
            is_gone: false,
            is_silent: false,
            lock: None,
        };
        let replica = view.replicas.get(name).unwrap_or(&never);
        let past = view.facts.snapshots.iter().filter(|snapshot| snapshot.time <= now);
        let lacking: Vec<Timestamp> = match &replica.held {
            HeldSnapshots::Exactly(held) => {
                past.filter(|snapshot| !held.contains(&snapshot.id)).map(|snapshot| snapshot.time).collect()
            }
            HeldSnapshots::UpTo(known) => {
                past.filter(|snapshot| snapshot.time > *known).map(|snapshot| snapshot.time).collect()
            }
            HeldSnapshots::Unknown if replica.is_silent => {
                let text = "it does not answer, and no earlier run has seen it";
                let judged = JudgedPromise::new(kind, name, Some(limit), PromiseState::Unknown, text);
                return JudgedPromise { detail: replica.error.clone(), ..judged };
            }
            HeldSnapshots::Unknown => {
                let judged = broken(kind, name, Some(limit), "it was never brought up to date");
                return JudgedPromise { detail: replica.error.clone(), ..judged };
            }
        };
        let mut judged = match lacking.iter().copied().min() {
            None => kept(kind, name, Some(limit), "it has every snapshot"),
            Some(oldest) => {
                let lacks = format!("it lacks {}, the first taken", counted(lacking.len(), "snapshot"));
                judge_age(kind, name, limit, Some(oldest), now, (&lacks, ""))
            }
        };
        // The folder of a disk that comes and goes is empty while the disk is away.
        let comes_and_goes = self
            .own_replicas()
            .any(|(own, replica)| own == name && replica.trigger == ReplicaTrigger::Present);
        if replica.is_gone && !comes_and_goes {
            judged.state = PromiseState::Broken;
            judged.text =
                "its place holds no copy: its disk is not mounted, or the copy was removed".to_owned();
            judged.detail.clone_from(&replica.error);
        } else if replica.error.is_some() {
            let state =
                if replica.is_silent { "; it does not answer now" } else { "; it cannot be reached now" };
            judged.text.push_str(state);
            judged.detail.clone_from(&replica.error);
        } else {
            judged.text.extend(replica.lock.iter().flat_map(|lock| ["; ", lock]));
        }
        judged
    }
}

fn kept(kind: PromiseKind, subject: &str, limit: Option<Duration>, text: &str) -> JudgedPromise {
    JudgedPromise::new(kind, subject, limit, PromiseState::Kept, text)
}

fn broken(
    kind: PromiseKind,
    subject: &str,
    limit: Option<Duration>,
    text: impl Into<String>,
) -> JudgedPromise {
    JudgedPromise::new(kind, subject, limit, PromiseState::Broken, text)
}

/// Says that a folder was emptied that had as many entries.
fn emptied_text(count: u64) -> String {
    let entries = if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") };
    format!(
        "the folder is empty now, but the newest snapshot has {entries}: its disk is not mounted, or it was emptied"
    )
}

/// Formats a count of things whose plural ends in `s`.
fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use varve_archive::retention::{ContentKind, Dated};

    use super::*;
    use crate::config::ConfigText;

    const DAY: i64 = 86_400_000_000_000;
    const NOW: Timestamp = Timestamp(20_000 * DAY);

    fn config() -> DailyConfig {
        let text = r#"
            [store.main]
            at = "/backup"
            [defaults]
            every = "day"
            [source.home]
            folder = "/home"
            [source.db]
            command = ["dump"]
            [replica.far]
            at = "sftp://backup@far.example/copy"
            [care]
            drill = { sources = ["home"] }
            [promise]
            snapshot-within = "30h"
            replica-within = "8d"
            verified-within = "60d"
            reclaimed-within = "10d"
            drill-within = "40d"
            room-for = "45d"
        "#;
        let file = ConfigText { name: "varve.toml".into(), text: text.into() };
        DailyConfig::read(&[file], Path::new("/etc")).unwrap()
    }

    fn judged(view: StoreView) -> Vec<(PromiseKind, String, PromiseState, Option<String>)> {
        let config = config();
        let context = JudgeContext { config: &config, host: "web1", now: NOW };
        let promises = judge_store(context, "main", &view).promises;
        promises.into_iter().map(|one| (one.kind, one.subject, one.state, one.detail)).collect()
    }

    #[test]
    fn a_store_that_cannot_be_read_lists_all_of_its_promises() {
        let closed = judged(StoreView::Closed { error: "no such folder".into() });
        let names: Vec<_> =
            closed.iter().map(|(kind, subject, ..)| (kind.name(), subject.as_str())).collect();
        assert_eq!(
            names,
            [
                ("snapshot-within", "db"),
                ("snapshot-within", "home"),
                ("replica-within", "far"),
                ("verified-within", "main"),
                ("reclaimed-within", "main"),
                ("drill-within", "home"),
                ("room-for", "main"),
                ("store", "main"),
            ]
        );
        assert!(closed.iter().all(|(_, _, state, _)| *state == PromiseState::Broken));
        assert_eq!(closed.last().unwrap().3.as_deref(), Some("no such folder"));
        let unknown = judged(StoreView::WriteOnly(WriteOnlyView::default()));
        assert!(unknown.iter().all(|(_, _, state, _)| *state == PromiseState::Unknown));
        assert_eq!(unknown.len(), closed.len());
    }

    #[test]
    fn the_reason_of_a_replica_stays_in_the_detail() {
        let mut view = OpenStoreView { free_bytes: Some(Ok(1 << 40)), ..OpenStoreView::default() };
        let error = "sftp://backup@far.example/copy: Name or service not known";
        let replica = ReplicaView::closed(None, error.to_owned());
        view.replicas.insert("far".into(), replica);
        let of_replica = |view: &OpenStoreView| {
            let all = judged(StoreView::Open(Box::new(view.clone())));
            all.into_iter().find(|(kind, ..)| *kind == PromiseKind::ReplicaWithin).unwrap()
        };
        let (.., state, detail) = of_replica(&view);
        assert_eq!((state, detail.as_deref()), (PromiseState::Broken, Some(error)));
        // A server that does not answer now may have everything.
        view.replicas.get_mut("far").unwrap().is_silent = true;
        assert_eq!(of_replica(&view).2, PromiseState::Unknown);
        // As long as nothing is missing there, being away breaks no promise.
        view.replicas.get_mut("far").unwrap().held = HeldSnapshots::UpTo(NOW);
        assert_eq!(of_replica(&view).2, PromiseState::Kept);
        // A place without a copy does.
        view.replicas.get_mut("far").unwrap().is_gone = true;
        assert_eq!(of_replica(&view).2, PromiseState::Broken);
    }

    #[test]
    fn a_source_that_was_emptied_breaks_its_promise() {
        let home = |id: u8, ago: i64, entry_count| SnapshotFact {
            id: SnapshotId([id; 16]),
            name: "home".into(),
            host: "web1".into(),
            source: b"/home".to_vec(),
            time: Timestamp(NOW.0 - ago * DAY),
            problem_count: 0,
            entry_count,
            stored_bytes: 0,
            dated: Dated {
                id: SnapshotId([id; 16]),
                time: Timestamp(NOW.0 - ago * DAY),
                host: "web1".into(),
                name: "home".into(),
                kind: ContentKind::Folder,
                tags: Vec::new(),
                holds: Vec::new(),
                keep_until: None,
                has_gaps: false,
                lesser_key: None,
                is_backdated: false,
            },
        };
        let facts = StoreFacts { snapshots: vec![home(1, 2, 9), home(2, 1, 5)], ..StoreFacts::default() };
        let mut view = OpenStoreView { facts, ..OpenStoreView::default() };
        let state = |view: &OpenStoreView| {
            let all = judged(StoreView::Open(Box::new(view.clone())));
            let is_home =
                |kind: PromiseKind, subject: &str| kind == PromiseKind::SnapshotWithin && subject == "home";
            all.into_iter().find(|(kind, subject, ..)| is_home(*kind, subject)).unwrap().2
        };
        assert_eq!(state(&view), PromiseState::Kept);
        view.empty_sources.insert("home".into());
        assert_eq!(state(&view), PromiseState::Broken);
        // The newest snapshot is empty, too: that was accepted.
        view.facts.snapshots.push(home(3, 0, 0));
        assert_eq!(state(&view), PromiseState::Kept);
    }

    #[test]
    fn the_clocks_of_servers_judge_this_one() {
        let clock = |ahead: i64| ServerClock {
            server: "vault.example".into(),
            here: NOW,
            there: Timestamp(NOW.0 - ahead * 1_000_000_000),
        };
        let state = |server_clocks| {
            let view = OpenStoreView { server_clocks, ..OpenStoreView::default() };
            let all = judged(StoreView::Open(Box::new(view)));
            all.into_iter().find(|(kind, ..)| *kind == PromiseKind::Clock).unwrap().2
        };
        for (ahead, expected) in [(0, true), (299, true), (-299, true), (302, false), (-302, false)] {
            let kept = state(vec![clock(0), clock(ahead)]) == PromiseState::Kept;
            assert_eq!(kept, expected, "{ahead} s");
        }
        // A key that may not read notices a wrong clock, too.
        let view = WriteOnlyView { server_clocks: vec![clock(9_000)], ..WriteOnlyView::default() };
        let all = judged(StoreView::WriteOnly(view));
        assert!(
            all.iter()
                .any(|(kind, _, state, _)| { (*kind, *state) == (PromiseKind::Clock, PromiseState::Broken) })
        );
    }

    #[test]
    fn a_source_that_was_emptied_is_noticed_by_a_key_that_may_not_read() {
        let view = WriteOnlyView { emptied_sources: [("home".to_owned(), 5)].into(), ..Default::default() };
        let all = judged(StoreView::WriteOnly(view));
        let broken: Vec<_> = all.iter().filter(|one| one.2 == PromiseState::Broken).collect();
        assert_eq!(broken.len(), 1, "{all:?}");
        assert_eq!((broken[0].0, broken[0].1.as_str()), (PromiseKind::SnapshotWithin, "home"));
    }

    #[test]
    fn rules_of_retention_that_nothing_applies_break_a_promise() {
        let mut view = OpenStoreView { free_bytes: Some(Ok(1 << 40)), ..OpenStoreView::default() };
        let state = |view: &OpenStoreView| {
            let all = judged(StoreView::Open(Box::new(view.clone())));
            all.into_iter().find(|(kind, ..)| *kind == PromiseKind::ReclaimedWithin).unwrap().2
        };
        assert_eq!(state(&view), PromiseState::Kept);
        view.overdue.insert("home".into(), 2);
        assert_eq!(state(&view), PromiseState::Broken);
    }
}
