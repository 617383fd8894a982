//! Memory budgets for requests and answers: one for each client, and a common one. When the common
//! budget stays used up, the client whose answers have waited longest is dropped. Otherwise a few
//! clients that take nothing would stop everybody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// The unit of the budgets.
const UNIT_BYTES: usize = 1 << 10;
/// The time that a client waits for common room before another one is dropped.
const WAIT: Duration = Duration::from_secs(1);
/// A client that has taken something within this time is not dropped.
const TAKING: Duration = Duration::from_millis(500);
/// The minimum interval between drops: the room of one client may be enough.
const ONE_BY_ONE: Duration = Duration::from_millis(20);
/// The value of `taken_at` for a client without waiting answers.
const NOTHING_WAITS: u64 = u64::MAX;

/// A budget of bytes.
#[derive(Debug, Clone)]
pub(super) struct ByteBudget {
    semaphore: Arc<Semaphore>,
    units: u32,
}

/// Bytes taken from a client's own and from the common budget. Dropping it returns them.
#[derive(Debug)]
pub(super) struct ReservedBytes {
    _own: OwnedSemaphorePermit,
    _common: OwnedSemaphorePermit,
}

impl ByteBudget {
    pub(super) fn new(bytes: usize) -> Self {
        let units = u32::try_from((bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { semaphore: Arc::new(Semaphore::new(units as usize)), units }
    }

    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let taken = Arc::clone(&self.semaphore).acquire_many_owned(self.units_of(bytes)).await;
        taken.expect("a budget is never closed")
    }

    fn take_now(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.semaphore).try_acquire_many_owned(self.units_of(bytes)).ok()
    }

    /// Converts bytes to units. An amount that exceeds the whole budget takes all of it.
    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.units)
    }

    fn is_free(&self) -> bool {
        self.semaphore.available_permits() >= self.units as usize
    }
}

/// The common budget, with all clients.
pub(super) struct CommonBudget {
    room: ByteBudget,
    begun: Instant,
    clients: Arc<Mutex<Clients>>,
}

#[derive(Default)]
struct Clients {
    here: BTreeMap<u64, Arc<ClientProgress>>,
    next: u64,
    gave_way_at: Option<Instant>,
}

/// A client's progress in taking its answers.
struct ClientProgress {
    own: ByteBudget,
    /// The time when the client last took some of its waiting answers, or when they began to wait.
    /// In milliseconds, or [`NOTHING_WAITS`].
    taken_at: AtomicU64,
    give_way: Notify,
}

/// A registered client, until it is dropped.
pub(super) struct RegisteredClient {
    clients: Arc<Mutex<Clients>>,
    number: u64,
    begun: Instant,
    pulse: Arc<ClientProgress>,
}

impl CommonBudget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { room: ByteBudget::new(bytes), begun: Instant::now(), clients: Arc::default() }
    }

    /// Registers a client, with its own budget.
    pub(super) fn enter(&self, own: ByteBudget) -> RegisteredClient {
        let (taken_at, give_way) = (AtomicU64::new(NOTHING_WAITS), Notify::new());
        let pulse = Arc::new(ClientProgress { own, taken_at, give_way });
        let mut clients = self.clients.lock();
        clients.next += 1;
        let number = clients.next;
        clients.here.insert(number, Arc::clone(&pulse));
        RegisteredClient { clients: Arc::clone(&self.clients), number, begun: self.begun, pulse }
    }

    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let taking = self.room.take(bytes);
        tokio::pin!(taking);
        loop {
            match timeout(WAIT, &mut taking).await {
                Ok(taken) => return taken,
                Err(_) => self.let_one_give_way(),
            }
        }
    }

    /// Drops the client that holds room and has taken nothing for the longest time.
    fn let_one_give_way(&self) {
        let mut clients = self.clients.lock();
        if clients.gave_way_at.is_some_and(|then| then.elapsed() < ONE_BY_ONE) {
            return;
        }
        let before = milliseconds(self.begun).saturating_sub(TAKING.as_millis().try_into().unwrap_or(0));
        let stalled = clients.here.iter().filter_map(|(number, pulse)| {
            let taken_at = pulse.taken_at.load(Ordering::Relaxed);
            (taken_at <= before && !pulse.own.is_free()).then_some((taken_at, *number))
        });
        let Some((_, number)) = stalled.min() else { return };
        if let Some(pulse) = clients.here.remove(&number) {
            pulse.give_way.notify_one();
            clients.gave_way_at = Some(Instant::now());
        }
    }
}

impl RegisteredClient {
    /// Records that the client took something, or that an answer begins to wait for it.
    pub(super) fn note_taken(&self) {
        self.pulse.taken_at.store(milliseconds(self.begun), Ordering::Relaxed);
    }

    /// Records that no answers wait for the client.
    pub(super) fn note_all_taken(&self) {
        self.pulse.taken_at.store(NOTHING_WAITS, Ordering::Relaxed);
    }

    /// Returns when the client has to be dropped.
    pub(super) async fn gives_way(&self) {
        self.pulse.give_way.notified().await;
    }
}

impl Drop for RegisteredClient {
    fn drop(&mut self) {
        self.clients.lock().here.remove(&self.number);
    }
}

/// Waits until both budgets have room for `bytes`. The client's own budget comes first: a client
/// over its own budget waits without holding common room.
pub(super) async fn take(own: &ByteBudget, common: &CommonBudget, bytes: usize) -> ReservedBytes {
    let own = own.take(bytes).await;
    ReservedBytes { _own: own, _common: common.take(bytes).await }
}

/// Like [`take`], but only if there is room at once. Earlier waiters come first.
pub(super) fn take_now(own: &ByteBudget, common: &CommonBudget, bytes: usize) -> Option<ReservedBytes> {
    Some(ReservedBytes { _own: own.take_now(bytes)?, _common: common.room.take_now(bytes)? })
}

fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(NOTHING_WAITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(something: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(something);
    }

    #[test]
    fn who_is_over_the_budget_waits_until_there_is_room() {
        run(async {
            let (one, other, common) =
                (ByteBudget::new(64 << 10), ByteBudget::new(64 << 10), CommonBudget::new(96 << 10));
            let first = take(&one, &common, 64 << 10).await;
            // Another client has room for the rest of the common budget, and no more.
            let second = take(&other, &common, 32 << 10).await;
            let third = take(&other, &common, 1);
            tokio::pin!(third);
            let soon = Duration::from_millis(20);
            assert!(timeout(soon, &mut third).await.is_err());
            drop(first);
            third.await;
            drop(second);
            take(&one, &common, usize::MAX).await;
        });
    }

    #[test]
    fn who_takes_nothing_for_longest_gives_way_and_who_holds_nothing_does_not() {
        run(async {
            let common = CommonBudget::new(64 << 10);
            let rooms: Vec<_> = (0..4).map(|_| ByteBudget::new(64 << 10)).collect();
            let takers: Vec<_> = rooms.iter().map(|room| common.enter(room.clone())).collect();
            // The first client holds no bytes. The second one has bytes that the server is working
            // on. The third one does not take its answers.
            takers[0].note_taken();
            let _worked_on = take(&rooms[1], &common, 32 << 10).await;
            let held = take(&rooms[2], &common, 32 << 10).await;
            takers[2].note_taken();
            let give_way = async {
                takers[2].gives_way().await;
                drop(held);
            };
            let (fourth, ()) = tokio::join!(take(&rooms[3], &common, 32 << 10), give_way);
            drop(fourth);
            for taker in [&takers[0], &takers[1]] {
                assert!(timeout(Duration::from_millis(20), taker.gives_way()).await.is_err());
            }
        });
    }
}
