//! The error texts of servers. Clients and scripts compare them, so they follow other servers.

use crate::SCORE_BYTES;
use crate::wire_type::WireType;

/// The beginning of the answer to a read of a missing block.
pub(crate) const MISSING_TEXT: &str = "no block with score ";
/// The beginning of the answer to a read with a count that is too small. A backup program takes it
/// as a sign that the block exists.
pub const READ_TOO_SMALL_TEXT: &str = "read too small";
/// The answer to a write of too many bytes.
pub const LUMP_TOO_LARGE_TEXT: &str = "lump too large";
/// The beginning of the answer to a write to a read-only server.
pub const READ_ONLY_TEXT: &str = "read only";
/// The beginning of the answer to a write whose score belongs to other bytes.
pub const COLLISION_TEXT: &str = "score collision";

/// Other servers' texts for a missing block, in lower case. The protocol does not define one.
const OTHER_MISSING_TEXTS: [&str; 8] = [
    "no block",
    "no such block",
    "no such score",
    "block not found",
    "score not found",
    "block does not exist",
    "score does not exist",
    "unknown score",
];

/// Reports whether an error text says that the block is missing. Any other text may be a failure of
/// the server.
#[must_use]
pub fn is_missing(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    text == "not found" || OTHER_MISSING_TEXTS.iter().any(|other| text.starts_with(other))
}

/// The answer to a read of a missing block.
#[must_use]
pub fn missing(score: &[u8; SCORE_BYTES], wire_type: WireType) -> String {
    format!("{MISSING_TEXT}{}/{} exists", varve_block::to_hex(score), wire_type.program_number())
}

/// The answer to a read with a count that is too small.
#[must_use]
pub fn read_too_small(count: u32, size: usize) -> String {
    format!("{READ_TOO_SMALL_TEXT}: asked for {count} need at least {size}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_block_is_recognised_in_the_texts_of_several_servers() {
        let own = missing(&[7; SCORE_BYTES], WireType::DATA);
        for text in
            [own.as_str(), "no such block", "no such score/type", "No block with that score", " not found\n"]
        {
            assert!(is_missing(text), "{text}");
        }
        for text in [
            "",
            "no",
            "no such file or directory",
            "read too small",
            "bad count",
            "data block not found here is damaged",
        ] {
            assert!(!is_missing(text), "{text}");
        }
    }
}
