//! Hash trees over a store in memory: against a plain vector of bytes, by the blocks that they read
//! and share, and under damage.

mod damage;
mod differences;
mod hostile;
mod model;
mod sample;
mod sharing;
