//! Taking a snapshot: the content is archived first, and then added to the catalog.

pub mod archived;
pub mod copy;
pub mod take;
