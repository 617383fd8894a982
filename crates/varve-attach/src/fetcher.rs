//! Fetches stored blocks from the mirrors, checks them, and wakes the readers that wait for them.
//!
//! A few threads share one [`Schedule`], which decides everything. A thread asks it for the next
//! request, moves the bytes, and delivers each block as soon as its last byte is there. Threads are
//! started when they are needed: over HTTP/2 there are many requests at once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::{Condvar, Mutex, MutexGuard};
use varve_block::to_usize;
use varve_edition::{BlockForm, CheckedBlock, OBJECT_BYTES_MAX, ObjectName, ObjectPart, UnpackError};
use varve_remote::{Target, TargetError};
use varve_world::FileName;

use crate::edge::{Stopwatch, start_thread};
use crate::schedule::{BlockRefusal, FetchJob, NextJob, RequestLimits, Schedule, ServerTraits, Urgency};

/// Whole objects that are kept in memory, from servers that do not send parts of them.
const WHOLE_COUNT_MAX: usize = 2;
/// Requests that run at the end may take this time.
const END_TIME: Duration = Duration::from_secs(1);
/// A thread looks at this interval whether it should end.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A reader that waits looks at this interval whether the program ends.
const LOOK_FOR_END_EVERY: Duration = Duration::from_millis(200);

/// A place with the objects of a publication.
#[derive(Clone)]
pub struct PublicationServer {
    /// The place, for messages.
    pub name: String,
    /// It should try once and give up soon: the reader of a publication does its own retries.
    pub target: Arc<dyn Target>,
}

impl fmt::Debug for PublicationServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The settings of the connections to the mirrors.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// The requests at once to mirrors with a connection for each request.
    pub connections: usize,
    /// The requests at once to mirrors that answer many over one connection (HTTP/2).
    pub streams: usize,
    /// The time that a read waits; `None`: for ever.
    pub patience: Option<Duration>,
    /// Set when the program ends: reads that wait have a moment left, whatever their patience.
    pub is_over: Arc<AtomicBool>,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self { connections: 6, streams: 32, patience: Some(Duration::from_secs(60)), is_over: Arc::default() }
    }
}

/// The reason why a stored block was not fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("the object {object} comes with other bytes from every server: {block} was published")]
    WrongBytes { object: ObjectName, block: ObjectName },
    #[error("no server has the object {object} any more: attach the newest edition")]
    Missing { object: ObjectName },
    #[error("no server has sent the object {object} within {} s: {reason}", patience.as_secs())]
    Patience { object: ObjectName, patience: Duration, reason: String },
    #[error("the object {object} was not fetched before the program ended")]
    Ended { object: ObjectName },
    #[error("the object {object} is not in the cache, and nothing is fetched offline")]
    Offline { object: ObjectName },
    #[error("the object {object} was published with a mistake: {reason}")]
    Unpack { object: ObjectName, reason: UnpackError },
}

/// A block that has come from a mirror.
#[derive(Debug, Clone)]
pub(crate) struct FetchedBlock {
    pub(crate) content: Bytes,
    /// The name of the mirror; empty if the block had come before.
    pub(crate) mirror: Arc<str>,
    /// True if the reader's own request has brought it.
    pub(crate) was_asked: bool,
}

/// Receives every block that has come, after its readers were woken.
pub(crate) trait FetchSink: Send + Sync {
    /// Returns the content that was taken, if it is still in memory.
    fn content(&self, name: &ObjectName) -> Option<Bytes>;
    /// Takes the content before readers are woken. It is `None` for a block that only completes the
    /// cache.
    fn take_content(&self, name: &ObjectName, content: &Bytes);
    /// Takes the stored bytes. It took the time `opening` to check and unpack them.
    fn take_stored(&self, name: &ObjectName, stored: &[u8], purpose: FetchedFor, opening: Duration);
    /// Learns of a block that a mirror has falsified.
    fn wrong_bytes(&self, mirror: &str, object: &ObjectName, expected: &ObjectName, found: &ObjectName);
}

