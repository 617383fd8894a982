//! Taking snapshots, of sources here and from other archives.

pub mod copy;
pub mod import;
mod import_check;
mod import_images;
mod import_lines;
mod machine_disks;
pub mod optimize;
mod program_output;
mod report;
pub mod snapshot;
mod snapshot_names;
mod source_form;
pub mod tag;
pub mod trace_file;
mod venti_arenas;
