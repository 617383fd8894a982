//! Repositories of restic and rustic, read by our own code: the format is public and small.
//!
//! ```text
//! keys/ID ─ scrypt(password) ─> master key ─> index/*: blob ─> (pack, offset, length)
//! snapshots/ID ─> tree blob ─> nodes ─> tree blobs, data blobs ─> data/xx/PACK
//! ```
//!
//! Everything is authenticated with the master key, and every blob is compared with its SHA-256.

mod archive;
mod crypto;
mod go_text;
mod index;
mod key_file;
mod pack;
mod restic_folder;
mod restic_id;
mod tree;

pub use archive::{ResticArchive, ResticFilter};
pub use go_text::unquote;
pub use index::{IndexError, PackedKind, PackedPlace, parse_index};
pub use key_file::{KeyFile, KeyFileError};
pub use pack::{PackHeaderError, parse_pack_header};
pub use restic_folder::{OpenResticError, ResticFolder};
pub use restic_id::ResticId;
pub use tree::{ResticNode, TreeError, parse_tree};
