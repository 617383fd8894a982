//! Storage elsewhere: what keeps whole objects under names, on another disk or on somebody else's machine.
//!
//! What must always be true: an object appears whole or not at all, and nothing that comes back is believed by this crate's
//! callers before they have checked it. A [`Target`] knows nothing of arenas or keys.

#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod memory;
mod target;

pub use memory::MemoryTarget;
pub use target::{Capabilities, Object, PutMode, Target, TargetError};
