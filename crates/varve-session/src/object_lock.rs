//! Says how long object lock protects a replica.

use varve_remote::ObjectLock;
use varve_world::{Clock, RealClock};

use crate::moment;

/// Says how long the target protects the first object of a replica.
#[must_use]
pub fn lock_sentence(lock: &ObjectLock) -> String {
    match lock {
        ObjectLock::Until(day) if lock_has_ended(lock) => format!(
            "object lock protected its first object until {day}, and no longer does: nothing renews a lock"
        ),
        ObjectLock::Until(day) => format!("object lock protects its first object until {day}"),
        ObjectLock::LegalHold => "its first object is under a legal hold".to_owned(),
    }
}

/// Reports whether the lock has ended before today, in UTC.
#[must_use]
pub fn lock_has_ended(lock: &ObjectLock) -> bool {
    let today = moment::rfc3339(RealClock.now());
    matches!(lock, ObjectLock::Until(day) if day.as_str() < today.get(..10).unwrap_or_default())
}
