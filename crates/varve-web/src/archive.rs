//! The archive as the pages see it: the list of snapshots, and the files in them.

pub(crate) mod folder_changes;
pub(crate) mod folder_total;
pub(crate) mod known_names;
pub(crate) mod name_search;
pub(crate) mod open_files;
pub(crate) mod picture;
pub(crate) mod place;
pub(crate) mod snapshot_view;
pub(crate) mod versions;
