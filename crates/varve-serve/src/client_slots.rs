//! Client slots, of which there is a fixed number. When all are taken and another client connects,
//! the client that has been idle longest is dropped. Otherwise a few silent clients could keep
//! everybody out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// A client that was active within this time keeps its slot.
const BUSY: Duration = Duration::from_secs(1);
/// The interval between attempts to free a slot.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The pause after a client could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The slots of a server.
pub struct ClientSlots {
    max: usize,
    holders: Mutex<SlotHolders>,
    one_is_free: Notify,
}

#[derive(Default)]
struct SlotHolders {
    by_number: BTreeMap<u64, SlotHolder>,
    next: u64,
}

struct SlotHolder {
    active_at: Instant,
    leave: Arc<Notify>,
    is_asked: bool,
}

/// A client's slot, held until it is dropped.
pub struct ClientSlot {
    slots: Arc<ClientSlots>,
    number: u64,
    leave: Arc<Notify>,
}

impl ClientSlots {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, holders: Mutex::default(), one_is_free: Notify::new() })
    }

    /// Accepts clients for ever, at most `max` at a time. Each is served by a task of its own,
    /// which owns its slot.
    pub async fn serve_each<F: Future<Output = ()> + Send + 'static>(
        max: usize,
        listener: TcpListener,
        protocol: &'static str,
        serve: impl Fn(TcpStream, SocketAddr, ClientSlot) -> F,
    ) {
        let slots = Self::new(max);
        loop {
            match listener.accept().await {
                Ok((socket, address)) => {
                    let slot = slots.take().await;
                    tokio::spawn(serve(socket, address, slot));
                }
                Err(error) => {
                    tracing::warn!(%error, protocol, "a client could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    /// Waits for a free slot, and takes it.
    pub(crate) async fn take(self: &Arc<Self>) -> ClientSlot {
        loop {
            if let Some(slot) = self.free() {
                return slot;
            }
            self.ask_one();
            drop(timeout(LOOK_AGAIN, self.one_is_free.notified()).await);
        }
    }

    fn free(self: &Arc<Self>) -> Option<ClientSlot> {
        let mut holders = self.holders.lock();
        if holders.by_number.len() >= self.max {
            return None;
        }
        holders.next += 1;
        let (number, leave) = (holders.next, Arc::new(Notify::new()));
        let holder = SlotHolder { active_at: Instant::now(), leave: Arc::clone(&leave), is_asked: false };
        holders.by_number.insert(number, holder);
        Some(ClientSlot { slots: Arc::clone(self), number, leave })
    }

    /// Asks the client that has been idle longest to leave.
    fn ask_one(&self) {
        let mut holders = self.holders.lock();
        let staying = holders.by_number.values_mut().filter(|holder| !holder.is_asked);
        let Some(idlest) = staying.min_by_key(|holder| holder.active_at) else { return };
        if idlest.active_at.elapsed() >= BUSY {
            idlest.is_asked = true;
            idlest.leave.notify_one();
        }
    }
}

impl ClientSlot {
    /// Records activity of the client.
    pub fn note_activity(&self) {
        if let Some(holder) = self.slots.holders.lock().by_number.get_mut(&self.number) {
            holder.active_at = Instant::now();
        }
    }

    /// Runs something for the client. Returns `None` if it was cancelled because the slot is
    /// needed.
    pub async fn hold_while<T>(&self, something: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = something => Some(done),
            () = self.leave.notified() => None,
        }
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.slots.holders.lock().by_number.remove(&self.number);
        self.slots.one_is_free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idlest_client_makes_room_and_a_busy_one_stays() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let slots = ClientSlots::new(2);
            let (idle, busy) = (slots.take().await, slots.take().await);
            let leaving = async {
                assert!(idle.hold_while(std::future::pending::<()>()).await.is_none());
                drop(idle);
            };
            let working = busy.hold_while(async {
                for _ in 0..30 {
                    busy.note_activity();
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            });
            let ((), worked, third) = tokio::join!(leaving, working, slots.take());
            assert!(worked.is_some());
            drop(third);
            slots.take().await;
        });
    }
}
