//! Archiving a folder: the walk, the workers that read files, and the records of the result.

pub(crate) mod archive;
pub(crate) mod described;
pub(crate) mod disk_files;
pub(crate) mod left_out;
pub(crate) mod list_ahead;
pub(crate) mod news;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod path_limit;
pub(crate) mod pipeline;
pub(crate) mod previous;
pub(crate) mod read;
pub(crate) mod read_disk_file;
pub(crate) mod read_segments;
pub(crate) mod remembered;
pub(crate) mod sequence;
pub(crate) mod single;
pub(crate) mod source_file;
pub(crate) mod source_parts;
pub(crate) mod survey;
pub(crate) mod walk;
