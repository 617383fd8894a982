//! The bytes on their way: their pace, and the buffers they arrive in.

pub mod limited;
pub mod pace;
pub mod pieces;
pub mod spare_buffers;
