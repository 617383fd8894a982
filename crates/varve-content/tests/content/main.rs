//! Images and folders, archived into blocks in memory and restored.

mod folder;
mod image;
mod image_by_files;
mod noise;
