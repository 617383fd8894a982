//! Decides which stored block is fetched next, from which mirror and together with which others.
//! Pure: it knows names and times, and moves no bytes.
//!
//! Invariants:
//! - A block that a reader waits for is begun before any other, and one connection is kept free for
//!   it.
//! - A block is fetched once, however many want it. Only if an answer is late, another mirror is
//!   asked as well.
//! - The number of requests at once is bounded: by connections, and over shared connections
//!   (HTTP/2) by streams and by their bytes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use varve_edition::{ObjectName, ObjectPart};

use crate::server_ranking::{ServerChoice, ServerNumber, ServerRanking};

/// Blocks of one object with a smaller gap between them are fetched with one request.
const GAP_BYTES_MAX: u32 = 64 << 10;
/// The longest range of one request.
const SPAN_BYTES_MAX: u32 = 4 << 20;
/// Beyond one request for each connection, more of them share a connection only up to this sum of
/// their bytes. It bounds memory, and the bytes that a reader's block may wait for.
const SHARED_BYTES_MAX: u64 = 8 << 20;
/// Each mirror may send wrong bytes for a block this many times. A cache on the way may have broken
/// one answer.
const REFUSALS_MAX: u32 = 2;
/// A block that no reader waits for is dropped after this number of failed requests. The second
/// one asks another mirror, or the same after its rest.
const FAILURES_MAX: u32 = 2;

/// The importance of a fetch; the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// A reader waits.
    Demand,
    /// A reader will probably want it soon.
    Ahead,
    /// A profile foresees its read.
    Profile,
    /// It completes the cache.
    Fill,
}

const URGENCIES: [Urgency; 4] = [Urgency::Demand, Urgency::Ahead, Urgency::Profile, Urgency::Fill];

pub(crate) type JobNumber = u64;

/// One request to a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FetchJob {
    pub(crate) number: JobNumber,
    pub(crate) mirror: ServerNumber,
    pub(crate) object: ObjectName,
    /// The bytes of the object; `None` for all of them.
    pub(crate) span: Option<Range<u32>>,
    /// The stored blocks in the span, in its order.
    pub(crate) parts: Vec<ObjectPart>,
    pub(crate) urgency: Urgency,
}

/// The next step of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextJob {
    Start(FetchJob),
    /// Nothing before this time.
    WaitUntil(Duration),
    /// Nothing until something changes.
    Idle,
}

/// The properties of a mirror that are known so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerTraits {
    /// It sends parts of objects.
    pub(crate) knows_ranges: bool,
    /// It answers many requests at once over one connection.
    pub(crate) multiplexes: bool,
}

/// The most requests at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestLimits {
    /// To mirrors with a connection for each request.
    pub(crate) connections: usize,
    /// To mirrors that multiplex.
    pub(crate) streams: usize,
}

/// The reason why a mirror's block was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockRefusal {
    WrongBytes,
    /// The mirror does not have the object.
    Missing,
}

/// The blocks that are wanted, and the requests that run.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) mirrors: ServerRanking,
    mirror_count: usize,
    limits: RequestLimits,
    wants: BTreeMap<ObjectName, BlockWant>,
    /// The wanted blocks of each urgency. An entry counts only if its want has this urgency queued.
    queues: [VecDeque<ObjectName>; 4],
    running: BTreeMap<JobNumber, RunningFetch>,
    next_number: JobNumber,
}

#[derive(Debug)]
struct BlockWant {
    part: ObjectPart,
    /// The queue that it waits in.
    queued: Option<Urgency>,
    urgency: Urgency,
    jobs: Vec<JobNumber>,
    /// The failed requests.
    failures: u32,
    /// The refused answers of each mirror.
    refusals: BTreeMap<ServerNumber, u32>,
}

#[derive(Debug)]
struct RunningFetch {
    mirror: ServerNumber,
    is_multiplexed: bool,
    started: Duration,
    first_piece: Option<Duration>,
    bytes: u64,
    is_late: bool,
}

impl Schedule {
    pub(crate) fn new(mirror_count: usize, limits: RequestLimits) -> Self {
        Self {
            mirrors: ServerRanking::new(mirror_count),
            mirror_count,
            limits,
            wants: BTreeMap::new(),
            queues: [const { VecDeque::new() }; 4],
            running: BTreeMap::new(),
            next_number: 0,
        }
    }

