//! Exit statuses, for scripts. `docs/guide/exit-status.md` promises that they never change.

use std::error::Error;

use varve_session::FailureKind;

pub const DONE: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const GAPS: u8 = 3;
pub const DAMAGE: u8 = 5;
pub const NO_STORE: u8 = 10;
pub const LOCKED: u8 = 11;
pub const WRONG_KEY: u8 = 12;
pub const INTERRUPTED: u8 = 130;

/// Returns the exit status of a command that failed with this error. After a signal, a command
/// stops with the error of its current operation, such as a connection that is not retried.
pub fn of(error: &anyhow::Error, was_signalled: bool) -> u8 {
    if was_signalled {
        return INTERRUPTED;
    }
    match FailureKind::of(error.as_ref()) {
        Some(FailureKind::Interrupted) => INTERRUPTED,
        Some(FailureKind::Usage) => USAGE,
        Some(FailureKind::Locked) => LOCKED,
        Some(FailureKind::WrongKey) => WRONG_KEY,
        Some(FailureKind::NoStore) => NO_STORE,
        Some(FailureKind::Damage) => DAMAGE,
        Some(FailureKind::NoSpace) | None => FAILED,
    }
}

/// Reports whether an error means that stored bytes are lost or changed.
pub fn is_damage(error: &(dyn Error + 'static)) -> bool {
    FailureKind::Damage.is_in(error)
}
