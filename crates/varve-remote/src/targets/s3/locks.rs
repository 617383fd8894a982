//! The locks of objects, as a server tells of them.

use reqwest::header::HeaderMap;

use crate::target::ObjectLock;

/// Returns the lock that the headers of an object tell of, which it had or still has.
pub(super) fn lock_of(headers: &HeaderMap) -> Option<ObjectLock> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let hold = text("x-amz-object-lock-legal-hold").and_then(legal_hold);
    hold.or_else(|| text("x-amz-object-lock-retain-until-date").and_then(until_day))
}

/// Parses the status of a legal hold.
pub(super) fn legal_hold(status: &str) -> Option<ObjectLock> {
    status.trim().eq_ignore_ascii_case("ON").then_some(ObjectLock::LegalHold)
}

/// Returns the day of a time such as `2026-12-01T08:00:00Z`. The text is the server's, so it must
/// look like a day.
pub(super) fn until_day(time: &str) -> Option<ObjectLock> {
    let day = time.trim().get(..10)?;
    let is_day = day.bytes().enumerate().all(|(place, byte)| match place {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    is_day.then(|| ObjectLock::Until(day.to_owned()))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn locks_are_days_or_holds() {
        let lock = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            lock_of(&headers)
        };
        let (until, hold) = ("x-amz-object-lock-retain-until-date", "x-amz-object-lock-legal-hold");
        let day = Some(ObjectLock::Until("2026-12-01".into()));
        assert_eq!(lock(until, "2026-12-01T08:00:00Z"), day);
        assert_eq!(lock(until, "2026-12-01T08:00:00.123Z"), day);
        assert_eq!((lock(hold, "ON"), lock(hold, "OFF")), (Some(ObjectLock::LegalHold), None));
        for forged in ["", "tomorrow!!", "2026-12-1", "2026/12/01T08:00:00Z"] {
            assert_eq!(lock(until, forged), None, "{forged}");
        }
    }
}
