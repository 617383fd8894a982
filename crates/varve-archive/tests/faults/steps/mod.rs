//! What each action does, kind by kind, and what it is held to.

mod put_back;
pub mod read;
mod replica;
mod rot;
mod withheld;
pub mod write;
mod write_only;
