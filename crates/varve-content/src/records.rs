//! Records: encodes nodes and lists of nodes, and reads them one at a time.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod fields;
pub mod folder_stack;
pub mod node;
pub mod node_list;
pub mod node_list_writer;
pub mod record_list;