/// The purpose of a fetch, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchedFor {
    Reader,
    Ahead,
    Fill,
}

/// Fetches stored blocks. Dropping it ends its threads after their current requests.
pub(crate) struct Fetcher(Arc<FetchShared>);

struct FetchShared {
    mirrors: Vec<(Arc<str>, Arc<dyn Target>)>,
    settings: FetchSettings,
    /// The form of all stored blocks.
    form: BlockForm,
    state: Mutex<FetchState>,
    /// Signalled when a request may be begun.
    work: Condvar,
    /// Signalled when a block has come or failed, and when a request has ended.
    progress: Condvar,
    /// The caches. They end with their owner, and not with the last request.
    sink: Weak<dyn FetchSink>,
    clock: Stopwatch,
}

struct FetchState {
    schedule: Schedule,
    flights: BTreeMap<ObjectName, BlockFlight>,
    wholes: VecDeque<(ObjectName, Bytes)>,
    last_error: String,
    /// The threads.
    thread_count: usize,
    /// The threads that work on a request.
    busy_count: usize,
    is_closing: bool,
}

/// A block that is being fetched.
struct BlockFlight {
    content_bytes_max: usize,
    waiter_count: u32,
    outcome: Option<Result<FetchedBlock, FetchError>>,
    /// Signalled for the readers that wait for this block: when it has come or failed, and when a
    /// request for it begins. One signal for all blocks would wake every reader for each of them.
    changed: Arc<Condvar>,
}

