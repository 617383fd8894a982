//! Access patterns by which disks are measured, as by the thesis' program `ptio`.

use serde::{Deserialize, Serialize};

use crate::timed::access::AccessKind;

/// Accesses of one kind and one size.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AccessPattern {
    pub action: AccessKind,
    pub is_random: bool,
    /// The bytes of an access.
    pub bytes: u64,
    /// The number of accesses that wait at the same time.
    pub depth: usize,
    /// The part of the device, from its start, over which random accesses are spread.
    pub span_bytes: u64,
}

impl AccessPattern {
    pub(super) fn problem(&self) -> Option<&'static str> {
        if self.bytes == 0 || self.depth == 0 {
            return Some("a pattern needs at least one byte, and a depth of at least 1");
        }
        (self.span_bytes < self.bytes).then_some("a pattern's span is smaller than one access")
    }
}
