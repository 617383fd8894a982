//! Tar files: an archive is a snapshot. It is read once, from the start to the end: contents go
//! into the store at once, and nodes wait in memory until their order is known.
//!
//! ustar, GNU (long names, base-256 numbers, sparse files) and PAX (long names, exact times,
//! extended attributes, sparse files of all three versions) are read.

mod archive;
mod entries;
mod header;
mod pax;
mod sparse;

pub use archive::TarArchive;
pub use entries::{TarEntries, TarEntry, TarError, TarKind, TarPiece};
