//! Replicas at targets in memory: made, stopped, tampered with, read in place, cloned, and healed from.
#![allow(clippy::cast_possible_truncation)]

mod sample;

mod audited;
mod cloned;
mod in_place;
mod replicate;
mod tampered;
