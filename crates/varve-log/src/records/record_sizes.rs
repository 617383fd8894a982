//! The sizes of records, which the layout of an arena builds on.

/// The length of a record's header in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 64;

/// The longest body: a clump with one block of the largest size, or a page with the most blocks.
pub(crate) const BODY_BYTES_MAX: u32 = 8 << 20;

/// The longest record, with its header, in bytes.
pub const RECORD_BYTES_MAX: usize = RECORD_HEADER_BYTES + BODY_BYTES_MAX as usize;

/// The length of the body of a page that names no block. Every other body is longer.
pub(crate) const EMPTY_PAGE_BYTES: u32 = 64;
