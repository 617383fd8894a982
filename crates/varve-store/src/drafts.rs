//! The blocks that were put and that no directory page names yet.
//!
//! New blocks gather in an open draft. A full draft is packed and appended by the thread that
//! filled it. Its blocks wait here until a page names them. All of this is memory: the drafts know
//! no file, no index and no other part of the store.
//!
//! Always true:
//! - A block is pending until the page that names it is in the index. So a look-up that asks the
//!   drafts first and the index afterwards never misses a block.
//! - The lock is held for memory work only, and never while blocks are named, packed, compressed,
//!   read or written.
//! - After a failure the drafts accept no more blocks. Pending blocks can still be read.
//! - In a by-value store every clump of an arena begins before the arena's limit ([`placement`]).

mod admission;
mod placement;

pub(crate) use admission::{BlockToPut, DraftKind, FullDraft, PendingBlock};
pub(crate) use placement::Placement;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use varve_block::{BlockName, LogAddress, PutError};
use varve_log::{
    AppendError, ArenaId, ClumpBytes, CompressionLevel, FrameBytes, Framing, NamedBlock, PackedClump,
    WriteFailure,
};

use admission::Admission;

/// The blocks that were put and that no directory page names yet.
pub(crate) struct Drafts {
    admission: Mutex<Admission>,
    /// Signalled when a draft has become a clump, or when the drafts have failed.
    drained: Condvar,
    /// True if the blocks are expected to be read in small pieces.
    read_in_pieces: AtomicBool,
    /// The goal for such pieces.
    frame_bytes: Mutex<FrameBytes>,
}

/// The outcome of adding several blocks.
pub(crate) struct AdmittedBlocks<T, E> {
    /// The drafts that became full. They must be appended, even if a block was refused.
    pub(crate) full: Vec<FullDraft>,
    pub(crate) result: Result<T, E>,
}

impl Drafts {
    pub(crate) fn new(clump_bytes: ClumpBytes) -> Self {
        Self {
            admission: Mutex::new(Admission::new(clump_bytes)),
            drained: Condvar::new(),
            read_in_pieces: AtomicBool::new(false),
            frame_bytes: Mutex::new(FrameBytes::default()),
        }
    }

    /// Assigns places to drafts in advance. A by-value store names blocks by their places.
    pub(crate) fn place_by(&self, placement: Placement) {
        self.admission.lock().place_by(placement);
    }

    /// Advises how blocks that are put from now on will be read.
    pub(crate) fn expect_reads_in_pieces(&self, expected: bool) {
        self.read_in_pieces.store(expected, Ordering::Relaxed);
    }

    /// Sets the size of the pieces of blocks that are put from now on.
    pub(crate) fn set_frame_bytes(&self, bytes: FrameBytes) {
        *self.frame_bytes.lock() = bytes;
    }

    /// Packs a full draft.
    pub(crate) fn pack(&self, full: &FullDraft, level: CompressionLevel) -> PackedClump {
        full.pack(level, |kind| self.framing(kind))
    }

    fn framing(&self, kind: DraftKind) -> Framing {
        let in_pieces = kind == DraftKind::RandomReads || self.read_in_pieces.load(Ordering::Relaxed);
        if in_pieces { Framing::Pieces(*self.frame_bytes.lock()) } else { Framing::Whole }
    }

    /// Returns a pending block; `None` if no block of this name is pending.
    pub(crate) fn waiting(&self, name: &BlockName) -> Option<PendingBlock> {
        self.admission.lock().waiting(name)
    }

    pub(crate) fn contains(&self, name: &BlockName) -> bool {
        self.admission.lock().is_pending(name)
    }

    /// Returns the number of pages that have been added to the index. A look-up that began at an
    /// earlier count must be repeated.
    pub(crate) fn page_count(&self) -> u64 {
        self.admission.lock().page_count()
    }

    /// Returns the number of clumps that this session has appended.
    pub(crate) fn clump_count(&self) -> u64 {
        self.admission.lock().clump_count()
    }

    /// Returns the number of blocks and bytes that this session has stored so far.
    pub(crate) fn growth(&self) -> (u64, u64) {
        self.admission.lock().growth()
    }

