//! Taking a snapshot: content is archived, and then the catalog names it.

pub mod archived;
pub mod copy;
pub mod elsewhere;
pub mod last_night;
pub mod take;
