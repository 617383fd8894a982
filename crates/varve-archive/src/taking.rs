//! Taking a snapshot: the content is archived first, and then added to the catalog.

pub mod archived;
pub mod copy;
pub mod last_snapshot_record;
mod record_layers;
pub mod remote_archive;
pub mod take;
