//! Runs a schedule so that a panic in the engine is a failure like any other. It can also print the
//! events of a run.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::report::{Failure, Outcome};
use crate::schedule::Schedule;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    static TELLS: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a schedule.
pub fn run(schedule: &Schedule) -> Result<Outcome, Failure> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_QUIET.get() {
                LAST_PANIC.set(panic.to_string());
            } else {
                loud(panic);
            }
        }));
    });
    IS_QUIET.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| crate::run::run(schedule)));
    IS_QUIET.set(false);
    outcome.unwrap_or_else(|_| Err(Failure { is_loss: false, text: LAST_PANIC.take(), outcome: None }))
}

/// True if the events of a run are printed.
pub fn tells() -> bool {
    TELLS.get()
}

/// Runs a schedule. If `VARVE_FAULT_TELL` is set, it prints each event and the log lines of the
/// engine, which helps to find the cause of a failure.
pub fn run_telling(schedule: &Schedule) -> Result<Outcome, Failure> {
    if std::env::var_os("VARVE_FAULT_TELL").is_none() {
        return run(schedule);
    }
    let lines = tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG);
    let lines = lines.without_time().with_ansi(false).with_writer(std::io::stdout).finish();
    TELLS.set(true);
    let outcome = tracing::subscriber::with_default(lines, || run(schedule));
    TELLS.set(false);
    outcome
}
