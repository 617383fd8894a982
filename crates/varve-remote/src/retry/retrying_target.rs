//! Retries. This module alone decides how often to retry and how long to pause.

use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::to_usize;
use varve_world::{FileName, StopSignal};

use crate::attempt_error::AttemptError;
use crate::edge;
use crate::naming::target_listing::TargetListing;
use crate::target::{
    Capabilities, Erased, HiddenObjects, Object, ObjectLock, PutMode, Survey, TakePiece, Target, TargetError,
    WholeObject, longer_than,
};

/// The bytes of an existing object that are compared at a time.
const COMPARED_BYTES: u64 = 8 << 20;

/// Time-outs and retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most attempts of a call; at least one. If an object arrives in pieces, only attempts
    /// without progress count.
    pub try_count_max: u32,
    /// The pause after the first failed attempt. Each further one is twice as long. A random part
    /// of up to a half is subtracted, so that many callers do not retry at the same moment.
    pub first_pause: Duration,
    /// The longest pause, even if the server asks for more.
    pub pause_max: Duration,
    /// The longest silence of the server.
    pub silence_max: Duration,
    /// A slower transfer is given up.
    pub bytes_per_second_min: u64,
}

impl Default for RetryPolicy {
    /// Seven attempts within about two minutes; half a minute of silence.
    fn default() -> Self {
        Self {
            try_count_max: 7,
            first_pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(60),
            silence_max: Duration::from_secs(30),
            bytes_per_second_min: 4 << 10,
        }
    }
}

impl RetryPolicy {
    /// Returns the time-out of a call that moves this many bytes.
    pub(crate) fn time_for(&self, bytes: u64) -> Duration {
        self.silence_max.saturating_add(self.time_at_least_rate(bytes))
    }

    /// Returns the longest time that this many bytes may take to arrive.
    pub(crate) fn time_at_least_rate(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.bytes_per_second_min.max(1))
    }

    /// Computes the pause after attempt `number`, counted from zero. `dice` is random.
    fn pause(&self, number: u32, asked: Option<Duration>, dice: u64) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << number.min(20)).min(self.pause_max);
        let left_out = doubled / 2 * u32::from(dice.to_le_bytes()[0]) / 255;
        (doubled - left_out).max(asked.unwrap_or_default()).min(self.pause_max)
    }
}

/// One attempt of each operation. Each kind of target implements it. Names are those of the store;
/// each home maps them to its own.
pub(crate) trait AttemptTarget: Send + Sync + fmt::Display {
    /// The state of an upload between attempts, so that parts that have arrived are not sent again.
    type Upload: Default;

    /// Returns the guarantees. Asks the server at the first call.
    fn capabilities(&self) -> Result<Capabilities, AttemptError>;

    /// Reports whether the server has sent only the ranges that were requested, as far as is known.
    fn knows_ranges(&self) -> bool {
        true
    }

    /// Reports whether requests share one connection, as [`Target::multiplexes`].
    fn multiplexes(&self) -> bool {
        false
    }

    /// Puts an object.
    fn put(
        &self,
        name: &FileName,
        contents: &Bytes,
        mode: PutMode,
        upload: &mut Self::Upload,
    ) -> Result<(), AttemptError>;

    /// Drops an unfinished upload, so that nothing of it stays behind. Parts that cannot be removed
    /// stay invisible.
    fn abandon(&self, _name: &FileName, _upload: Self::Upload) {}

    /// Reads a range, which must not be empty.
    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, AttemptError>;