    /// Wants a block. Returns false if it was wanted already; then it gets the higher urgency.
    pub(crate) fn want(&mut self, part: ObjectPart, urgency: Urgency) -> bool {
        match self.wants.get_mut(&part.name) {
            None => {
                let want = BlockWant {
                    part,
                    queued: Some(urgency),
                    urgency,
                    jobs: Vec::new(),
                    failures: 0,
                    refusals: BTreeMap::new(),
                };
                self.wants.insert(part.name, want);
                self.queues[urgency as usize].push_back(part.name);
                true
            }
            Some(want) => {
                want.urgency = want.urgency.min(urgency);
                if want.queued.is_some_and(|queued| urgency < queued) {
                    want.queued = Some(urgency);
                    self.queues[urgency as usize].push_back(part.name);
                }
                false
            }
        }
    }

    pub(crate) fn is_requested(&self, name: &ObjectName) -> bool {
        self.wants.contains_key(name)
    }

    /// Returns the stored bytes of the requested blocks of an urgency.
    pub(crate) fn requested_bytes(&self, urgency: Urgency) -> u64 {
        let alike = self.wants.values().filter(|want| want.urgency == urgency);
        alike.map(|want| u64::from(want.part.bytes)).sum()
    }

    /// Stops wanting a block. Requests that run are not interrupted here.
    pub(crate) fn drop_want(&mut self, name: &ObjectName) {
        self.wants.remove(name);
    }

    /// Chooses the next request. `traits_of` returns the properties of a mirror.
    pub(crate) fn next(
        &mut self,
        now: Duration,
        traits_of: impl Fn(ServerNumber) -> ServerTraits,
    ) -> NextJob {
        let mut until: Option<Duration> = None;
        for urgency in URGENCIES {
            let has_room = [false, true].map(|is_multiplexed| self.has_room(urgency, is_multiplexed));
            let has_room = |mirror| has_room[usize::from(traits_of(mirror).multiplexes)];
            if !(0..self.mirror_count).any(has_room) {
                continue;
            }
            let wants = &self.wants;
            let is_queued =
                |name: &ObjectName| wants.get(name).is_some_and(|want| want.queued == Some(urgency));
            self.queues[urgency as usize].retain(is_queued);
            for name in &self.queues[urgency as usize] {
                let Some(want) = self.wants.get(name) else { continue };
                match self.choose_server(want, urgency, now, has_room) {
                    ServerChoice::Ask(mirror) => {
                        let part = want.part;
                        return NextJob::Start(self.start(&part, urgency, mirror, now, traits_of(mirror)));
                    }
                    ServerChoice::Wait(time) => until = Some(until.map_or(time, |until| until.min(time))),
                    ServerChoice::Nobody => {}
                }
            }
        }
        until.map_or(NextJob::Idle, NextJob::WaitUntil)
    }

    /// Returns whether one more request may be sent to a mirror of this kind.
    fn has_room(&self, urgency: Urgency, is_multiplexed: bool) -> bool {
        let alike = self.running.values().filter(|running| running.is_multiplexed == is_multiplexed);
        let (count, bytes) =
            alike.fold((0_usize, 0_u64), |(count, bytes), running| (count + 1, bytes + running.bytes));
        let limit = match is_multiplexed {
            false => self.limits.connections,
            true if bytes < SHARED_BYTES_MAX => self.limits.streams,
            true => self.limits.connections.min(self.limits.streams),
        };
        let kept_free = usize::from(urgency != Urgency::Demand && limit > 1);
        count + kept_free < limit
    }

    fn choose_server(
        &self,
        want: &BlockWant,
        urgency: Urgency,
        now: Duration,
        has_room: impl Fn(ServerNumber) -> bool,
    ) -> ServerChoice {
        let is_asked = |mirror| {
            want.jobs.iter().any(|job| self.running.get(job).is_some_and(|running| running.mirror == mirror))
        };
        let refusals = |mirror| want.refusals.get(&mirror).copied().unwrap_or(0);
        let is_demand = urgency == Urgency::Demand;
        // A mirror whose bytes were refused is asked again only if no other one is left.
        for most in 0..REFUSALS_MAX {
            let is_permitted = |mirror| refusals(mirror) == most && !is_asked(mirror) && has_room(mirror);
            match self.mirrors.choose(now, is_demand, is_permitted) {
                ServerChoice::Nobody => {}
                choice => return choice,
            }
        }
        ServerChoice::Nobody
    }

