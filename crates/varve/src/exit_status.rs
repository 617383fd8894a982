//! Exit statuses, for scripts. `docs/guide/exit-status.md` promises that they never change.

use std::error::Error;

use varve_block::FailureKind;
use varve_session::failure_kinds;

pub const DONE: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const GAPS: u8 = 3;
pub const PROMISE_BROKEN: u8 = 4;
pub const DAMAGE: u8 = 5;
pub const NOTHING_DONE: u8 = 6;
pub const NO_STORE: u8 = 10;
pub const LOCKED: u8 = 11;
pub const WRONG_KEY: u8 = 12;
pub const NEWER_VERSION: u8 = 13;
pub const INTERRUPTED: u8 = 130;

/// Returns the exit status of a command that failed with this error. After a signal, a command
/// stops with the error of its current operation, such as a connection that is not retried.
pub fn of(error: &anyhow::Error, was_signalled: bool) -> u8 {
    if was_signalled {
        return INTERRUPTED;
    }
    failure_kinds(error.as_ref()).min().map_or(FAILED, of_kind)
}

fn of_kind(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Interrupted => INTERRUPTED,
        FailureKind::Usage => USAGE,
        FailureKind::Locked => LOCKED,
        FailureKind::NoSecret
        | FailureKind::WrongKey
        | FailureKind::NeedsKeyFile
        | FailureKind::NeedsPassphrase
        | FailureKind::CannotRead
        | FailureKind::NeedsFullKey => WRONG_KEY,
        FailureKind::NoStore | FailureKind::NotAStore => NO_STORE,
        FailureKind::NewerVersion => NEWER_VERSION,
        FailureKind::Damage | FailureKind::SettingsLost | FailureKind::KeysLost => DAMAGE,
        FailureKind::NoSpace => FAILED,
    }
}

/// Reports whether an error means that stored bytes are lost or changed.
pub fn is_damage(error: &(dyn Error + 'static)) -> bool {
    failure_kinds(error).any(FailureKind::is_damage)
}
