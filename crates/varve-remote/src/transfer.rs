//! Bytes in transfer: their pace, and the buffers that receive them.

pub mod pace;
pub mod pieces;
pub mod spare_buffers;