    /// Begins a request for a block, and for other wanted blocks that lie near it in its object.
    fn start(
        &mut self,
        part: &ObjectPart,
        urgency: Urgency,
        mirror: ServerNumber,
        now: Duration,
        traits: ServerTraits,
    ) -> FetchJob {
        let knows_ranges = traits.knows_ranges;
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        let is_alone = part.object == part.name;
        let mut parts = vec![*part];
        if !is_alone {
            let is_queued = |want: &&BlockWant| want.part.object == part.object && want.queued.is_some();
            let mut queued: Vec<_> = self.wants.values().filter(is_queued).map(|want| want.part).collect();
            queued.sort_by_key(|part| (part.offset, part.bytes));
            parts = if knows_ranges { run_around(part, &queued) } else { queued };
        }
        let span = (is_alone || knows_ranges).then(|| span_of(&parts));
        for part in &parts {
            if let Some(want) = self.wants.get_mut(&part.name) {
                want.queued = None;
                want.jobs.push(number);
            }
        }
        let bytes = span.as_ref().map_or(0, |span| u64::from(span.end.saturating_sub(span.start)));
        let is_multiplexed = traits.multiplexes;
        let running =
            RunningFetch { mirror, is_multiplexed, started: now, first_piece: None, bytes, is_late: false };
        self.running.insert(number, running);
        self.mirrors.begin(mirror);
        FetchJob { number, mirror, object: part.object, span, parts, urgency }
    }

    /// Records that the first piece of an answer has come.
    pub(crate) fn first_piece(&mut self, job: JobNumber, now: Duration) {
        if let Some(running) = self.running.get_mut(&job)
            && running.first_piece.is_none()
        {
            running.first_piece = Some(now);
            self.mirrors.first_piece(running.mirror, now.saturating_sub(running.started));
        }
    }

    /// Returns the time at which another mirror should be asked for a block as well; `None` if
    /// nothing is to be gained.
    pub(crate) fn late_at(&self, name: &ObjectName) -> Option<Duration> {
        let want = self.wants.get(name).filter(|want| want.queued.is_none())?;
        let [job] = want.jobs[..] else { return None };
        let running = self.running.get(&job).filter(|running| !running.is_late)?;
        let has_other = (0..self.mirror_count)
            .any(|mirror| mirror != running.mirror && !want.refusals.contains_key(&mirror));
        let late_after = self.mirrors.late_after(running.mirror, running.bytes);
        has_other.then(|| running.started.saturating_add(late_after))
    }

    /// Queues a block again, for another mirror, if its answer is late. The first one to answer is
    /// used. The other blocks that are still to come with the late answer are queued as well: a
    /// reader in order would wait for each of them.
    pub(crate) fn hedge(&mut self, name: &ObjectName, now: Duration) -> bool {
        if self.late_at(name).is_none_or(|late_at| now < late_at) {
            return false;
        }
        let Some(want) = self.wants.get_mut(name) else { return false };
        want.urgency = Urgency::Demand;
        let jobs = want.jobs.clone();
        for job in &jobs {
            let Some(running) = self.running.get_mut(job) else { continue };
            running.is_late = true;
            // An answer that is coming is slow. One without its first piece may never come.
            match running.first_piece {
                None => self.mirrors.failed(running.mirror, running.started, now),
                Some(first) => self.mirrors.late(running.mirror, running.bytes, now.saturating_sub(first)),
            }
        }
        let is_late = |want: &&mut BlockWant| want.queued.is_none() && want.jobs == jobs;
        let mut late: Vec<_> = self.wants.values_mut().filter(is_late).collect();
        late.sort_by_key(|want| Reverse(want.part.offset));
        for want in late {
            want.queued = Some(want.urgency);
            self.queues[want.urgency as usize].push_front(want.part.name);
        }
        true
    }

