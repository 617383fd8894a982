//! Daily work: the configuration of a machine, the jobs that are due, and the promises that hold.
//!
//! ```text
//! varve.toml, conf.d/*.toml ─▶ DailyConfig ─┬─▶ Timetable ─▶ Period ─▶ Dueness
//!                                           └─▶ PromiseLimits ─┬─▶ JudgedPromise
//! times of snapshots, readings and copies, now ────────────────┘
//! ```
//!
//! A job is due when no success lies in the current period of its timetable. So any trigger will
//! do, at any time: there is no queue, and nothing to catch up after a missed night.
//!
//! Invariants:
//! - Nothing here reads a file, a clock or an environment variable. The same configuration, facts
//!   and time give the same answer.
//! - The periods of a timetable cover all time without gaps, and a moment is in one period only.
//! - A key that is not known is an error, so that no setting is ignored.
//!
//! Read first: `config/daily_config.rs` (the settings), `timing/timetable.rs` (periods) and
//! `timing/due.rs` (due or not).

mod changes;
mod config;
mod promise;
mod timing;

pub use changes::ReportedStates;
pub use config::config_error::{ConfigErrors, ConfigFault};
pub use config::daily_config::{
    CareConfig, ConfiguredReplica, ConfiguredSource, ConfiguredStore, DailyConfig, DrillCare, EndedSeries,
    HookConfig, HookSet, ReclaimCare, ReplicaTrigger, SourceWhat, VerifyCare,
};
pub use config::freeze::{FROZEN_PREFIX, FreezeKind, frozen_view_name};
pub use config::notify::{MailConfig, NotifyConfig, NotifyEvents, PushConfig};
pub use config::place::ConfigPlace;
pub use config::secrets::{Credential, StoreKey};
pub use config::source_text::ConfigText;
pub use promise::{JudgedPromise, PromiseKind, PromiseLimits, PromiseState, judge_age, judge_room};
pub use timing::conditions::{
    MachineState, ParseLoadError, ParsePowerError, PowerNeed, PowerState, RunConditions, parse_load,
};
pub use timing::due::{Dueness, JobHistory, back_off, due};
pub use timing::every::{Every, ParseEveryError};
pub use timing::span::{ParseTimeSpanError, age, parse_time_span, show_time_span};
pub use timing::timetable::{Period, Timetable, spread_offset};
pub use timing::upload::{ParseUploadError, UploadRate, UploadRates};
