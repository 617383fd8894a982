//! The catalog: the list of all snapshots and of all losses. Its modules also name, filter and
//! select snapshots.

pub mod catalog_root;
pub mod hold;
pub mod known_snapshots;
pub mod left_out_record;
pub mod losses;
pub mod machine;
pub mod origin_record;
pub mod origins;
pub mod removed;
pub mod root_record;
pub mod selection;
pub mod snapshot;
pub mod snapshot_filter;
pub mod snapshot_id;
pub mod snapshot_request;
pub mod source_names;
pub mod tags;
