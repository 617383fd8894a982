//! Contents: disk images and folders, from the bytes of a source to blocks in any
//! [`BlockStore`](varve_block::BlockStore), and back.
//!
//! ```text
//! image: fixed tree
//! folder: node ─▶ nodes ─▶ … ─▶ file: tree cut by content
//! ```
//!
//! Invariants:
//! - Memory is bounded, whatever the size of a file, an image or a folder.
//! - A restored file appears complete or not at all, and no data in a snapshot leads out of the
//!   destination.
//! - Nothing here needs the engine: a client of another machine's store links no log and no index.
//!
//! Read first: `folder/archiving/archive.rs` (a tree of files), `files.rs` (the files of a snapshot
//! of any kind) and `restoring/unfinished_restore.rs` (makes it safe to interrupt a restore).
//!
//! The modules [`folder`], [`image`] and [`vac`] have the names for one kind of source each. The
//! names at the root are for all kinds of sources.
//!
//! This crate starts no threads and reads no clock: the caller passes
//! [`Workers`](varve_world::Workers) and the time. It reads and writes the files that are archived
//! and restored.

mod files;
pub mod folder;
pub mod image;
mod inode_flags;
mod progress;
mod reading_content;
mod records;
mod restoring;
mod text_difference;
pub mod vac;

pub use files::allocated_bytes::allocated_bytes_in;
pub use files::inside_image::{ImageFiles, ListedVolume};
pub use files::{ContentKey, Files, Nodes, ReadProblem, Tree};
pub use inode_flags::InodeFlags;
pub use progress::{Problem, Progress, ProgressSnapshot};
pub use reading_content::{OnLoss, ReadContentError, TakeBytes};
pub use records::fields::{Field, FieldError, FieldReader, FieldWriter, UnknownFields, frame, split_record};
pub use records::folder_stack::{FolderStack, FolderStep, TooDeep};
pub use records::node::{DecodeNodeError, MODE_MASK, Node, NodeKind, NodeProblem, is_component};
pub use records::node_list::{NodeList, ReadFolderError};
pub use records::node_list_writer::{NodeListWriter, WriteNodeError};
pub use records::record_list::{RECORD_BYTES_MAX, ReadRecordsError, Records};
pub use restoring::comparison::ReadBackDifference;
pub use restoring::damage_list::DamageList;
pub use restoring::new_file::{NewFile, PRIVATE, PUBLIC};
pub use text_difference::{DifferenceLine, LineKind, as_text, text_difference, without_line_end};