    /// Does the same in pieces, as [`Target::get_in_pieces`]. Delivered pieces count, even if the
    /// attempt fails later.
    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        _place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), AttemptError> {
        let _ = take(self.get(name, range)?);
        Ok(())
    }

    /// Reads a whole object, as [`Target::get_whole`].
    fn get_whole(
        &self,
        name: &FileName,
        bytes_max: u64,
        _known: Option<&str>,
    ) -> Result<Option<WholeObject>, AttemptError> {
        let length = self.length(name)?;
        if length > bytes_max {
            return Err(AttemptError::Refused(longer_than(bytes_max)));
        }
        let bytes = if length == 0 { Bytes::new() } else { self.get(name, 0..length)? };
        Ok(Some(WholeObject { bytes, mark: None }))
    }

    /// Returns the length of an object.
    fn length(&self, name: &FileName) -> Result<u64, AttemptError>;

    /// Lists at least the objects below `folder`.
    fn list(&self, folder: &str, into: &mut TargetListing) -> Result<(), AttemptError>;

    /// Returns the objects that are no longer listed, as [`Target::hidden`].
    fn hidden(&self) -> Result<Option<HiddenObjects>, AttemptError> {
        Ok(None)
    }

    /// Returns the lock of an object, as [`Target::lock`].
    fn lock(&self, _name: &FileName) -> Result<Option<ObjectLock>, AttemptError> {
        Ok(None)
    }

    /// Removes an object.
    fn remove(&self, name: &FileName) -> Result<(), AttemptError>;

    /// Removes an object for good, as [`Target::erase`].
    fn erase(&self, name: &FileName) -> Result<Erased, AttemptError> {
        self.remove(name).map(|()| Erased::Gone)
    }

    /// Removes a leftover that a listing has found, by its path below the target's folder.
    fn remove_leftover(&self, _path: &str) -> Result<(), AttemptError> {
        Err(AttemptError::refused("nothing is left behind here"))
    }
}

/// A home with retries.
pub(crate) struct RetryingTarget<H> {
    home: H,
    patience: RetryPolicy,
    /// Set when the caller no longer waits for answers.
    stop: StopSignal,
    busy: Mutex<BusyServer>,
    /// The leftovers of dead writers in the last full listing.
    leftovers: Mutex<Vec<String>>,
}

/// The pauses for a server that is too busy. All threads pause together: if each paused by itself,
/// the server would hear from one of them all the time.
#[derive(Default)]
struct BusyServer {
    /// No request is sent before this time.
    until: Option<Instant>,
    /// The number of pauses since the last answer.
    pause_count: u32,
}

/// Adds advice to an error of a refused connection. Libraries report that only in their texts.
fn with_advice(error: io::Error) -> io::Error {
    let is_refused =
        error.kind() == io::ErrorKind::ConnectionRefused || error.to_string().contains("Connection refused");
    if is_refused {
        let advice = "no server accepts connections there: check that it runs, and its name and port";
        return io::Error::new(error.kind(), format!("{error}: {advice}"));
    }
    error
}

impl<H: AttemptTarget> RetryingTarget<H> {
    pub fn new(home: H, patience: RetryPolicy, stop: StopSignal) -> Self {
        Self { home, patience, stop, busy: Mutex::default(), leftovers: Mutex::default() }
    }

    /// Sleeps until a time, and as long as the server is too busy. Returns true if the caller still
    /// waits for an answer.
    fn pause(&self, until: Instant) -> bool {
        loop {
            let until = self.busy.lock().until.map_or(until, |busy| busy.max(until));
            match until.checked_duration_since(edge::now()).filter(|left| !left.is_zero()) {
                None => return !self.stop.is_set(),
                Some(left) if self.stop.wait(left) => return false,
                Some(_) => {}
            }
        }
    }

    /// Notes that the server is too busy. Returns the end of the pause.
    fn note_busy(&self, asked: Option<Duration>, dice: u64) -> Instant {
        let (now, mut busy) = (edge::now(), self.busy.lock());
        // Requests that were under way when the pause began belong to it.
        if busy.until.is_none_or(|until| until <= now) {
            busy.pause_count = busy.pause_count.saturating_add(1);
        }
        let pause = self.patience.pause(busy.pause_count.saturating_sub(1), asked, dice);
        let until = busy.until.map_or(now + pause, |until| until.max(now + pause));
        busy.until = Some(until);
        until
    }

    fn note_answer(&self) {
        let mut busy = self.busy.lock();
        if busy.until.is_some_and(|until| until <= edge::now()) {
            *busy = BusyServer::default();
        }
    }

