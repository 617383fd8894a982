//! Arenas as files: addresses in the log, the header at the beginning of an arena, the footer and
//! the seal at its end.

pub mod address;
pub mod footer;
pub mod header;
pub mod seals;
pub mod sectors;
