//! Reads the log's arenas, records, pages and clumps. Each byte is checked before it is returned.

pub mod delta_bases;
pub mod file_part;
pub mod log;
pub mod steady_arena;
pub mod take_frames;
pub mod whole_arena;
pub mod window;
