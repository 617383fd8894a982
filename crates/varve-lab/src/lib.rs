//! Where a choice between stores is made by figures: what a device can do, what each kind of index costs on it, and what the engine
//! does when it is asked in the ways that matter.
//!
//! [`measure_device`] reads and writes as the thesis behind memventi did with its ptio (Lukkien 2008, chapter 4). [`plan`] predicts
//! from such figures what a store will need and how fast it will be, for the six cases in which Foundation compares its engines with
//! Venti's (Rhea et al. 2008, section 3, Figure 5). [`run_cases`] puts the real engine through the same six cases, and counts what it asks of its
//! disk. The first has to hold against the last: `script/bench --scenarios plan` shows both.
//!
//! What must always be true: a prediction is a pure function of what it was told, and says with which formulas it was made; what is counted
//! is counted at the seam to the disk, and not computed.
//!
//! Measuring a device is an edge of the house: it has threads and a clock of its own.

mod cases;
mod cost;
mod counted;
mod device;
mod engine;
mod index_shape;
mod plan;
mod uncached;

pub use cases::{CaseResult, CasesError, IndexWork, Workload, run_cases};
pub use cost::{Case, Cost};
pub use counted::{CountedStorage, DiskWork};
pub use device::{DeviceFigures, DeviceRow, MeasureDeviceError, measure_device};
pub use engine::Engine;
pub use index_shape::{Histogram, IndexLoad, IndexShape, index_shape};
pub use plan::{Choice, Forecast, Misfit, Plan, Processor, Wanted, plan};
pub use uncached::UncachedStorage;
