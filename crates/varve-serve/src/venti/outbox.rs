//! The sending side of one client. Each thread sends its own answers. If another thread is sending,
//! that thread sends these answers, too. If the client does not take them at once, a single task
//! waits for it and sends the rest. An answer therefore needs no switch of threads as long as the
//! client keeps up.
//!
//! Invariants:
//! - An answer that has been started is completed before anything else is sent.
//! - Tags are released before their answers are sent, because the client may reuse a tag as soon as
//!   it has the answer.
//! - A thread that gives up the socket looks once more for waiting answers: the threads that queued
//!   them found the socket taken, and have left.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::answers::ReplyQueue;
use super::byte_budget::{RegisteredClient, ReservedBytes};
use super::connection_error::VentiConnectionError;

/// The minimum number of bytes per second that a client must take while answers wait for it.
const TAKEN_BYTES_MIN: u64 = 64 << 10;

/// Answers that are being sent.
struct OutgoingReplies {
    answers: ReplyQueue,
    sent: usize,
    _taken: Option<ReservedBytes>,
    /// The tags of the answered requests, until they are released.
    tags: Vec<u8>,
}

/// The sending half of a connection.
type SocketWriter = Box<dyn AsyncWrite + Send + Unpin>;

struct SendingHalf {
    writer: SocketWriter,
    /// The answers that have been sent in part. A thread that finds some here has nothing to do:
    /// the task has been signalled, and completes them.
    current: Option<OutgoingReplies>,
}

struct OutboxShared {
    way: Mutex<SendingHalf>,
    /// `None` once nothing is sent any more: queued answers would hold their room for ever.
    waiting: Mutex<Option<VecDeque<OutgoingReplies>>>,
    freed: Mutex<Vec<u8>>,
}

/// The handle for threads that have answers.
#[derive(Clone)]
pub(super) struct Outbox {
    shared: Arc<OutboxShared>,
    /// Signals the task that something was sent in part.
    begun: mpsc::UnboundedSender<()>,
}

/// The task that completes partial sends, and then sends the answers that wait.
pub(super) struct SendRemainder {
    shared: Arc<OutboxShared>,
    begun: mpsc::UnboundedReceiver<()>,
}

/// Makes an outbox for a writer, and its task.
pub(super) fn outbox(writer: SocketWriter) -> (Outbox, SendRemainder) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let way = Mutex::new(SendingHalf { writer, current: None });
    let shared =
        Arc::new(OutboxShared { way, waiting: Mutex::new(Some(VecDeque::new())), freed: Mutex::default() });
    (Outbox { shared: Arc::clone(&shared), begun: sender }, SendRemainder { shared, begun: receiver })
}

impl Outbox {
    /// Sends answers, or queues them for the thread that is sending. If the client takes no more
    /// answers, drops them.
    pub(super) fn send(&self, answers: ReplyQueue, tags: Vec<u8>, taken: Option<ReservedBytes>) {
        let outgoing = OutgoingReplies { answers, sent: 0, tags, _taken: taken };
        match &mut *self.shared.waiting.lock() {
            Some(waiting) => waiting.push_back(outgoing),
            None => return,
        }
        while let Some(mut way) = self.shared.free_way() {
            let mut nobody = Context::from_waker(Waker::noop());
            // The task meets the same error again and reports it.
            if !matches!(self.shared.poll_all(&mut way, &mut nobody), Poll::Ready(Ok(()))) {
                self.begun.send(()).ok();
                return;
            }
        }
    }

    /// Passes on each tag whose answer has been sent, or is about to be.
    pub(super) fn take_freed(&self, mut each: impl FnMut(u8)) {
        self.shared.freed.lock().drain(..).for_each(&mut each);
    }

    /// Returns when nothing can be sent any more.
    pub(super) async fn closed(&self) {
        self.begun.closed().await;
    }
}