impl Fetcher {
    pub(crate) fn start(
        mirrors: Vec<PublicationServer>,
        settings: FetchSettings,
        form: BlockForm,
        sink: Weak<dyn FetchSink>,
    ) -> io::Result<Self> {
        let limits =
            RequestLimits { connections: settings.connections.max(1), streams: settings.streams.max(1) };
        let schedule = Schedule::new(mirrors.len(), limits);
        let shared = Arc::new(FetchShared {
            mirrors: mirrors.into_iter().map(|mirror| (mirror.name.into(), mirror.target)).collect(),
            settings,
            form,
            state: Mutex::new(FetchState {
                schedule,
                flights: BTreeMap::new(),
                wholes: VecDeque::new(),
                last_error: "none of them was asked".into(),
                thread_count: 0,
                busy_count: 0,
                is_closing: false,
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            sink,
            clock: Stopwatch::start(),
        });
        let fetcher = Self(Arc::clone(&shared));
        shared.start_thread(&mut shared.state.lock())?;
        Ok(fetcher)
    }

    /// Fetches a stored block for a reader, who waits. Its content has at most `content_bytes_max`
    /// bytes.
    pub(crate) fn fetch(
        &self,
        part: &ObjectPart,
        content_bytes_max: usize,
    ) -> Result<FetchedBlock, FetchError> {
        let shared = &*self.0;
        let begun = shared.clock.elapsed();
        let deadline = shared.settings.patience.map(|patience| begun.saturating_add(patience));
        let mut state = shared.state.lock();
        // The block may have come since the reader has looked for it.
        let content = shared.sink.upgrade().filter(|_| !state.flights.contains_key(&part.name));
        if let Some(content) = content.and_then(|sink| sink.content(&part.name)) {
            return Ok(FetchedBlock { content, mirror: "".into(), was_asked: false });
        }
        let was_asked = state.want(part, content_bytes_max, Urgency::Demand);
        let changed = state.join(part, content_bytes_max);
        shared.work.notify_one();
        let mut ends_at: Option<Duration> = None;
        loop {
            let flight = state.flights.get(&part.name);
            if let Some(outcome) = flight.and_then(|flight| flight.outcome.clone()) {
                state.leave(&part.name);
                return outcome.map(|block| FetchedBlock { was_asked, ..block });
            }
            let now = shared.clock.elapsed();
            if let Some(deadline) = deadline.filter(|deadline| *deadline <= now) {
                let error = FetchError::Patience {
                    object: part.object,
                    patience: deadline.saturating_sub(begun),
                    reason: state.last_error.clone(),
                };
                state.leave(&part.name);
                return Err(error);
            }
            if shared.settings.is_over.load(Ordering::Relaxed) {
                let ends_at = *ends_at.get_or_insert(now.saturating_add(END_TIME));
                if ends_at <= now {
                    state.leave(&part.name);
                    return Err(FetchError::Ended { object: part.object });
                }
            }
            if state.schedule.hedge(&part.name, now) {
                shared.work.notify_one();
            }
            let late_at = state.schedule.late_at(&part.name);
            let wake_at = [late_at, deadline].into_iter().flatten().min();
            let pause =
                wake_at.map_or(LOOK_FOR_END_EVERY, |at| at.saturating_sub(now).min(LOOK_FOR_END_EVERY));
            changed.wait_for(&mut state, pause.max(Duration::from_millis(1)));
        }
    }

    /// Wants blocks that no reader waits for, with the bound of each one's content. Returns those
    /// that were not wanted already.
    pub(crate) fn want(
        &self,
        parts: &[ObjectPart],
        content_bytes_max: usize,
        urgency: Urgency,
    ) -> Vec<ObjectName> {
        let sink = self.0.sink.upgrade();
        let mut state = self.0.state.lock();
        let is_new = |part: &&ObjectPart| {
            let has_come = |sink: &Arc<dyn FetchSink>| sink.content(&part.name).is_some();
            let is_here = !state.flights.contains_key(&part.name) && sink.as_ref().is_some_and(has_come);
            !is_here && state.want(part, content_bytes_max, urgency)
        };
        let new: Vec<_> = parts.iter().filter(is_new).map(|part| part.name).collect();
        if !new.is_empty() {
            self.0.work.notify_one();
        }
        new
    }

    /// Waits until blocks of an urgency have fewer than `bytes` that are still to come, for at most
    /// `time`. Returns whether they have.
    pub(crate) fn wait_below(&self, bytes: u64, urgency: Urgency, time: Duration) -> bool {
        let mut state = self.0.state.lock();
        let is_above = |state: &mut FetchState| state.schedule.requested_bytes(urgency) >= bytes;
        !self.0.progress.wait_while_for(&mut state, is_above, time).timed_out()
    }

    /// Waits until nothing is wanted and no request runs, for at most `time`. Returns whether that
    /// is so.
    pub(crate) fn wait_idle(&self, time: Duration) -> bool {
        let mut state = self.0.state.lock();
        let is_busy = |state: &mut FetchState| state.busy_count > 0 || !state.flights.is_empty();
        !self.0.progress.wait_while_for(&mut state, is_busy, time).timed_out()
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closing = true;
        self.0.work.notify_all();
        let is_busy = |state: &mut FetchState| state.busy_count > 0;
        self.0.progress.wait_while_for(&mut state, is_busy, END_TIME);
    }
}

impl FetchState {
    /// Returns true if the block was not wanted already.
    fn want(&mut self, part: &ObjectPart, content_bytes_max: usize, urgency: Urgency) -> bool {
        // A failure that other readers have not seen yet is not that of a new request.
        if self.flights.get(&part.name).is_some_and(|flight| flight.outcome.is_some()) {
            if self.flights.get(&part.name).is_some_and(|flight| matches!(flight.outcome, Some(Ok(_)))) {
                return false;
            }
            if let Some(flight) = self.flights.get_mut(&part.name) {
                flight.outcome = None;
            }
        }
        self.flight(part, content_bytes_max);
        self.schedule.want(*part, urgency)
    }

    fn flight(&mut self, part: &ObjectPart, content_bytes_max: usize) -> &mut BlockFlight {
        self.flights.entry(part.name).or_insert_with(|| BlockFlight {
            content_bytes_max,
            waiter_count: 0,
            outcome: None,
            changed: Arc::default(),
        })
    }

    /// Begins the wait of one reader for a wanted block, and returns its signal.
    fn join(&mut self, part: &ObjectPart, content_bytes_max: usize) -> Arc<Condvar> {
        let flight = self.flight(part, content_bytes_max);
        flight.waiter_count = flight.waiter_count.saturating_add(1);
        Arc::clone(&flight.changed)
    }

    /// Ends the wait of one reader.
    fn leave(&mut self, name: &ObjectName) {
        let Some(flight) = self.flights.get_mut(name) else { return };
        flight.waiter_count = flight.waiter_count.saturating_sub(1);
        if flight.waiter_count == 0 {
            self.flights.remove(name);
            self.schedule.drop_want(name);
        }
    }

    /// Lets readers look anew at the time after which the blocks of a request are late.
    fn begin(&self, job: &FetchJob) {
        for flight in job.parts.iter().filter_map(|part| self.flights.get(&part.name)) {
            flight.changed.notify_all();
        }
    }

    /// Ends a fetch. Without readers, nobody needs the outcome.
    fn complete(&mut self, name: &ObjectName, outcome: Result<FetchedBlock, FetchError>) {
        self.schedule.drop_want(name);
        match self.flights.get_mut(name) {
            Some(flight) if flight.waiter_count > 0 => {
                flight.outcome = Some(outcome);
                flight.changed.notify_all();
            }
            _ => drop(self.flights.remove(name)),
        }
    }
}

impl FetchShared {
    fn start_thread(self: &Arc<Self>, state: &mut FetchState) -> io::Result<()> {
        let shared = Arc::clone(self);
        start_thread(&format!("fetch {}", state.thread_count), move || shared.work())?;
        state.thread_count += 1;
        Ok(())
    }

    fn work(self: Arc<Self>) {
        while let Some(job) = self.next_job() {
            self.run(&job);
            let mut state = self.state.lock();
            state.busy_count = state.busy_count.saturating_sub(1);
            drop(state);
            // This thread looks for the next request.
            self.progress.notify_all();
        }
    }

    /// Waits for the next request; `None` at the end.
    fn next_job(self: &Arc<Self>) -> Option<FetchJob> {
        let mut state = self.state.lock();
        loop {
            if state.is_closing {
                return None;
            }
            let now = self.clock.elapsed();
            let pause = match state.schedule.next(now, |mirror| self.traits_of(mirror)) {
                NextJob::Start(job) => {
                    state.busy_count = state.busy_count.saturating_add(1);
                    state.begin(&job);
                    self.keep_one_free(&mut state);
                    return Some(job);
                }
                NextJob::WaitUntil(until) => until.saturating_sub(now).min(LOOK_EVERY),
                NextJob::Idle => LOOK_EVERY,
            };
            self.work.wait_for(&mut state, pause.max(Duration::from_millis(1)));
        }
    }

    fn traits_of(&self, mirror: usize) -> ServerTraits {
        let target = self.mirrors.get(mirror).map(|(_, target)| target);
        ServerTraits {
            knows_ranges: target.is_none_or(|target| target.knows_ranges()),
            multiplexes: target.is_some_and(|target| target.multiplexes()),
        }
    }

    /// Makes another thread look for the next request.
    fn keep_one_free(self: &Arc<Self>, state: &mut FetchState) {
        let has_streams = self.mirrors.iter().any(|(_, target)| target.multiplexes());
        let streams = if has_streams { self.settings.streams.max(1) } else { 1 };
        let thread_max = self.settings.connections.max(1).saturating_add(streams);
        if state.busy_count == state.thread_count && state.thread_count < thread_max {
            if let Err(error) = self.start_thread(state) {
                tracing::warn!(%error, threads = state.thread_count, "no more threads fetch blocks");
            }
        } else {
            self.work.notify_one();
        }
    }

    fn run(&self, job: &FetchJob) {
        let Some((mirror, target)) = self.mirrors.get(job.mirror) else { return };
        let mut delivery = Delivery { shared: self, job, mirror, done_count: 0, received: BytesMut::new() };
        let outcome = match &job.span {
            Some(span) => delivery.fetch_span(&**target, span),
            None => delivery.fetch_whole(&**target),
        };
        let now = self.clock.elapsed();
        let received = delivery.received.len() as u64;
        let undelivered = job.parts.get(delivery.done_count..).unwrap_or_default();
        match outcome {
            Ok(()) => self.state.lock().schedule.succeeded(job, now, received),
            // The object is not there, or is shorter than its map says.
            Err(TargetError::NotFound { .. } | TargetError::Short { .. }) => {
                for part in undelivered {
                    self.refuse(job, part, BlockRefusal::Missing);
                }
                self.state.lock().schedule.succeeded(job, now, received);
            }
            Err(error) => {
                let reason = format!("{mirror}: {}", varve_block::with_causes(&error));
                tracing::debug!(mirror = &**mirror, object = %job.object, reason, "a fetch has failed");
                let mut state = self.state.lock();
                state.last_error = reason;
                if let Some(pause) = error.asked_pause() {
                    state.schedule.mirrors.asked_to_wait(job.mirror, pause, now);
                }
                for name in state.schedule.failed(job, now) {
                    state.flights.remove(&name);
                }
            }
        }
    }

    fn refuse(&self, job: &FetchJob, part: &ObjectPart, refusal: BlockRefusal) {
        let mut state = self.state.lock();
        if state.schedule.refused(job.mirror, &part.name, refusal) {
            let error = match refusal {
                BlockRefusal::WrongBytes => FetchError::WrongBytes { object: part.object, block: part.name },
                BlockRefusal::Missing => FetchError::Missing { object: part.object },
            };
            state.complete(&part.name, Err(error));
        }
    }

    /// Returns whether any block of a request is still wanted.
    fn is_needed(&self, state: &MutexGuard<'_, FetchState>, job: &FetchJob) -> bool {
        !state.is_closing && job.parts.iter().any(|part| state.schedule.is_requested(&part.name))
    }
}

/// The bytes of one request as they come.
struct Delivery<'a> {
    shared: &'a FetchShared,
    job: &'a FetchJob,
    mirror: &'a Arc<str>,
    /// The blocks of the request that were delivered or refused.
    done_count: usize,
    received: BytesMut,
}

impl Delivery<'_> {
    fn fetch_span(&mut self, target: &dyn Target, span: &Range<u32>) -> Result<(), TargetError> {
        let name = object_file(&self.job.object);
        let range = u64::from(span.start)..u64::from(span.end);
        target.get_in_pieces(&name, range, 0, &mut |piece| {
            {
                let mut state = self.shared.state.lock();
                state.schedule.first_piece(self.job.number, self.shared.clock.elapsed());
                // Another request was faster, or nobody waits any more.
                if !self.shared.is_needed(&state, self.job) {
                    return ControlFlow::Break(());
                }
            }
            self.received.extend_from_slice(&piece);
            self.deliver(span.start);
            ControlFlow::Continue(())
        })
    }

