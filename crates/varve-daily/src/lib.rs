//! Daily work: the configuration of a machine, the jobs that are due, and the promises that hold.
//!
//! ```text
//! varve.toml, conf.d/*.toml ─▶ DailyConfig ─┬─▶ DailyJob ─▶ JobDecision ─▶ JobOrder ─▶ JobEnd
//!                                           └─▶ PromiseLimits ──┐
//! Archive, replicas, free space ─▶ StoreFacts ─▶ StoreView ─────┴─▶ StatusReport ─▶ PromiseNotice
//! ```
//!
//! A job is due when no success lies in the current period of its timetable. So any trigger will
//! do, at any time: there is no queue, and nothing to catch up after a missed night. Each job is a
//! process of its own: this program, with a [`JobOrder`].
//!
//! Always true:
//! - A promise is judged from the archive and from the configuration, never from the log of earlier
//!   runs. Only the state of a replica that is away comes from there.
//! - A promise that cannot be judged is never kept.
//! - [`JudgedPromise::text`] has no name of an archived file. Those are in `detail`, which stays on
//!   the machine, unless the configuration allows more.
//! - A key of the configuration that is not known is an error, so that no setting is ignored.
//! - The rooms `config`, `timing` and `promise` read no file, clock or environment variable. The
//!   periods of a timetable cover all time without gaps, and a moment is in one period only.
//!
//! This crate prints nothing: a [`RunObserver`] gets what a run reports.
//!
//! Read first: `config/daily_config.rs` (the settings), `running/run.rs` (a run), `status.rs` and
//! `judging/judge.rs` (the promises).

mod checking;
mod config;
mod freeze;
mod jobs;
mod judging;
mod loaded_config;
mod notices;
mod promise;
mod running;
mod state;
mod status;
mod stores;
mod timing;

pub use checking::{WorldCheck, distrusted_files, look_around, unfulfillable};
pub use config::{
    CareConfig, ConfigErrors, ConfigFault, ConfigPlace, ConfigText, ConfiguredReplica, ConfiguredSource,
    ConfiguredStore, Credential, DailyConfig, DrillCare, EndedSeries, FreezeKind, HookConfig, HookSet,
    MailConfig, NotifyConfig, NotifyEvents, PushConfig, ReadingOptions, ReclaimCare, ReplicaTrigger,
    SourceWhat, StoreKey, VerifyCare,
};
pub use jobs::{DailyJob, Histories, JobDecision, JobKind, decide, jobs, would_forget};
pub use judging::{
    CopiedSnapshot, CopyRecord, Drill, DrillRecord, KnownCopy, SnapshotFact, StatusReport, StoreFacts,
    clock_behind_text, clock_leap_text, is_series_of,
};
pub use loaded_config::{LoadedConfig, UsualReplica, own_file, session_at, usual_replicas, usual_store};
pub use notices::{Channel, PromiseNotice, Sent, channels, depending_text, promise_value, send};
pub use promise::{JudgedPromise, PromiseKind, PromiseLimits, PromiseState, folded};
pub use running::{
    DrillOrder, ForgetOrder, JobOrder, JobOutcome, JobRecord, OrderedWork, ReplicateOrder, RunEnd,
    RunObserver, RunRequest, SnapshotOrder, end_with_run, is_job_process, planned_jobs, run_due_jobs,
    send_changes,
};
pub use state::{ForgottenSnapshot, LoggedJob, NoticeState, RunLock, StateFolder, WorkingRun};
pub use status::{MetricsText, judge_all, judge_named, metrics_page};
pub use stores::id_at;
pub use timing::{
    Dueness, Every, JobHistory, MachineState, ParseEveryError, ParseLoadError, ParsePowerError,
    ParseTimeSpanError, ParseUploadError, Period, PowerNeed, PowerState, RunConditions, Timetable,
    UploadRate, UploadRates, due, parse_time_span, show_time_span,
};
