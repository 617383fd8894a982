//! What servers say when they say no. Clients and scripts look at these words, so they are everybody's.

use crate::{SCORE_BYTES, WireType};

/// How the answer to a read of what is not there begins.
pub const MISSING_TEXT: &str = "no block with score ";
/// How the answer to a read that asks for too few bytes begins. A backup program takes it as a sign that the block is there.
pub const READ_TOO_SMALL_TEXT: &str = "read too small";
/// The answer to a write of too many bytes.
pub const LUMP_TOO_LARGE_TEXT: &str = "lump too large";
/// How the answer to a write begins where nothing can be written.
pub const READ_ONLY_TEXT: &str = "read only";
/// How the answer to a write begins that has the score, but not the bytes, of what is there.
pub const COLLISION_TEXT: &str = "score collision";

/// The answer to a read of what is not there.
#[must_use]
pub fn missing(score: &[u8; SCORE_BYTES], wire_type: WireType) -> String {
    format!("{MISSING_TEXT}{}/{} exists", varve_block::to_hex(score), wire_type.program_number())
}

/// The answer to a read that asks for too few bytes.
#[must_use]
pub fn read_too_small(count: u32, size: usize) -> String {
    format!("{READ_TOO_SMALL_TEXT}: asked for {count} need at least {size}")
}
