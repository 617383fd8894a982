//! Files of any size as blocks: hash trees over any [`BlockStore`](varve_block::BlockStore).
//!
//! ```text
//!   Entry ── root ──> pointer block, depth 2      [ score · score · score ]        fixed: scores alone
//!                       │           │              [ bytes score · bytes score ]    cut by content: rows
//!                pointer, 1    pointer, 1
//!                 │  │  │       │  ·  │           · the score of the empty block: zeros, nothing is stored
//!               leaf leaf leaf leaf  leaf         trailing zeros of a leaf are not stored
//! ```
//!
//! An [`Entry`] leads to a tree. A *fixed* tree has leaves of one size and holds a disk image:
//! [`put_leaves`] stores leaves, on as many threads as the caller likes; [`FixedBuilder`] takes
//! their scores in order, or takes unchanged subtrees from an [`EarlierTree`]. A tree that is
//! *cut by content* holds a file of a folder: [`ContentWriter`] takes bytes, [`put_whole`] many
//! small files at once. A [`CutSegment`] is a part of a large file, so that several threads can cut
//! one file, [`put_cut_leaves`] stores its leaves, and [`ContentBuilder`] takes them in order.
//! [`TreeReader`] reads both kinds; [`walk`] visits every block of a tree, and [`difference`]
//! compares two trees without reading the subtrees that they share.
//!
//! Read first: `entry.rs` (leads to a tree), `pointers.rs` (the blocks above the leaves) and
//! `read.rs` (both kinds of tree are read).
//!
//! Invariants:
//!
//! - The same bytes, written with the same settings, give the same entry, regardless of the sizes
//!   of the writes.
//! - Zeros cost nothing: a hole of any size is one score, and no operation takes time in proportion
//!   to it.
//! - Memory is bounded by one pointer block a level and one batch of leaves, for a file of any
//!   size.
//! - Each block that is read is checked against its parent before it is used. A malicious tree
//!   causes errors, and never a panic, an endless loop, or bytes to which its entry does not lead.
//!
//! The trees of Venti clients are fixed trees too: [`VentiRoot`], [`VentiEntry`] and
//! [`VentiFolder`] lead to them, and [`VacFolderBuilder`] with [`FixedWriter`] writes them.
//!
//! Absent on purpose: threads, files, names, time. A cache of pointer blocks is the task of the
//! block store.

mod content;
mod copy;
mod copy_archive;
mod cursor;
mod cut;
mod difference;
mod entry;
mod extents;
mod fixed;
mod fixed_writer;
mod interior;
mod leaves;
mod pointers;
mod read;
mod read_ahead;
mod replaced;
mod rows;
mod segment;
mod shape;
mod streams;
mod tree_block;
mod unchanged;
mod vac;
mod walk;

pub use content::{ContentBuilder, ContentWriter, CutLeaf, put_cut_leaves, put_whole};
pub use copy::{CopyTreeError, copy_tree};
pub use copy_archive::{CopyError, CopyMode, CopyProgress, copy_archive};
pub use cursor::ReadPointerError;
pub use cut::Cutting;
pub use difference::{Differences, difference};
pub use entry::{DecodeEntryError, Entry, Layout};
pub use extents::{Extent, Extents};
pub use fixed::{FixedBuilder, put_leaves, put_leaves_with};
pub use fixed_writer::FixedWriter;
pub use pointers::MalformedPointer;
pub use read::{ReadTreeError, StreamError, StreamPiece, TreeReader};
pub use replaced::ReplacedLeaves;
pub use segment::{CutSegment, SegmentLeaves};
pub use shape::Shape;
pub use streams::{DueReadAhead, Streams};
pub use tree_block::{DecodeTreeBlockError, TreeBlock, previous_archive};
pub use unchanged::{EarlierTree, PushUnchangedError};
pub use vac::{
    DecodeMetaBlockError, DecodeVacRecordError, DecodeVentiEntryError, DecodeVentiRootError, MetaBlock,
    MetaBlockBuilder, ReadVentiFolderError, VENTI_ENTRY_BYTES, VENTI_SCORE_BYTES, VacFolderBuilder, VacMode,
    VacRecord, VacShape, VentiEntry, VentiFolder, VentiRoot, leads_to, put_vac_root,
};
pub use walk::{Visit, WalkedBlock, walk};
