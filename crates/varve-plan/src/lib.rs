//! Chooses between kinds of stores by figures: what a disk can do, and what each kind costs on it.
//!
//! [`measure_device`] reads and writes as the thesis behind memventi did with its ptio (Lukkien 2008, chapter 4). [`plan`] predicts
//! from such figures what a store will need and how fast it will be, for the six cases in which Foundation compares its engines with
//! Venti's (Rhea et al. 2008, section 3, Figure 5). `varve-lab` puts the real engine through the same six cases:
//! `script/bench --scenarios plan` shows both.
//!
//! What must always be true: a prediction is a pure function of what it was told, and says with which formulas it was made.
//!
//! Measuring a device is an edge of the house: it has threads and a clock of its own.

mod cost;
mod device;
mod engine;
mod plan;

pub use cost::{Case, Cost};
pub use device::{DeviceFigures, DeviceRow, MeasureDeviceError, measure_device};
pub use engine::Engine;
pub use plan::{Choice, Forecast, Misfit, Plan, Processor, Wanted, plan, shared_fingerprints};
