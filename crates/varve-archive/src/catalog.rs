//! The catalog: the list of all snapshots, and of what was lost. Snapshots are named, filtered and selected here.

pub mod catalog_root;
pub mod left_out_record;
pub mod losses;
pub mod machine;
pub mod naming;
pub mod request;
pub mod selection;
pub mod snapshot;
pub mod snapshot_filter;
pub mod snapshot_id;
pub mod tags;
