//! The way out to one client. Whoever has an answer sends it, there and then; what finds the way taken, or a client that takes nothing at the moment, is left to
//! one task that waits for it. So an answer costs no change of threads as long as the client takes what it has asked for.
//!
//! What must always be true:
//! - What was begun is ended before anything else is sent.
//! - Tags are free before their answers are sent: the client may use them again as soon as it has one.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answers::Answers;
use super::connection::ConnectionError;
use super::room::Taken;

/// Answers on their way out.
struct Outgoing {
    answers: Answers,
    sent: usize,
    _taken: Option<Taken>,
    /// Whose requests they answer, until they are free.
    tags: Vec<u8>,
}

/// What can be sent through.
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

struct Way {
    writer: Writer,
    /// What was begun.
    current: Option<Outgoing>,
}

struct Shared {
    way: Mutex<Way>,
    freed: Mutex<Vec<u8>>,
    /// How many wait their turn. As long as there are any, nobody goes before them.
    waiting: AtomicUsize,
}

/// For everybody who has answers.
#[derive(Clone)]
pub(super) struct Outbox {
    shared: Arc<Shared>,
    /// Those who wait; `None` says that something was begun.
    queue: mpsc::UnboundedSender<Option<Outgoing>>,
}

/// Sends what others have left.
pub(super) struct Remainder {
    shared: Arc<Shared>,
    queue: mpsc::UnboundedReceiver<Option<Outgoing>>,
}

/// The way out through a writer.
pub(super) fn outbox(writer: Writer) -> (Outbox, Remainder) {
    let (sender, queue) = mpsc::unbounded_channel();
    let way = Mutex::new(Way { writer, current: None });
    let shared = Arc::new(Shared { way, freed: Mutex::default(), waiting: AtomicUsize::new(0) });
    (Outbox { shared: Arc::clone(&shared), queue: sender }, Remainder { shared, queue })
}

impl Outbox {
    /// Sends answers, or leaves them to be sent. Who takes no answers any more is not sent any.
    pub(super) fn send(&self, answers: Answers, tags: Vec<u8>, taken: Option<Taken>) {
        let outgoing = Outgoing { answers, sent: 0, tags, _taken: taken };
        let Some(mut way) = self.free_way() else {
            self.shared.waiting.fetch_add(1, Ordering::SeqCst);
            drop(self.queue.send(Some(outgoing)));
            return;
        };
        self.shared.begin(&mut way, outgoing);
        let mut nobody = Context::from_waker(Waker::noop());
        while way.current.is_some() {
            // An error is met again by the one who is told of it.
            if !matches!(way.poll_some(&mut nobody), Poll::Ready(Ok(()))) {
                drop(self.queue.send(None));
                return;
            }
        }
    }

    /// Tags whose answers were sent, or are about to be.
    pub(super) fn take_freed(&self, mut each: impl FnMut(u8)) {
        lock(&self.shared.freed).drain(..).for_each(&mut each);
    }

    /// Returns when nothing can be sent any more.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }

    fn free_way(&self) -> Option<MutexGuard<'_, Way>> {
        let way = self.shared.way.try_lock().ok()?;
        // Asked with the way in hand: whoever is counted has not given it up yet.
        let is_free = way.current.is_none() && self.shared.waiting.load(Ordering::SeqCst) == 0;
        is_free.then_some(way)
    }
}

impl Remainder {
    /// Sends what is left to it, until there will be no more, or the client takes nothing for too long.
    pub(super) async fn send(mut self, patience: Duration) -> Result<(), ConnectionError> {
        while let Some(next) = self.queue.recv().await {
            self.finish(patience).await?;
            if let Some(outgoing) = next {
                self.begin_next(outgoing);
                self.finish(patience).await?;
            }
        }
        // The other direction may still be open; this one is at its end.
        let end = poll_fn(|context| Pin::new(&mut lock(&self.shared.way).writer).poll_shutdown(context));
        drop(timeout(patience, end).await);
        Ok(())
    }

    /// Begins one that waited. As it did, nobody has begun anything meanwhile.
    fn begin_next(&self, outgoing: Outgoing) {
        let mut way = lock(&self.shared.way);
        self.shared.begin(&mut way, outgoing);
        self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends what was begun.
    async fn finish(&self, patience: Duration) -> Result<(), ConnectionError> {
        let is_begun = || lock(&self.shared.way).current.is_some();
        while is_begun() {
            let some = poll_fn(|context| lock(&self.shared.way).poll_some(context));
            timeout(patience, some).await.map_err(|_| ConnectionError::TakesNothing)??;
        }
        Ok(())
    }
}

impl Shared {
    fn begin(&self, way: &mut Way, mut outgoing: Outgoing) {
        lock(&self.freed).append(&mut outgoing.tags);
        way.current = (!outgoing.answers.is_empty()).then_some(outgoing);
    }
}

impl Way {
    /// Sends as much as is taken now of what was begun.
    fn poll_some(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(outgoing) = &mut self.current else { return Poll::Ready(Ok(())) };
        let pieces = outgoing.answers.pieces(outgoing.sent);
        let count = ready!(Pin::new(&mut self.writer).poll_write_vectored(context, &pieces))?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        outgoing.sent += count;
        if outgoing.sent >= outgoing.answers.len() {
            self.current = None;
        }
        Poll::Ready(Ok(()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use varve_venti::{Reply, Version};

    use super::*;

    fn answers(number: u8) -> Answers {
        let mut answers = Answers::default();
        answers.put(Version::V04, number, Reply::Read(vec![number; 3000].into()));
        answers
    }

    fn encoded(number: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        Reply::Read(vec![number; 3000].into()).encode(Version::V04, number, &mut bytes).unwrap();
        bytes
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
                let rest = tokio::spawn(remainder.send(Duration::from_secs(60)));
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
            let rest = tokio::spawn(remainder.send(Duration::from_millis(20)));
            for number in 0..3 {
                outbox.send(answers(number), vec![number], None);
            }
            assert!(matches!(rest.await.unwrap(), Err(ConnectionError::TakesNothing)));
            outbox.closed().await;
            outbox.send(answers(3), vec![3], None);
        });
    }

    #[test]
    fn what_is_sent_to_nobody_is_an_error_of_the_connection() {
        run(async {
            let (here, there) = tokio::io::duplex(16);
            drop(there);
            let (outbox, remainder) = outbox(Box::new(here));
            outbox.send(answers(0), vec![0], None);
            let ended = remainder.send(Duration::from_secs(60)).await;
            assert!(matches!(ended, Err(ConnectionError::Socket(_))), "{ended:?}");
        });
    }
}