    fn fetch_whole(&mut self, target: &dyn Target) -> Result<(), TargetError> {
        let known = {
            let state = self.shared.state.lock();
            state.wholes.iter().find(|(name, _)| *name == self.job.object).map(|(_, bytes)| bytes.clone())
        };
        let bytes = match known {
            Some(bytes) => bytes,
            None => {
                let name = object_file(&self.job.object);
                let whole = target.get_whole(&name, OBJECT_BYTES_MAX as u64, None)?;
                let bytes = whole.map(|whole| whole.bytes).unwrap_or_default();
                let mut state = self.shared.state.lock();
                state.schedule.first_piece(self.job.number, self.shared.clock.elapsed());
                // Only an object with its own name can serve other blocks later.
                if ObjectName::of(&bytes) == self.job.object {
                    state.wholes.push_back((self.job.object, bytes.clone()));
                    let surplus = state.wholes.len().saturating_sub(WHOLE_COUNT_MAX);
                    state.wholes.drain(..surplus);
                }
                bytes
            }
        };
        self.received.extend_from_slice(&bytes);
        self.deliver(0);
        match self.job.parts.get(self.done_count) {
            None => Ok(()),
            Some(part) => {
                let end = u64::from(part.offset) + u64::from(part.bytes);
                Err(TargetError::Short { name: object_file(&self.job.object), end })
            }
        }
    }

