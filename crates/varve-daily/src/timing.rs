//! When a job is due.

mod conditions;
mod due;
mod every;
mod span;
mod timetable;
mod upload;

pub use conditions::{
    MachineState, ParseLoadError, ParsePowerError, PowerNeed, PowerState, RunConditions, parse_load,
};
pub use due::{Dueness, JobHistory, back_off, due};
pub use every::{Every, ParseEveryError};
pub use span::{ParseTimeSpanError, parse_time_span, show_time_span};
pub use timetable::{Period, Timetable, spread_offset};
pub use upload::{ParseUploadError, UploadRate, UploadRates};