    /// Ends a request whose bytes have come, and returns the blocks of it that are still wanted and
    /// that no other request brings. They are queued again.
    pub(crate) fn succeeded(&mut self, job: &FetchJob, now: Duration, bytes: u64) {
        if let Some(running) = self.running.get(&job.number) {
            let since = running.first_piece.unwrap_or(running.started);
            self.mirrors.succeeded(running.mirror, bytes, now.saturating_sub(since));
        }
        self.end(job);
    }

    /// Ends a request that has failed. The mirror rests. Its blocks are queued again. Those that no
    /// reader waits for are dropped instead after [`FAILURES_MAX`]: their names are returned.
    pub(crate) fn failed(&mut self, job: &FetchJob, now: Duration) -> Vec<ObjectName> {
        if let Some(running) = self.running.get(&job.number)
            && !running.is_late
        {
            self.mirrors.failed(running.mirror, running.started, now);
        }
        let mut dropped = Vec::new();
        for name in job.parts.iter().map(|part| part.name) {
            let Some(want) = self.wants.get_mut(&name) else { continue };
            want.failures = want.failures.saturating_add(1);
            let is_last = want.failures >= FAILURES_MAX && want.jobs == [job.number];
            if is_last && want.urgency != Urgency::Demand {
                self.wants.remove(&name);
                dropped.push(name);
            }
        }
        self.end(job);
        dropped
    }

    fn end(&mut self, job: &FetchJob) {
        if self.running.remove(&job.number).is_some() {
            self.mirrors.end(job.mirror);
        }
        for part in job.parts.iter().rev() {
            let Some(want) = self.wants.get_mut(&part.name) else { continue };
            want.jobs.retain(|other| *other != job.number);
            if want.jobs.is_empty() && want.queued.is_none() {
                want.queued = Some(want.urgency);
                self.queues[want.urgency as usize].push_front(part.name);
            }
        }
    }

    /// Records that a mirror's answer for a block was refused. Returns true if no mirror is left to
    /// ask.
    pub(crate) fn refused(&mut self, mirror: ServerNumber, name: &ObjectName, refusal: BlockRefusal) -> bool {
        let mirror_count = self.mirror_count;
        let Some(want) = self.wants.get_mut(name) else { return false };
        let count = want.refusals.entry(mirror).or_insert(0);
        *count = match refusal {
            BlockRefusal::Missing => REFUSALS_MAX,
            BlockRefusal::WrongBytes => count.saturating_add(1),
        };
        let is_left = |mirror| want.refusals.get(&mirror).is_none_or(|count| *count < REFUSALS_MAX);
        !(0..mirror_count).any(is_left)
    }
}

/// Returns the blocks of an object that lie around `part` without large gaps, of `queued` in order.
fn run_around(part: &ObjectPart, queued: &[ObjectPart]) -> Vec<ObjectPart> {
    let end = |part: &ObjectPart| part.offset.saturating_add(part.bytes);
    let before = queued.partition_point(|other| (other.offset, other.bytes) < (part.offset, part.bytes));
    let (mut first, mut last) = (before, before);
    let (mut span_start, mut span_end) = (part.offset, end(part));
    while let Some(next) = queued.get(last.saturating_add(1)) {
        if next.offset > span_end.saturating_add(GAP_BYTES_MAX) || end(next) - part.offset > SPAN_BYTES_MAX {
            break;
        }
        span_end = span_end.max(end(next));
        last += 1;
    }
    while let Some(next) = first.checked_sub(1).and_then(|at| queued.get(at)) {
        let gap = span_start.saturating_sub(end(next));
        if gap > GAP_BYTES_MAX || span_end.saturating_sub(next.offset) > SPAN_BYTES_MAX {
            break;
        }
        span_start = span_start.min(next.offset);
        first -= 1;
    }
    queued.get(first..=last).map_or_else(|| vec![*part], <[_]>::to_vec)
}

fn span_of(parts: &[ObjectPart]) -> Range<u32> {
    let start = parts.iter().map(|part| part.offset).min().unwrap_or(0);
    let end = parts.iter().map(|part| part.offset.saturating_add(part.bytes)).max().unwrap_or(0);
    start..end
}

#[cfg(test)]
#[path = "schedule/tests.rs"]
mod tests;