impl SendRemainder {
    /// Sends what other threads leave, until the outbox is closed, or the client takes too little
    /// for too long.
    pub(super) async fn send(
        mut self,
        patience: Duration,
        taker: RegisteredClient,
    ) -> Result<(), VentiConnectionError> {
        while self.begun.recv().await.is_some() {
            let mut pace = ClientPace::new(patience);
            while self.is_left() {
                taker.note_taken();
                let some = poll_fn(|context| self.shared.poll_some(&mut self.shared.way.lock(), context));
                tokio::select! {
                    biased;
                    sent = timeout_at(pace.until, some) => pace.note(sent.unwrap_or(Ok(0))?)?,
                    () = taker.gives_way() => return Err(VentiConnectionError::GaveWay),
                }
            }
            taker.note_all_taken();
        }
        // This direction is finished; the other one may still be open.
        let end = poll_fn(|context| Pin::new(&mut self.shared.way.lock().writer).poll_shutdown(context));
        drop(timeout(patience, end).await);
        Ok(())
    }

    /// Reports whether there is anything to send.
    fn is_left(&self) -> bool {
        let is_begun = self.shared.way.lock().current.is_some();
        fence(Ordering::SeqCst);
        is_begun || self.shared.has_waiting()
    }
}

/// Measures how much a client takes in each period.
struct ClientPace {
    patience: Duration,
    until: Instant,
    taken: u64,
}

impl ClientPace {
    fn new(patience: Duration) -> Self {
        Self { patience, until: Instant::now() + patience, taken: 0 }
    }

    fn note(&mut self, taken: usize) -> Result<(), VentiConnectionError> {
        self.taken += taken as u64;
        if Instant::now() < self.until {
            return Ok(());
        }
        let enough = (u128::from(TAKEN_BYTES_MIN) * self.patience.as_millis() / 1000).max(1);
        if u128::from(self.taken) < enough {
            return Err(VentiConnectionError::TakesNothing);
        }
        *self = Self::new(self.patience);
        Ok(())
    }
}

impl Drop for SendRemainder {
    fn drop(&mut self) {
        *self.shared.waiting.lock() = None;
        self.shared.way.lock().current = None;
    }
}

