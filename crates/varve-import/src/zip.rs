//! Zip files: an archive is a snapshot. The central directory tells all names and attributes, and
//! contents are read only when they are stored.
//!
//! Only the sizes in the central directory count, which every program shows: no content becomes
//! longer, and entries that share compressed bytes are refused.

mod archive;
mod entries;
mod inflate;

pub use archive::{OpenZipError, ZipFile};
