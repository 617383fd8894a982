//! After a crash or damage: the good part of an arena is found, the rest is judged, cut off or replaced.

pub mod crash_or_damage;
pub mod headerless_arena;
pub mod recover;
pub mod salvage;
pub mod scan;
