//! The records of an arena as bytes: clumps of blocks, and the directory pages that name them.
//!
//! Pure functions over bytes: this module does no I/O.

pub mod clump;
pub mod clump_content;
pub mod compression;
pub mod directory_page;
pub mod field_reader;
pub mod frame_table;
pub mod granule;
pub mod key_buckets;
pub mod ledger;
pub mod record_header;
pub mod record_sizes;