    /// Adds the blocks that are not `known`, until one is refused. `data` is the kind for blocks of
    /// data. The result has for each block whether it was new. Returns `None` when a page was added
    /// to the index since `page_count` was read: that has moved blocks from the drafts to the
    /// index, so the caller must look there again.
    pub(crate) fn admit(
        &self,
        blocks: &[NamedBlock<'_>],
        known: &[bool],
        data: DraftKind,
        page_count: u64,
    ) -> Result<Option<AdmittedBlocks<Vec<bool>, PutError>>, AppendError> {
        let mut admission = self.admission.lock();
        admission.check_not_failed()?;
        if admission.page_count() != page_count {
            return Ok(None);
        }
        let mut full = Vec::new();
        let result = admission.add_new(blocks, known, data, &mut full);
        Ok(Some(AdmittedBlocks { full, result }))
    }

    /// Names the blocks of a by-value store that are surely new, and adds them. The result is an
    /// error if places ran out. Returns `None` as in [`admit`](Self::admit).
    pub(crate) fn place_new(
        &self,
        puts: &mut [BlockToPut<'_>],
        data: DraftKind,
        page_count: u64,
    ) -> Result<Option<AdmittedBlocks<(), AppendError>>, AppendError> {
        let mut admission = self.admission.lock();
        admission.check_not_failed()?;
        if admission.page_count() != page_count {
            return Ok(None);
        }
        let (full, result) = admission.place_new(puts, data);
        Ok(Some(AdmittedBlocks { full, result }))
    }

    /// Returns blocks in clumps without a page that may be equal to this block, and were not
    /// compared with it yet.
    pub(crate) fn clumped_like(&self, put: &BlockToPut<'_>) -> BTreeSet<BlockName> {
        self.admission.lock().clumped_like(put)
    }

    /// Puts the first of these blocks, all of one clump, into a draft of their own under the names
    /// that they have, and returns the number of blocks that fit. Returns `None` if there is no
    /// place left in the log.
    pub(crate) fn place_again(
        &self,
        blocks: &[&(BlockName, &[u8])],
        full: &mut Vec<FullDraft>,
    ) -> Option<usize> {
        self.admission.lock().place_again(blocks, full)
    }

    /// Closes the open drafts, full or not. Also returns a number that is greater than that of
    /// every draft closed until now.
    pub(crate) fn close_all(&self) -> (Vec<FullDraft>, u64) {
        self.admission.lock().close_all()
    }

    /// Waits until every draft below this number is a clump.
    pub(crate) fn wait_for_drafts_below(&self, number: u64) -> Result<(), AppendError> {
        let mut admission = self.admission.lock();
        self.drained.wait_while(&mut admission, |admission| admission.has_drafts_below(number));
        admission.check_not_failed()
    }

    /// Waits until all drafts that belong in earlier arenas are written. An append to this arena
    /// ends the earlier ones.
    pub(crate) fn wait_for_drafts_before(&self, arena: ArenaId) {
        let mut admission = self.admission.lock();
        self.drained.wait_while(&mut admission, |admission| admission.has_drafts_before(arena));
    }

    /// Records that a draft is a clump at this address. Waiting threads are woken later, by
    /// [`wake`](Self::wake).
    pub(crate) fn note_clump(&self, full: &FullDraft, address: LogAddress) {
        self.admission.lock().note_clump(full, address);
    }

    /// Records that a page names these blocks, and that the index has the page.
    pub(crate) fn note_page(&self, names: impl Iterator<Item = BlockName>) {
        self.admission.lock().note_page(names);
    }

    /// Records the end of the log, for drafts that get a place in advance.
    pub(crate) fn note_end(&self, home: (ArenaId, u64)) {
        self.admission.lock().note_end(home);
    }

    /// Stops accepting blocks. Drafts that wait stay in memory, so that their blocks can still be
    /// read.
    pub(crate) fn fail(&self, error: &(dyn std::error::Error + 'static)) {
        self.fail_with(|| WriteFailure::of(error));
    }

    pub(crate) fn fail_with(&self, reason: impl FnOnce() -> WriteFailure) {
        self.admission.lock().fail_with(reason);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        self.drained.notify_all();
    }

    /// While the returned guard lives, a panic of this thread fails the drafts. Otherwise other
    /// threads would wait for a draft that never becomes a clump.
    pub(crate) fn fail_on_panic(&self) -> FailOnPanic<'_> {
        FailOnPanic { drafts: self }
    }
}

/// Fails the drafts when the thread that was appending one panics.
pub(crate) struct FailOnPanic<'a> {
    drafts: &'a Drafts,
}

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.drafts.fail_with(|| WriteFailure::new("a writing thread has panicked"));
        }
    }
}
