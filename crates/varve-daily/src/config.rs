//! The configuration: TOML files, merged, read into settings.

mod config_error;
mod daily_config;
mod entries;
mod freeze;
mod merge;
mod notify;
mod place;
mod reader;
mod reading;
mod secrets;
mod source_text;
mod tree;

pub use config_error::{ConfigErrors, ConfigFault};
pub use daily_config::{
    CareConfig, ConfiguredReplica, ConfiguredSource, ConfiguredStore, DailyConfig, DrillCare, EndedSeries,
    HookConfig, HookSet, ReadingOptions, ReclaimCare, ReplicaTrigger, SourceWhat, VerifyCare,
};
pub use freeze::{FROZEN_PREFIX, FreezeKind, frozen_view_name};
pub use notify::{MailConfig, NotifyConfig, NotifyEvents, PushConfig};
pub use place::ConfigPlace;
pub use secrets::{Credential, StoreKey};
pub use source_text::ConfigText;
