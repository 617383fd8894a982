//! The pages: each takes what it needs from the archive, and fills a template.

pub(crate) mod calendar;
pub(crate) mod command;
pub(crate) mod file;
pub(crate) mod growth;
pub(crate) mod harm_marks;
pub(crate) mod harmed_files;
pub(crate) mod health;
pub(crate) mod job_rows;
pub(crate) mod log_map;
pub(crate) mod login;
pub(crate) mod look;
pub(crate) mod machines;
pub(crate) mod month_days;
pub(crate) mod page;
pub(crate) mod rhythm;
pub(crate) mod runs;
pub(crate) mod search;
pub(crate) mod snapshot_drills;
pub(crate) mod snapshot_line;
pub(crate) mod snapshot_place;
pub(crate) mod source;
pub(crate) mod space;
pub(crate) mod today;
pub(crate) mod unarchived;
