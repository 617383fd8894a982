//! The least-cost design of a store: scc's question (Madhyastha et al., *;login:* June 2012), asked
//! for one store.
//!
//! Three files are the input (`inputs.rs`): a workload, a table of hardware, and a service
//! level. The datasets are the arenas, the index and the cache of frames. A candidate puts each of
//! them on a kind of drive or into memory, with a count, in a server, for a kind of store. The
//! search tries them all, which scc's space is too large for.
//!
//! `demand.rs` turns the workload into work for each kind of store, `candidate.rs` prices and times
//! one candidate, `search.rs` finds the cheapest, and `study.rs` asks how robust that is.

mod candidate;
mod demand;
mod inputs;
mod search;
mod study;

pub use candidate::{CostPart, StoreDesign};
pub use demand::StoreNeeds;
pub use inputs::{CoreType, DriveType, HardwareTable, MemoryType, ServerType, ServiceLevel, WorkloadProfile};
pub use study::{
    AttributeRange, DatasetFlip, DesignStudy, LevelCurve, LevelObstacle, LevelPoint, PriceFlip, study_designs,
};
