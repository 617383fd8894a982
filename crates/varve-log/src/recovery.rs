//! After a crash or damage: finds the good part of an arena, judges the rest, and cuts it off or
//! replaces the arena.

pub mod crash_or_damage;
pub mod headerless_arena;
pub mod recover;
pub mod salvage;
pub mod scan;
