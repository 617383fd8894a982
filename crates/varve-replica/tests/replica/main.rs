//! Replicas at targets in memory: made, interrupted, tampered with, read in place, cloned, and used
//! for healing.
#![allow(clippy::cast_possible_truncation)]

mod sample;

mod audited;
mod cloned;
mod in_place;
mod replicate;
mod rewritten;
mod superseded;
mod tampered;
