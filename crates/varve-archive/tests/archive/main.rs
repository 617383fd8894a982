//! Snapshots of folders and images: taken, restored, and taken while others read and repair.
//! Retention.

mod barren_hint;
mod careless;
mod clock_jumps;
mod collecting;
mod damage_matrix;
mod forgetting;
mod format_page;
mod live_blocks;
mod many_hands;
mod many_stubs;
mod merging;
mod name_index;
mod retention;
mod space;
mod traced;
mod write_only;
