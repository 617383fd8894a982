//! Running a schedule so that a panic in the engine is a failure like any other.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::report::{Failure, Outcome};
use crate::schedule::Schedule;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
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