impl OutboxShared {
    /// Locks the socket, if it is free, nothing is partly sent, and answers wait.
    fn free_way(&self) -> Option<MutexGuard<'_, SendingHalf>> {
        // Orders the queueing of an answer (or the unlocking of the socket) before the check that
        // follows. Of two threads that meet here, at least one sees the other's action.
        fence(Ordering::SeqCst);
        if !self.has_waiting() {
            return None;
        }
        let way = self.way.try_lock()?;
        way.current.is_none().then_some(way)
    }

    fn has_waiting(&self) -> bool {
        self.waiting.lock().as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    /// Sends all waiting answers, as far as the client takes them now.
    fn poll_all(&self, way: &mut SendingHalf, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while way.current.is_some() || self.begin_next(way) {
            ready!(way.poll_some(context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends a part of the current answer or of the next one, and returns its length.
    fn poll_some(&self, way: &mut SendingHalf, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if way.current.is_some() || self.begin_next(way) {
            return way.poll_some(context);
        }
        Poll::Ready(Ok(0))
    }

    fn pop_waiting(&self) -> Option<OutgoingReplies> {
        self.waiting.lock().as_mut()?.pop_front()
    }

    /// Starts the answer that has waited longest; returns `false` if there is none.
    fn begin_next(&self, way: &mut SendingHalf) -> bool {
        while let Some(mut outgoing) = self.pop_waiting() {
            self.freed.lock().append(&mut outgoing.tags);
            if !outgoing.answers.is_empty() {
                way.current = Some(outgoing);
                return true;
            }
        }
        false
    }
}

impl SendingHalf {
    /// Sends as much of the current answer as the client takes now, and returns its length.
    fn poll_some(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(outgoing) = &mut self.current else { return Poll::Ready(Ok(0)) };
        let mut count = 0;
        if outgoing.sent < outgoing.answers.len() {
            let pieces = outgoing.answers.pieces(outgoing.sent);
            count = ready!(Pin::new(&mut self.writer).poll_write_vectored(context, &pieces))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            outgoing.sent += count;
        }
        if outgoing.sent >= outgoing.answers.len() {
            // A TLS writer holds data back until it is flushed.
            match Pin::new(&mut self.writer).poll_flush(context) {
                Poll::Ready(flushed) => {
                    flushed?;
                    self.current = None;
                }
                Poll::Pending if count == 0 => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(Ok(count))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use varve_venti::{VentiReply, Version};

    use super::super::byte_budget::{ByteBudget, CommonBudget};

    use super::*;

    fn answers(number: u8) -> ReplyQueue {
        let mut answers = ReplyQueue::default();
        answers.put(Version::V04, number, VentiReply::Read(vec![number; 3000].into()));
        answers
    }

    fn encoded(number: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        VentiReply::Read(vec![number; 3000].into()).encode(Version::V04, number, &mut bytes).unwrap();
        bytes
    }

    fn alone() -> RegisteredClient {
        CommonBudget::new(1 << 20).enter(ByteBudget::new(1 << 20))
    }

    fn run<T>(something: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap().block_on(something)
    }

    #[test]
    fn what_many_send_at_the_same_time_arrives_whole() {
        for taken_at_a_time in [1, 100, 1 << 20] {
            let received = run(async {
                let (here, mut there) = tokio::io::duplex(taken_at_a_time);
                let (outbox, remainder) = outbox(Box::new(here));
                let rest = tokio::spawn(remainder.send(Duration::from_secs(60), alone()));
                let senders: Vec<_> = (0..4_u8)
                    .map(|sender| {
                        let outbox = outbox.clone();
                        tokio::spawn(async move {
                            for number in 0..10 {
                                outbox.send(answers(10 * sender + number), vec![number], None);
                                tokio::task::yield_now().await;
                            }
                        })
                    })
                    .collect();
                let freed = outbox.clone();
                drop(outbox);
                let mut received = vec![0; 40 * encoded(0).len()];
                there.read_exact(&mut received).await.unwrap();
                for sender in senders {
                    sender.await.unwrap();
                }
                let mut freed_count = 0;
                freed.take_freed(|_| freed_count += 1);
                assert_eq!(freed_count, 40);
                drop(freed);
                rest.await.unwrap().unwrap();
                assert_eq!(there.read(&mut [0]).await.unwrap(), 0, "the end is told");
                received
            });
            let mut numbers: Vec<u8> = received
                .chunks(encoded(0).len())
                .map(|message| {
                    assert!(message == encoded(message[5]), "{taken_at_a_time}");
                    message[5]
                })
                .collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..40).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn who_takes_nothing_is_given_up_and_nobody_waits_for_them() {
        run(async {
            let (here, _there) = tokio::io::duplex(16);
            let (outbox, remainder) = outbox(Box::new(here));
            let rest = tokio::spawn(remainder.send(Duration::from_millis(20), alone()));
            for number in 0..3 {
                outbox.send(answers(number), vec![number], None);
            }
            assert!(matches!(rest.await.unwrap(), Err(VentiConnectionError::TakesNothing)));
            outbox.closed().await;
            outbox.send(answers(3), vec![3], None);
        });
    }

    #[test]
    fn who_takes_a_little_now_and_then_is_given_up_and_who_takes_enough_is_not() {
        run(async {
            // The client takes one byte every few milliseconds, or a kilobyte.
            for (taken_at_a_time, is_enough) in [(1, false), (1000, true)] {
                let (here, mut there) = tokio::io::duplex(taken_at_a_time);
                let (outbox, remainder) = outbox(Box::new(here));
                let rest = tokio::spawn(remainder.send(Duration::from_millis(100), alone()));
                for number in 0..30 {
                    outbox.send(answers(number), vec![number], None);
                }
                drop(outbox);
                let mut piece = vec![0; taken_at_a_time];
                while there.read(&mut piece).await.unwrap() > 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                let ended = rest.await.unwrap();
                assert_eq!(ended.is_ok(), is_enough, "{ended:?}");
            }
        });
    }

    #[test]
    fn what_is_sent_to_nobody_is_an_error_of_the_connection() {
        run(async {
            let (here, there) = tokio::io::duplex(16);
            drop(there);
            let (outbox, remainder) = outbox(Box::new(here));
            outbox.send(answers(0), vec![0], None);
            let ended = remainder.send(Duration::from_secs(60), alone()).await;
            assert!(matches!(ended, Err(VentiConnectionError::Socket(_))), "{ended:?}");
        });
    }
}
