//! Restoring: files under unfinished names, what a stopped restore left, and bytes that could not be read.

pub mod comparison;
pub mod damage_list;
pub mod partial;
pub mod unfinished_restore;
