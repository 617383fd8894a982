//! Images and folders, archived into blocks in memory and restored.

mod folder;
mod image;
