//! The source: a file system as the walk finds it. Status, flags, attributes and mounts are read
//! here, and rules decide which entries are archived.

pub(crate) mod cache_tag;
pub(crate) mod excludes;
pub(crate) mod flags;
pub(crate) mod host_folder;
pub(crate) mod listed_paths;
pub(crate) mod mounts;
pub(crate) mod selection;
pub(crate) mod status;
pub(crate) mod status_flags;
pub(crate) mod virtual_file_systems;
pub(crate) mod xattrs;
