//! Exit statuses, for scripts. `docs/guide/exit-status.md` promises that they never change.

use std::error::Error;

use varve_block::{FailureKind, HasKind, causes};
use varve_edition::{DiskProfileError, HeadError, MachineDescriptionError, MapPageError, TrustRecordError};
use varve_proxy::OpenSegmentsError;
use varve_session::failure_kinds;
use varve_trace::ReadTraceError;

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
    let copies = causes(error.as_ref()).filter_map(kind_of_copy);
    failure_kinds(error.as_ref()).chain(copies).min().map_or(FAILED, of_kind)
}

/// Returns the kind of an error about a publication, a trace or the folder of a proxy, which no
/// session opens.
fn kind_of_copy(error: &(dyn Error + 'static)) -> Option<FailureKind> {
    fn kind<E: HasKind + 'static>(error: &(dyn Error + 'static)) -> Option<FailureKind> {
        error.downcast_ref::<E>()?.failure_kind()
    }
    [
        kind::<DiskProfileError>,
        kind::<HeadError>,
        kind::<MachineDescriptionError>,
        kind::<MapPageError>,
        kind::<OpenSegmentsError>,
        kind::<ReadTraceError>,
        kind::<TrustRecordError>,
    ]
    .iter()
    .find_map(|kind| kind(error))
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
