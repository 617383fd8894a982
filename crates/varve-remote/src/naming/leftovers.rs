//! What dead writers have left: files under the names of unfinished objects, which nobody finishes any more.
//!
//! Only names that this program makes are taken for one, and only when they are surely dead, by the server's own clock: it has written
//! something else days after it. No upload of an object takes a tenth of that: it would have been given up as too slow. If a clock has
//! jumped all the same, a writer finds that what it has sent is gone, and sends it again.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::naming::object_names::is_folder_of_a_store;

/// So much younger is something else that the server has written, in seconds: three days.
const YOUNGER_SECONDS: i64 = 3 * 24 * 3600;
/// More are not remembered; the next time tells of the rest.
const COUNT_MAX: usize = 10_000;
const PREFIX: &str = ".varve-";
const SUFFIX: &str = ".tmp";
const DIGITS: usize = 16;

/// A name for an object that is not whole yet: no store uses it, and no other writer has it.
pub(crate) fn unfinished_name(number: u64) -> String {
    format!("{PREFIX}{number:0DIGITS$x}{SUFFIX}")
}

fn is_unfinished(own_name: &str) -> bool {
    let digits = own_name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// Files under names of unfinished objects, as a listing meets them, and when the server has last written anything.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    found: Vec<(String, i64)>,
    newest: Option<i64>,
}

impl Leftovers {
    /// Takes in a file by its path below the place, and when the server says that it was changed, in seconds since 1970.
    pub fn note(&mut self, path: &str, modified: Option<i64>) {
        let Some(modified) = modified else { return };
        self.newest = self.newest.max(Some(modified));
        // What a server makes up must not lead out of the place.
        let is_ours = match path.rsplit_once('/') {
            Some((folder, own_name)) => is_folder_of_a_store(folder) && is_unfinished(own_name),
            None => is_unfinished(path),
        };
        if is_ours && self.found.len() < COUNT_MAX {
            self.found.push((path.into(), modified));
        }
    }

    /// Those that nobody finishes any more.
    pub fn dead(&mut self) -> Vec<String> {
        let newest = self.newest.unwrap_or(i64::MIN);
        let is_dead = |modified: i64| newest.saturating_sub(modified) >= YOUNGER_SECONDS;
        std::mem::take(&mut self.found)
            .into_iter()
            .filter(|(_, modified)| is_dead(*modified))
            .map(|(path, _)| path)
            .collect()
    }
}

/// When something was changed, as HTTP says it, in seconds since 1970.
pub(crate) fn of_http_date(text: &str) -> Option<i64> {
    jiff::fmt::rfc2822::parse(text.trim()).ok().map(|zoned| zoned.timestamp().as_second())
}

/// When something was changed, as FTP's `modify` says it: the digits of a moment in UTC, and perhaps a fraction.
pub(crate) fn of_ftp_digits(text: &str) -> Option<i64> {
    let digits = text.split('.').next().filter(|digits| digits.len() == 14)?;
    let moment = DateTime::strptime("%Y%m%d%H%M%S", digits).ok()?;
    moment.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    #[test]
    fn only_ours_and_only_what_is_surely_dead() {
        let ours = |number: u64| format!("arenas/{}", unfinished_name(number));
        let mut found = Leftovers::default();
        found.note(&ours(1), Some(10 * DAY));
        found.note(&ours(2), Some(12 * DAY));
        found.note(&ours(3), None);
        for foreign in [
            ".varve-1.tmp",
            ".varve-00000000000000zz.tmp",
            ".varve-0123456789ABCDEF.tmp",
            "varve-0123456789abcdef.tmp",
            ".varve-0123456789abcdef.tmp.old",
            "../.varve-0123456789abcdef.tmp",
            "/etc/.varve-0123456789abcdef.tmp",
            "arenas/../../.varve-0123456789abcdef.tmp",
        ] {
            found.note(foreign, Some(0));
        }
        found.note("arenas/object", Some(13 * DAY));
        assert_eq!(found.dead(), [ours(1)]);
        let mut alone = Leftovers::default();
        alone.note(&ours(1), Some(0));
        assert_eq!(alone.dead(), [""; 0], "nothing tells how old it is");
        assert_eq!(Leftovers::default().dead(), [""; 0]);
    }

    #[test]
    fn moments_are_read() {
        assert_eq!(of_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(of_ftp_digits("19941106084937"), Some(784_111_777));
        assert_eq!(of_ftp_digits("19941106084937.123"), Some(784_111_777));
        for text in ["", "yesterday", "1994110608493", "19941306084937", "-9941106084937", "99999999999999"] {
            assert_eq!((of_http_date(text), of_ftp_digits(text)), (None, None), "{text}");
        }
    }
}
