//! What each action does, kind by kind, and what it is held to.

mod losses;
mod put_back;
pub mod read;
mod replica;
pub mod rot;
mod withheld;
pub mod write;
mod write_only;
