//! Folders: archived, listed and restored.

mod changing;
mod excludes;
mod format;
mod hostile;
mod look;
mod read_ahead;
mod restore;
mod restore_model;
mod round_trip;
mod sample;
mod selection;
mod trouble;
mod unchanged;
