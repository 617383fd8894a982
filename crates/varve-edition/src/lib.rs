//! The format of a publication: archived disks as static files, signed by their publisher.
//!
//! ```text
//!   head (text, signed) ─▶ MapPage of level 1 ─▶ MapPage of level 0 ─▶ stored block ─▶ bytes of a disk
//!     EditionHead             the map of one image           1,024 blocks each      CheckedBlock
//! ```
//!
//! An *edition* is one signed `head` and everything that it leads to. A new edition replaces the
//! head; every other object is named by the SHA-256 of its bytes, and is never replaced. So any
//! server of files can hold a publication, and a reader needs nothing but the publisher's key.
//! `docs/internals/publication-format.md` has every byte. The records that a reader keeps have
//! their form here, too: those of its cache, and its memory of believed heads.
//!
//! Read first: `head.rs` (leads to all images), `map_page.rs` (the places of blocks) and
//! `stored_block.rs` (the form of everything else).
//!
//! Invariants:
//!
//! - A decoder returns what its encoder was given, or an error: one value has one spelling. A byte
//!   that is changed anywhere is noticed.
//! - Bytes are compared with their name before they are decrypted and decompressed, and a head with
//!   its signature before its lines are read.
//! - A block is encrypted if its image is: the form of an image makes and opens all its blocks.
//! - Memory is bounded by the limits below. A length in the bytes is compared with them before it
//!   is used, and decompression stops at the length that the map expects.
//! - A map has two levels, and each page must have the level and the number of entries that its
//!   place needs. So no map can lead in a circle.
//!
//! This crate reads and writes bytes: it knows no files, servers, clocks or threads.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod address;
mod blkparse;
mod block_form;
mod cache_record;
mod checked_block;
mod content_key;
mod disk_shape;
mod edition_key;
mod first_line;
mod head;
mod head_lines;
mod machine_description;
mod map_page;
mod object_name;
mod profile;
mod stored_block;
mod time_text;
mod trust_record;

pub use address::{AddressError, PublicationAddress};
pub use blkparse::parse_blkparse;
pub use block_form::{BlockCipher, BlockForm, ImageCipher};
pub use cache_record::{CACHE_RECORD_HEADER_BYTES, CacheRecordHeader};
pub use checked_block::{CheckedBlock, WrongBytesError};
pub use content_key::{EditionContentKey, EditionContentKeyError};
pub use disk_shape::{DiskShape, PublishedBlockBytes};
pub use edition_key::{EditionKey, EditionKeyError, EditionSigner, KeyTextError};
pub use head::{
    EditionFields, EditionHead, HeadError, OpenHeadError, OpenedHead, PublishedImage, StoredPart,
};
pub use machine_description::{
    DescribedBoard, DescribedBus, DescribedFirmware, MACHINE_DESCRIPTION_BYTES_MAX, MachineDescription,
    MachineDescriptionError,
};
pub use map_page::{MapEntry, MapLevel, MapPage, MapPageError, ObjectPart};
pub use object_name::{ObjectName, ObjectNameError};
pub use profile::{DiskProfile, DiskProfileError, ProfileRead};
pub use stored_block::{StoredCompression, UnpackError};
pub use trust_record::{PublicationId, SeenEdition, TrustRecord, TrustRecordError};

/// The name of the only object that is ever replaced.
pub const HEAD_NAME: &str = "head";
/// The longest head in bytes.
pub const HEAD_BYTES_MAX: usize = 1 << 20;
/// The longest object in bytes.
pub const OBJECT_BYTES_MAX: usize = 16 << 20;
/// The largest number of entries in a page of level 0.
pub const PAGE_ENTRIES_MAX: u32 = 1024;
/// The longest page of level 0 in bytes, without compression.
pub const PAGE_BYTES_MAX: usize = 128 << 10;
/// The longest root in bytes, without compression.
pub const ROOT_BYTES_MAX: usize = 16 << 20;
/// The longest profile in bytes, without compression.
pub const PROFILE_BYTES_MAX: usize = 1 << 20;