    /// Tries until an attempt succeeds or a retry cannot help. The argument of `one_try` is true if
    /// an earlier attempt may have succeeded with a lost answer.
    fn persist<T>(
        &self,
        what: &str,
        mut one_try: impl FnMut(bool) -> Result<T, AttemptError>,
    ) -> Result<T, AttemptError> {
        let mut number = 0;
        // A call whose caller no longer waits makes one attempt.
        self.pause(edge::now());
        loop {
            let (error, asked) = match one_try(number > 0) {
                Err(AttemptError::Passing(error, asked)) => (error, asked),
                outcome => {
                    self.note_answer();
                    return outcome;
                }
            };
            // Without a random number, the pause is only less random.
            let dice = edge::draw().unwrap_or(0);
            let until = match asked {
                Some(_) => self.note_busy(asked, dice),
                None => edge::now() + self.patience.pause(number, None, dice),
            };
            if number + 1 >= self.patience.try_count_max {
                return Err(AttemptError::Passing(with_advice(error), asked));
            }
            let pause = until.saturating_duration_since(edge::now());
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(target = %self.home, what, pause_ms, %error, "failed, will try again");
            if !self.pause(until) {
                let said = format!("interrupted before the next attempt: {error}");
                return Err(AttemptError::Passing(io::Error::new(error.kind(), said), asked));
            }
            number += 1;
        }
    }

    /// Lists at least the objects below a folder. A full listing also records the leftovers of dead
    /// writers.
    fn listed(&self, folder: &str) -> Result<TargetListing, TargetError> {
        let outcome = self.persist("listing", |_| {
            let mut listing = TargetListing::default();
            self.home.list(folder, &mut listing)?;
            if folder.is_empty() {
                *self.leftovers.lock() = listing.dead_leftovers();
            }
            Ok(listing)
        });
        outcome.map_err(|trouble| self.listing_error(folder, trouble))
    }

    fn listing_error(&self, folder: &str, trouble: AttemptError) -> TargetError {
        let what = if folder.is_empty() { self.to_string() } else { format!("{self}: {folder}") };
        match trouble {
            AttemptError::Refused(source) => TargetError::Refused { what, source },
            AttemptError::Passing(source, _) => TargetError::Failed { what, source },
            other => {
                let source = io::Error::other(format!("unexpected answer to a listing: {other:?}"));
                TargetError::Failed { what, source }
            }
        }
    }

    /// Returns true if an object has these contents.
    fn holds(&self, name: &FileName, contents: &Bytes) -> Result<bool, AttemptError> {
        let length = contents.len() as u64;
        if self.home.length(name)? != length {
            return Ok(false);
        }
        let mut start = 0;
        while start < length {
            let end = length.min(start + COMPARED_BYTES);
            let expected = contents.get(to_usize(start)..to_usize(end));
            if Some(self.home.get(name, start..end)?.as_ref()) != expected {
                return Ok(false);
            }
            start = end;
        }
        Ok(true)
    }
}

impl<H: AttemptTarget> fmt::Display for RetryingTarget<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.home.fmt(f)
    }
}

impl<H: AttemptTarget> Target for RetryingTarget<H> {
    fn capabilities(&self) -> Capabilities {
        // An unreachable target guarantees nothing. Its next call reports the reason.
        self.persist("capabilities", |_| self.home.capabilities())
            .unwrap_or(Capabilities { create_is_exclusive: false, ranges: false })
    }

    fn knows_ranges(&self) -> bool {
        self.home.knows_ranges()
    }

