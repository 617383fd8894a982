//! Writing: the one appender of a log, the arena that it writes, and what makes both durable.

pub mod appender;
pub mod arena_writer;
pub mod sync;
pub mod sync_failure;
