//! Writing: the one appender of a log, the arena that it writes, and sync.

pub mod appender;
pub mod arena_writer;
pub mod replacement;
pub(crate) mod reserved_space;
pub mod sync;