    fn multiplexes(&self) -> bool {
        self.home.multiplexes()
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        let mut upload = H::Upload::default();
        let outcome = self.persist(name.as_str(), |in_doubt| {
            match self.home.put(name, &contents, mode, &mut upload) {
                // The object may come from an earlier attempt of this call, whose answer was lost.
                Err(AttemptError::Exists) if in_doubt && self.holds(name, &contents)? => Ok(()),
                outcome => outcome,
            }
        });
        if outcome.is_err() {
            self.home.abandon(name, upload);
        }
        outcome.map_err(|trouble| trouble.of_object(name, contents.len() as u64))
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        let end = range.end;
        let outcome = if range.start < range.end {
            self.persist(name.as_str(), |_| self.home.get(name, range.clone()))
        } else if range.start > range.end {
            Err(AttemptError::Short)
        } else {
            let length = self.persist(name.as_str(), |_| self.home.length(name));
            length.and_then(|length| if end <= length { Ok(Bytes::new()) } else { Err(AttemptError::Short) })
        };
        outcome.map_err(|trouble| trouble.of_object(name, end))
    }

    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), TargetError> {
        if range.start >= range.end {
            return self.get(name, range).map(drop);
        }
        let (mut came, mut flow) = (0, ControlFlow::Continue(()));
        let outcome = loop {
            let before = came;
            let outcome = self.persist(name.as_str(), |_| {
                // Each attempt continues where the previous one ended.
                let rest = range.start + came..range.end;
                let outcome = self.home.get_in_pieces(name, rest, place + came, &mut |piece| {
                    came += piece.len() as u64;
                    flow = take(piece);
                    flow
                });
                let is_done = flow.is_break() || range.start + came >= range.end;
                if is_done { Ok(()) } else { outcome }
            });
            // An attempt with progress does not count as failed.
            if came == before || !matches!(outcome, Err(AttemptError::Passing(..))) {
                break outcome;
            }
        };
        outcome.map_err(|trouble| trouble.of_object(name, range.end))
    }

    fn get_whole(
        &self,
        name: &FileName,
        bytes_max: u64,
        known: Option<&str>,
    ) -> Result<Option<WholeObject>, TargetError> {
        let outcome = self.persist(name.as_str(), |_| self.home.get_whole(name, bytes_max, known));
        outcome.map_err(|trouble| trouble.of_object(name, bytes_max))
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        Ok(self.listed(folder)?.finish(folder))
    }

    fn survey(&self) -> Result<Survey, TargetError> {
        Ok(self.listed("")?.survey())
    }

    fn hidden(&self) -> Result<Option<HiddenObjects>, TargetError> {
        let outcome = self.persist("hidden objects", |_| self.home.hidden());
        outcome.map_err(|trouble| self.listing_error("", trouble))
    }

    fn lock(&self, name: &FileName) -> Result<Option<ObjectLock>, TargetError> {
        let outcome = self.persist(name.as_str(), |_| self.home.lock(name));
        outcome.map_err(|trouble| trouble.of_object(name, 0))
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        let outcome = self.persist(name.as_str(), |in_doubt| match self.home.remove(name) {
            // An earlier attempt of this call may have removed it, with a lost answer.
            Err(AttemptError::NotFound) if in_doubt => Ok(()),
            outcome => outcome,
        });
        outcome.map_err(|trouble| trouble.of_object(name, 0))
    }

    fn erase(&self, name: &FileName) -> Result<Erased, TargetError> {
        let outcome = self.persist(name.as_str(), |in_doubt| match self.home.erase(name) {
            Err(AttemptError::NotFound) if in_doubt => Ok(Erased::Gone),
            outcome => outcome,
        });
        outcome.map_err(|trouble| trouble.of_object(name, 0))
    }

    fn remove_leftovers(&self) -> usize {
        let mut removed_count = 0;
        for path in std::mem::take(&mut *self.leftovers.lock()) {
            match self.home.remove_leftover(&path) {
                Ok(()) | Err(AttemptError::NotFound) => removed_count += 1,
                // A leftover may stay: it is invisible, and the next listing finds it again.
                Err(trouble) => {
                    tracing::info!(target = %self.home, path, ?trouble, "what a dead writer has left stays");
                    break;
                }
            }
        }
        removed_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryTarget;

    /// A home in memory that fails according to a script, before or after the operation is done.
    #[derive(Default)]
    struct Moody {
        objects: MemoryTarget,
        script: Mutex<Vec<(bool, AttemptError)>>,
        calls: Mutex<u32>,
        /// The length of a piece, and the number of pieces that one call delivers before it fails.
        pieces: Option<(usize, usize)>,
    }

    impl Moody {
        fn new(script: Vec<(bool, AttemptError)>) -> RetryingTarget<Self> {
            let home = Self { script: Mutex::new(script), ..Self::default() };
            let first_pause = Duration::from_millis(1);
            RetryingTarget::new(
                home,
                RetryPolicy { try_count_max: 4, first_pause, ..RetryPolicy::default() },
                StopSignal::default(),
            )
        }

        fn meet<T>(&self, act: impl FnOnce() -> Result<T, TargetError>) -> Result<T, AttemptError> {
            *self.calls.lock() += 1;
            let mut script = self.script.lock();
            if let Some((done, trouble)) = (!script.is_empty()).then(|| script.remove(0)) {
                if done {
                    drop(act());
                }
                return Err(trouble);
            }
            act().map_err(|error| match error {
                TargetError::NotFound { .. } => AttemptError::NotFound,
                TargetError::Exists { .. } => AttemptError::Exists,
                TargetError::Short { .. } => AttemptError::Short,
                other => AttemptError::refused(other.to_string()),
            })
        }
    }

    impl fmt::Display for Moody {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("moody")
        }
    }

    impl AttemptTarget for Moody {
        type Upload = ();

        fn capabilities(&self) -> Result<Capabilities, AttemptError> {
            Ok(self.objects.capabilities())
        }

        fn put(
            &self,
            name: &FileName,
            contents: &Bytes,
            mode: PutMode,
            (): &mut (),
        ) -> Result<(), AttemptError> {
            self.meet(|| self.objects.put(name, contents.clone(), mode))
        }

        fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, AttemptError> {
            self.meet(|| self.objects.get(name, range))
        }

        fn get_in_pieces(
            &self,
            name: &FileName,
            range: Range<u64>,
            _place: u64,
            take: &mut TakePiece<'_>,
        ) -> Result<(), AttemptError> {
            let whole = self.get(name, range)?;
            let (length, count) = self.pieces.unwrap_or((whole.len(), usize::MAX));
            for (number, piece) in whole.chunks(length).enumerate() {
                if number == count {
                    return Err(AttemptError::passing("cut off"));
                }
                if take(whole.slice_ref(piece)).is_break() {
                    return Ok(());
                }
            }
            Ok(())
        }

        fn length(&self, name: &FileName) -> Result<u64, AttemptError> {
            let listed = self.objects.list("").unwrap();
            let found = listed.into_iter().find(|object| object.name == *name);
            found.map(|object| object.bytes).ok_or(AttemptError::NotFound)
        }

        fn list(&self, folder: &str, into: &mut TargetListing) -> Result<(), AttemptError> {
            let objects = self.meet(|| self.objects.list(folder))?;
            objects.iter().try_for_each(|object| into.push(object.name.as_str(), object.bytes))
        }

        fn remove(&self, name: &FileName) -> Result<(), AttemptError> {
            self.meet(|| self.objects.remove(name))
        }
    }

    fn name() -> FileName {
        FileName::new("object").unwrap()
    }

    fn calls(target: &RetryingTarget<Moody>) -> u32 {
        *target.home.calls.lock()
    }

    #[test]
    fn a_server_that_is_too_busy_is_left_alone_by_all_threads() {
        let busy = || (false, AttemptError::busy("503".into()));
        let target = Moody::new(vec![busy(), busy()]);
        target.home.objects.put(&name(), Bytes::from_static(b"x"), PutMode::Create).unwrap();
        // Another thread has met a busy server.
        let asked = Some(Duration::from_millis(30));
        let until = target.note_busy(asked, 0);
        assert_eq!(target.get(&name(), 0..1).unwrap(), "x");
        assert!(edge::now() >= until);
        assert_eq!(calls(&target), 3);
        assert_eq!(target.busy.lock().pause_count, 0, "an answer ends it");
        // The requests that were under way belong to one pause. The next pause is longer.
        let hour = Some(Duration::from_secs(3_600));
        let until = [0, 1, 2].map(|dice| target.note_busy(hour, dice));
        assert_eq!(target.busy.lock().pause_count, 1);
        assert!(until[0] <= until[1] && until[1] <= until[2]);
    }

    #[test]
    fn nothing_is_tried_again_for_whom_nobody_waits() {
        let passing = || (false, AttemptError::passing("gone for now"));
        let home = Moody { script: Mutex::new(vec![passing(), passing()]), ..Moody::default() };
        let stop = StopSignal::default();
        stop.set();
        let patience = RetryPolicy { first_pause: Duration::from_secs(3600), ..RetryPolicy::default() };
        let target = RetryingTarget::new(home, patience, stop);
        let error = target.get(&FileName::new("x").unwrap(), 0..1).unwrap_err();
        let said = varve_block::with_causes(&error);
        assert!(said.contains("interrupted before the next attempt: gone for now"), "{said}");
        assert_eq!(*target.home.calls.lock(), 1);
    }

    #[test]
    fn keeps_the_contract() {
        crate::contract::check(&mut || Box::new(Moody::new(Vec::new())));
    }

    #[test]
    fn what_may_pass_is_tried_again_and_the_rest_is_not() {
        let target =
            Moody::new(vec![(false, AttemptError::passing("reset")), (false, AttemptError::passing("503"))]);
        target.put(&name(), Bytes::from_static(b"x"), PutMode::Create).unwrap();
        assert_eq!(calls(&target), 3);

        let target = Moody::new(vec![(false, AttemptError::refused("403"))]);
        let refused = target.put(&name(), Bytes::from_static(b"x"), PutMode::Create);
        assert!(matches!(refused, Err(TargetError::Refused { .. })), "{refused:?}");
        assert_eq!(calls(&target), 1);

        let target = Moody::new((0..9).map(|_| (false, AttemptError::passing("503"))).collect());
        let failed = target.list("");
        assert!(matches!(failed, Err(TargetError::Failed { .. })), "{failed:?}");
        assert_eq!(calls(&target), 4);
    }

    #[test]
    fn who_finds_no_server_is_told_what_to_look_at() {
        let refused = || AttemptError::Passing(io::ErrorKind::ConnectionRefused.into(), None);
        let as_text = || AttemptError::passing("tcp connect error: Connection refused (os error 111)");
        for trouble in [refused as fn() -> AttemptError, as_text] {
            let target = Moody::new((0..9).map(|_| (false, trouble())).collect());
            let failed = target.list("").unwrap_err();
            let source = std::error::Error::source(&failed).unwrap().to_string();
            assert!(
                source.to_lowercase().contains("connection refused: no server accepts connections there")
                    || source.contains("(os error 111): no server accepts"),
                "{source}"
            );
            assert!(source.ends_with("check that it runs, and its name and port"), "{source}");
        }
    }

    #[test]
    fn a_creation_whose_answer_was_lost_is_ours() {
        let target = Moody::new(vec![(true, AttemptError::passing("reset"))]);
        target.put(&name(), Bytes::from_static(b"ours"), PutMode::Create).unwrap();
    }

    #[test]
    fn a_creation_that_somebody_else_won_meanwhile_is_not_ours() {
        for theirs in ["them", "longer than ours"] {
            let target = Moody::new(vec![(false, AttemptError::passing("reset"))]);
            target.home.objects.set(&name(), Some(theirs.into()));
            let exists = target.put(&name(), Bytes::from_static(b"ours"), PutMode::Create);
            assert!(matches!(exists, Err(TargetError::Exists { .. })), "{exists:?}");
        }
    }

    #[test]
    fn a_removal_whose_answer_was_lost_is_done() {
        let target = Moody::new(vec![(true, AttemptError::passing("reset"))]);
        target.home.objects.set(&name(), Some(Bytes::new()));
        target.remove(&name()).unwrap();
    }

    #[test]
    fn pauses_grow_and_end_and_the_other_side_is_heard() {
        let patience = RetryPolicy::default();
        let pauses: Vec<_> = (0..8).map(|number| patience.pause(number, None, 0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(patience.pause(2, None, 255), Duration::from_secs(2));
        assert_eq!(patience.pause(0, Some(Duration::from_secs(7)), 0), Duration::from_secs(7));
        assert_eq!(patience.pause(0, Some(Duration::from_secs(7000)), 0), Duration::from_secs(60));
    }

    #[test]
    fn what_has_come_of_an_object_does_not_come_again() {
        let contents: Vec<u8> = (0..100).collect();
        let taken = |pieces, end: usize| {
            let home = Moody { pieces: Some(pieces), ..Moody::default() };
            home.objects.set(&name(), Some(contents.clone().into()));
            let patience = RetryPolicy {
                try_count_max: 4,
                first_pause: Duration::from_millis(1),
                ..RetryPolicy::default()
            };
            let target = RetryingTarget::new(home, patience, StopSignal::default());
            let mut taken = Vec::new();
            let outcome = target.get_in_pieces(&name(), 10..90, 10, &mut |piece| {
                taken.extend_from_slice(&piece);
                if taken.len() < end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            (outcome.is_ok(), taken, calls(&target))
        };
        assert_eq!(
            taken((7, 3), 80),
            (true, contents[10..90].to_vec(), 4),
            "21 bytes in each of three tries, and the rest"
        );
        assert_eq!(
            taken((7, 2), 80),
            (true, contents[10..90].to_vec(), 6),
            "two pieces in each try, and more tries than are made in vain"
        );
        assert_eq!(taken((7, 0), 80), (false, Vec::new(), 4), "nothing in any try");
        assert_eq!(taken((7, 3), 20), (true, contents[10..31].to_vec(), 1), "enough");
        assert_eq!(
            taken((20, 4), 999),
            (true, contents[10..90].to_vec(), 1),
            "all of it came before it failed"
        );
    }
}
