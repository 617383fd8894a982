//! `varve config check`: what a configuration names and is not there, or is not believed.

mod distrusted_files;
mod unfulfillable;
mod world_check;

pub use distrusted_files::distrusted_files;
pub use unfulfillable::unfulfillable;
pub use world_check::{WorldCheck, look_around};
