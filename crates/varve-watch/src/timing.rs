//! When a job is due.

pub mod conditions;
pub mod due;
pub mod every;
pub mod span;
pub mod timetable;
pub mod upload;
