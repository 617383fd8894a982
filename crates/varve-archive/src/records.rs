//! Records: encodes nodes and lists of nodes, and reads them one at a time.

pub mod fields;
pub mod node;
pub mod node_list;
pub mod record_list;
