//! The steps and checks of each kind of action.

mod collect;
mod forget;
mod losses;
mod put_back;
pub mod read;
mod replica;
pub mod rot;
mod withheld;
pub mod write;
mod write_only;
