//! Chooses a kind of store by figures: the performance of a disk, and the cost of each kind of
//! store on it.
//!
//! [`measure_device`] reads and writes as the thesis behind memventi did with its ptio (Lukkien
//! 2008, chapter 4). From such figures [`plan`] predicts the needs and the speed of a store, in the
//! six cases in which Foundation compares its engines with Venti's (Rhea et al. 2008, section 3,
//! Figure 5). `varve-lab` puts the real engine through the same six cases:
//! `script/bench --scenarios plan` shows both.
//!
//! Read first: `plan.rs` (a prediction for each kind of store), `cost.rs` (the formulas) and
//! `device.rs` (a disk is measured).
//!
//! Invariant: a prediction is a pure function of its input, and names its formulas.
//!
//! Measuring a device is an edge of the house: it uses threads and the system clock.

mod cost;
mod device;
mod engine;
mod plan;

pub use cost::{Case, CaseCost};
pub use device::{DeviceFigures, DeviceRow, MeasureDeviceError, measure_device};
pub use engine::Engine;
pub use plan::{
    CaseForecast, Forecast, Misfit, Processor, Requirements, StorePlan, plan, shared_fingerprints,
};