    /// Delivers the blocks whose last byte has come. The received bytes begin at `start` in the
    /// object.
    fn deliver(&mut self, start: u32) {
        while let Some(part) = self.job.parts.get(self.done_count) {
            let from = to_usize(part.offset.saturating_sub(start));
            let until = from.saturating_add(to_usize(part.bytes));
            let Some(stored) = self.received.get(from..until) else { return };
            self.deliver_block(part, stored);
            self.done_count += 1;
        }
    }

    fn deliver_block(&self, part: &ObjectPart, stored: &[u8]) {
        let shared = self.shared;
        let since = Stopwatch::start();
        let checked = match CheckedBlock::check(stored, &part.name) {
            Ok(checked) => checked,
            Err(error) => {
                let is_first = shared.state.lock().schedule.mirrors.has_lied(self.job.mirror);
                let (mirror, object) = (&**self.mirror, &part.object);
                tracing::error!(
                    mirror, %object, expected = %part.name, found = %error.actual, is_first,
                    "a server has sent other bytes than were published: they are not used"
                );
                if let Some(sink) = shared.sink.upgrade() {
                    sink.wrong_bytes(mirror, object, &part.name, &error.actual);
                }
                return shared.refuse(self.job, part, BlockRefusal::WrongBytes);
            }
        };
        // Another request may have brought it.
        let Some((bytes_max, has_reader)) = ({
            let state = shared.state.lock();
            let flight = state.flights.get(&part.name);
            flight.map(|flight| (flight.content_bytes_max, flight.waiter_count > 0))
        }) else {
            return;
        };
        let is_fill = self.job.urgency == Urgency::Fill && !has_reader;
        let content = if is_fill { Ok(Vec::new()) } else { checked.unpack(&shared.form, bytes_max) };
        let opening = since.elapsed();
        let outcome = match content {
            Ok(content) => {
                let content = Bytes::from(content);
                if let Some(sink) = shared.sink.upgrade().filter(|_| !is_fill) {
                    sink.take_content(&part.name, &content);
                }
                Ok(FetchedBlock { content, mirror: Arc::clone(self.mirror), was_asked: true })
            }
            Err(reason) => Err(FetchError::Unpack { object: part.object, reason }),
        };
        let purpose = match (has_reader, self.job.urgency) {
            (true, _) | (_, Urgency::Demand) => FetchedFor::Reader,
            (false, Urgency::Ahead | Urgency::Profile) => FetchedFor::Ahead,
            (false, Urgency::Fill) => FetchedFor::Fill,
        };
        let mut state = shared.state.lock();
        // A reader may have come while a block for the cache was on its way: it is unpacked for
        // that reader.
        let has_late_reader =
            is_fill && state.flights.get(&part.name).is_some_and(|flight| flight.waiter_count > 0);
        let outcome = match outcome {
            Ok(block) if has_late_reader => match checked.unpack(&shared.form, bytes_max) {
                Ok(content) => Ok(FetchedBlock { content: content.into(), ..block }),
                Err(reason) => Err(FetchError::Unpack { object: part.object, reason }),
            },
            outcome => outcome,
        };
        state.complete(&part.name, outcome);
        drop(state);
        shared.progress.notify_all();
        if let Some(sink) = shared.sink.upgrade() {
            sink.take_stored(&part.name, stored, purpose, opening);
        }
    }
}

fn object_file(object: &ObjectName) -> FileName {
    FileName::new(&object.path()).expect("the path of an object is a valid name")
}
