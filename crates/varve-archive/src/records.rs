//! Records: how nodes and lists of them are written, and read one at a time.

pub mod fields;
pub mod node;
pub mod node_list;
pub mod record_list;
