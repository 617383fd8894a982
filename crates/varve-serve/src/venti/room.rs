//! Room for what clients have asked for: so much for each of them, and so much for all.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What room is counted in.
const UNIT_BYTES: usize = 1 << 10;

/// A budget of bytes.
#[derive(Debug, Clone)]
pub(super) struct Room {
    semaphore: Arc<Semaphore>,
    units: u32,
}

/// Bytes of a client's and of the common budget. They are free again when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    _own: OwnedSemaphorePermit,
    _common: OwnedSemaphorePermit,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        let units = u32::try_from((bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { semaphore: Arc::new(Semaphore::new(units as usize)), units }
    }

    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        // What is larger than the whole budget takes all of it.
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.units);
        let taken = Arc::clone(&self.semaphore).acquire_many_owned(units).await;
        taken.expect("nobody closes a budget")
    }
}

/// Waits until a client, and all together, have room for so many bytes. The client's own comes first: one who takes too much waits for itself,
/// with nothing of the others' in hand.
pub(super) async fn take(own: &Room, common: &Room, bytes: usize) -> Taken {
    let own = own.take(bytes).await;
    Taken { _own: own, _common: common.take(bytes).await }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_over_the_budget_waits_until_there_is_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (one, other, common) = (Room::new(64 << 10), Room::new(64 << 10), Room::new(96 << 10));
            let first = take(&one, &common, 64 << 10).await;
            // Another client has room for what is left of the common budget, and no more.
            let second = take(&other, &common, 32 << 10).await;
            let third = take(&other, &common, 1);
            tokio::pin!(third);
            let soon = std::time::Duration::from_millis(20);
            assert!(tokio::time::timeout(soon, &mut third).await.is_err());
            drop(first);
            third.await;
            drop(second);
            take(&one, &common, usize::MAX).await;
        });
    }
}
