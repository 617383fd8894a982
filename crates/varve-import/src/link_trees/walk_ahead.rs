//! Walks a tree on a thread of its own, some steps ahead of the archive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use varve_content::folder::DescriptionError;

/// Steps that are passed on together.
const BATCH_STEP_COUNT: usize = 256;
/// Batches that may wait for the archive: a few MiB.
const BATCH_COUNT_MAX: usize = 32;

/// Some steps; none at the end of the tree.
type Batch<Step> = Result<Vec<Step>, DescriptionError>;

/// Becomes true when the steps are no longer requested.
#[derive(Debug, Clone, Default)]
pub(super) struct StopSign(Arc<AtomicBool>);

impl StopSign {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A tree that is being walked.
pub(super) struct WalkAhead<Step> {
    /// `None` after the end.
    batches: Option<Receiver<Batch<Step>>>,
    batch: std::vec::IntoIter<Step>,
    stop: StopSign,
    thread: Option<JoinHandle<()>>,
}

impl<Step: Send + 'static> WalkAhead<Step> {
    /// Starts a thread that opens a tree and takes all its steps.
    #[expect(clippy::disallowed_methods, reason = "this crate is an edge, and each walk is of one thread")]
    pub(super) fn start<Tree: Iterator<Item = Step>>(
        open: impl FnOnce(StopSign) -> Result<Tree, DescriptionError> + Send + 'static,
    ) -> Self {
        let (sender, batches) = sync_channel(BATCH_COUNT_MAX);
        let stop = StopSign::default();
        let seen = stop.clone();
        let thread = std::thread::spawn(move || match open(seen.clone()) {
            Ok(tree) => walk(tree, &seen, &sender),
            Err(error) => drop(sender.send(Err(error))),
        });
        Self { batches: Some(batches), batch: Vec::new().into_iter(), stop, thread: Some(thread) }
    }

    /// Waits for the first steps.
    pub(super) fn wait_until_open(&mut self) -> Result<(), DescriptionError> {
        self.receive()
    }

    pub(super) fn next(&mut self) -> Result<Option<Step>, DescriptionError> {
        if self.batch.len() == 0 {
            self.receive()?;
        }
        Ok(self.batch.next())
    }

    fn receive(&mut self) -> Result<(), DescriptionError> {
        let Some(batches) = &self.batches else { return Ok(()) };
        let batch = batches.recv().map_err(|_| "the walk through the folder was interrupted")??;
        if batch.is_empty() {
            self.batches = None;
        }
        self.batch = batch.into_iter();
        Ok(())
    }
}

impl<Step> Drop for WalkAhead<Step> {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A walk that has panicked was reported as interrupted.
            drop(thread.join());
        }
    }
}

/// Passes on the steps of a tree until its end, or until nobody receives them.
fn walk<Step>(mut tree: impl Iterator<Item = Step>, stop: &StopSign, sender: &SyncSender<Batch<Step>>) {
    loop {
        let batch: Vec<_> = tree.by_ref().take(BATCH_STEP_COUNT).collect();
        // An empty one marks the end.
        let is_end = batch.is_empty();
        if stop.is_set() || sender.send(Ok(batch)).is_err() || is_end {
            return;
        }
    }
}
