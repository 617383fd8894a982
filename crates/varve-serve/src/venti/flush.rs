//! Automatic flushes: some seconds after a block was acknowledged, and when a client that wrote has
//! disconnected.
//!
//! Invariants:
//! - An acknowledged block is covered by a sync that starts at most `delay` later, as long as the
//!   store can be written.
//! - Nothing is synced unless there is an acknowledged block that no sync covers.
//! - Only one flush runs at a time. Clients that disconnect at the same time share one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::state::VentiServerState;

/// The minimum interval between flushes, so that clients that come and go do not keep the disk
/// busy.
const FLUSH_PAUSE: Duration = Duration::from_millis(100);

/// Flushes until the server stops, or can no longer write.
pub(super) async fn keep_durable(
    state: Arc<VentiServerState>,
    delay: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let flushing = async {
        while state.fault().is_none() {
            state.unsynced.any().await;
            tokio::select! {
                () = sleep(delay) => {}
                () = state.unsynced.writer_left() => {}
            }
            let own = Arc::clone(&state);
            let flushed = tokio::task::spawn_blocking(move || flush(&own)).await.is_ok_and(|is_done| is_done);
            sleep(if flushed { FLUSH_PAUSE } else { delay.max(FLUSH_PAUSE) }).await;
        }
    };
    tokio::select! {
        _ = stop.wait_for(|is_stopped| *is_stopped) => {}
        () = flushing => {}
    }
}

/// Makes acknowledged blocks durable. Returns whether all of them are.
fn flush(state: &VentiServerState) -> bool {
    // A client's own sync may have come first.
    if !state.unsynced.is_any() {
        return true;
    }
    let synced = state.sync();
    if synced.is_ok() {
        state.counters.flushes.add(1);
    }
    synced.is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;

    use parking_lot::Mutex;
    use tokio::time::Instant;
    use varve_block::{Block, BlockStore, BlockType, MemoryBlockStore, SyncError};

    use super::super::venti_settings::VentiSettings;
    use super::*;

    /// Records the times of its syncs. They fail if `fails` is set.
    #[derive(Default)]
    struct Noting {
        blocks: MemoryBlockStore,
        syncs: Mutex<Vec<Instant>>,
        fails: AtomicBool,
    }

    impl Noting {
        fn sync_count(&self) -> usize {
            self.syncs.lock().len()
        }
    }

    impl BlockStore for Noting {
        varve_block::forward_block_store!(blocks: score_bytes, empty_score, put, get);

        fn sync(&self) -> Result<(), SyncError> {
            self.syncs.lock().push(Instant::now());
            match self.fails.load(Ordering::SeqCst) {
                true => Err(SyncError { source: "the test says so".into() }),
                false => Ok(()),
            }
        }
    }

    fn state(failures_pass: bool) -> (Arc<Noting>, Arc<VentiServerState>) {
        let blocks = Arc::new(Noting::default());
        let settings = VentiSettings { failures_pass, recent_bytes: 0, ..VentiSettings::default() };
        let state = VentiServerState::new(Arc::clone(&blocks) as _, &settings);
        (blocks, Arc::new(state))
    }

    fn write(state: &VentiServerState) {
        state.blocks.put(Block { block_type: BlockType::DATA, bytes: b"a block" }).unwrap();
        state.unsynced.acknowledge();
    }

    /// Runs `something` while a flusher is running.
    fn beside_flusher(state: &Arc<VentiServerState>, delay: Duration, something: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(async {
            let (stop, stopped) = watch::channel(false);
            let flusher = tokio::spawn(keep_durable(Arc::clone(state), delay, stopped));
            something.await;
            stop.send_replace(true);
            flusher.await.unwrap();
        });
    }

    async fn until(mut is_so: impl FnMut() -> bool) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < patience, "nothing happens");
            sleep(Duration::from_millis(5)).await;
        }
    }

    const SHORT: Duration = Duration::from_millis(200);
    const NEVER: Duration = Duration::from_secs(3600);

    #[test]
    fn what_was_written_is_synced_once_after_the_delay() {
        let (blocks, state) = state(false);
        beside_flusher(&state, SHORT, async {
            sleep(2 * SHORT).await;
            assert_eq!(blocks.sync_count(), 0, "nothing was written");
            let written = Instant::now();
            write(&state);
            write(&state);
            until(|| blocks.sync_count() > 0).await;
            assert!(blocks.syncs.lock()[0] >= written + SHORT);
            sleep(4 * SHORT).await;
            assert_eq!(blocks.sync_count(), 1, "and not again");
            write(&state);
            until(|| blocks.sync_count() > 1).await;
        });
        assert_eq!(state.counts().flushes, 2);
    }

    #[test]
    fn what_a_client_has_synced_is_not_synced_again() {
        let (blocks, state) = state(false);
        beside_flusher(&state, SHORT, async {
            write(&state);
            state.sync().unwrap();
            state.unsynced.note_writer_left();
            sleep(4 * SHORT).await;
        });
        assert_eq!(blocks.sync_count(), 1);
    }

    #[test]
    fn a_writer_that_leaves_is_not_kept_waiting_and_many_share_a_sync() {
        let (blocks, state) = state(false);
        beside_flusher(&state, NEVER, async {
            write(&state);
            state.unsynced.note_writer_left();
            until(|| blocks.sync_count() == 1).await;
            let begun = Instant::now();
            for _ in 0..500 {
                write(&state);
                state.unsynced.note_writer_left();
                sleep(Duration::from_millis(1)).await;
            }
            until(|| !state.unsynced.is_any()).await;
            let pauses = begun.elapsed().as_millis() / FLUSH_PAUSE.as_millis();
            assert!(blocks.sync_count() as u128 <= 3 + pauses, "{} in {pauses} pauses", blocks.sync_count());
        });
    }

    #[test]
    fn a_sync_that_fails_turns_a_store_read_only_and_is_tried_again_where_failures_pass() {
        let (blocks, state_of_store) = state(false);
        blocks.fails.store(true, Ordering::SeqCst);
        beside_flusher(&state_of_store, SHORT, async {
            write(&state_of_store);
            until(|| state_of_store.fault().is_some()).await;
            sleep(4 * SHORT).await;
            assert_eq!(blocks.sync_count(), 1);
        });
        let (blocks, state_of_proxy) = state(true);
        blocks.fails.store(true, Ordering::SeqCst);
        beside_flusher(&state_of_proxy, SHORT, async {
            write(&state_of_proxy);
            until(|| blocks.sync_count() == 3).await;
            assert!(state_of_proxy.fault().is_none());
            blocks.fails.store(false, Ordering::SeqCst);
            until(|| state_of_proxy.counts().flushes == 1).await;
            assert!(!state_of_proxy.unsynced.is_any());
        });
    }
}
