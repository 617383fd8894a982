//! Chooses a kind of store by figures: the performance of a disk, and the cost of each kind of
//! store on it.
//!
//! [`measure_device`] reads and writes as the thesis behind memventi did with its ptio (Lukkien
//! 2008, chapter 4). From such figures [`plan`] predicts the needs and the speed of a store, in the
//! six cases in which Foundation compares its engines with Venti's (Rhea et al. 2008, section 3,
//! Figure 5). `varve-lab` puts the real engine through the same six cases:
//! `script/bench --scenarios plan` shows both.
//!
//! [`study_designs`] asks which hardware to buy: the least-cost design that meets a service level,
//! and how robust it is, as scc does for clusters (Madhyastha et al. 2012). [`endow`] asks for the
//! money that keeps an archive for many years. A [`BlockSizeCounter`] reads data once, and counts
//! the blocks that a store of each block size would have. A [`CutComparison`] counts those of disks
//! that are cut where their files begin.
//!
//! Read first: `plan.rs` (a prediction for each kind of store), `cost.rs` (the formulas),
//! `device.rs` (a disk is measured) and `design.rs` (hardware is chosen).
//!
//! Invariant: a prediction is a pure function of its input, and names its formulas.
//!
//! Measuring a device is an edge of the house: it uses threads and the system clock.

mod block_sizes;
mod chart;
mod cost;
mod cut_comparison;
mod design;
mod device;
mod endowment;
mod engine;
mod example;
mod input;
mod plan;

pub use block_sizes::{BlockSizeCounter, BlockSizeRow, BlockSizeStudy, MergeWay};
pub use cost::{Case, CaseCost};
pub use cut_comparison::{CompareCutsError, CutComparison, CutCount, CutCounts};
pub use design::{
    AttributeRange, CoreType, CostPart, DatasetFlip, DesignStudy, DriveType, HardwareTable, LevelCurve,
    LevelObstacle, LevelPoint, MemoryType, PriceFlip, ServerType, ServiceLevel, StoreDesign, StoreNeeds,
    WorkloadProfile, study_designs,
};
pub use device::{DeviceFigures, DeviceRow, MeasureDeviceError, measure_device};
pub use endowment::{ArchiveCosts, CopyPlace, CopyScheme, Endowment, EndowmentRuns, SchemeOutcome, endow};
pub use engine::Engine;
pub use example::Example;
pub use input::PlanInputError;
pub use plan::{
    CaseForecast, Forecast, Misfit, Processor, Requirements, StorePlan, plan, shared_fingerprints,
};
