//! The lines of FTP listings: those of `MLSD` (RFC 3659), and the formats of `ls -l` and DOS.

use crate::naming::leftovers;

/// The entry of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FtpEntry<'a> {
    /// A file with its length and its modification time in seconds since 1970, if the server
    /// reports it.
    File(&'a str, u64, Option<i64>),
    Folder(&'a str),
    /// Another kind of entry, or a name that no store uses.
    Foreign,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Parses a line of `MLSD`; `None` if it is malformed.
pub(super) fn of_mlsd(line: &str) -> Option<FtpEntry<'_>> {
    let (facts, name) = line.split_once(' ')?;
    let fact = |wanted: &str| {
        let pairs = facts.split(';').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    };
    match fact("type")?.to_ascii_lowercase().as_str() {
        "file" => {
            let modified = fact("modify").and_then(leftovers::of_ftp_digits);
            Some(FtpEntry::File(name, fact("size")?.parse().ok()?, modified))
        }
        "dir" => Some(FtpEntry::Folder(name)),
        _ => Some(FtpEntry::Foreign),
    }
}

/// Parses a line of `LIST`; `None` if its format is unknown.
pub(super) fn of_list(line: &str) -> Option<FtpEntry<'_>> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    match words.as_slice() {
        [] | ["total", _] => Some(FtpEntry::Foreign),
        [date, _, kind, name @ ..] if date.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() => {
            of_dos(kind, name)
        }
        [mode, ..] if mode.starts_with(['-', 'd', 'l', 'b', 'c', 'p', 's']) => of_unix(mode, &words),
        _ => None,
    }
}

fn of_dos<'a>(kind: &str, name: &[&'a str]) -> Option<FtpEntry<'a>> {
    let &[name] = name else { return Some(FtpEntry::Foreign) };
    if kind.eq_ignore_ascii_case("<dir>") {
        return Some(FtpEntry::Folder(name));
    }
    kind.parse().ok().map(|bytes| FtpEntry::File(name, bytes, None))
}

/// Mode, links, owner, (group,) length, month, day, time or year, name. A store's names have no
/// blanks, so other lines are foreign.
fn of_unix<'a>(mode: &str, words: &[&'a str]) -> Option<FtpEntry<'a>> {
    let is_month = |word: &&str| MONTHS.contains(&word.to_ascii_lowercase().as_str());
    let month_at = words.iter().skip(3).position(is_month)? + 3;
    let bytes = words.get(month_at.checked_sub(1)?)?;
    let Some([_, _, _, name]) = words.get(month_at..) else { return Some(FtpEntry::Foreign) };
    match mode.as_bytes().first()? {
        b'-' => bytes.parse().ok().map(|bytes| FtpEntry::File(name, bytes, None)),
        b'd' => Some(FtpEntry::Folder(name)),
        _ => Some(FtpEntry::Foreign),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_servers_are_read() {
        for (line, expected) in [
            (
                "-rw-------    1 0        0         3000001 Nov 21 06:40 object",
                FtpEntry::File("object", 3_000_001, None),
            ),
            ("drwx------    2 ann      staff        4096 Nov 21  2025 arenas", FtpEntry::Folder("arenas")),
            ("-rw-r--r-- 1 ann 77 Jan 1 1970 x", FtpEntry::File("x", 77, None)),
            ("lrwxrwxrwx 1 0 0 7 Nov 21 06:40 link -> object", FtpEntry::Foreign),
            ("-rw-r--r-- 1 0 0 7 Nov 21 06:40 two words", FtpEntry::Foreign),
            ("total 12", FtpEntry::Foreign),
            ("", FtpEntry::Foreign),
            ("11-21-25  06:40AM       <DIR>          arenas", FtpEntry::Folder("arenas")),
            ("11-21-25  06:40AM             3000001 object", FtpEntry::File("object", 3_000_001, None)),
        ] {
            assert_eq!(of_list(line), Some(expected), "{line}");
        }
        for line in ["?", "-rw-r--r-- 1 0 0 many Nov 21 06:40 x", "+i8388621.48594,m825718503,r,s280,\tx"] {
            assert_eq!(of_list(line), None, "{line}");
        }
    }

    #[test]
    fn facts_are_read() {
        let file = "Type=file;Size=5;Modify=20251121064000;UNIX.mode=0600; object";
        assert_eq!(of_mlsd(file), Some(FtpEntry::File("object", 5, Some(1_763_707_200))));
        assert_eq!(of_mlsd("type=dir;sizd=4096; arenas"), Some(FtpEntry::Folder("arenas")));
        assert_eq!(of_mlsd("type=cdir; ."), Some(FtpEntry::Foreign));
        for line in ["", "x", "type=file; no-size", "size=5; no-type", "type=file;size=-1; x"] {
            assert_eq!(of_mlsd(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_file_has_a_blank_in_its_name(line in "\\PC{0,60}|[-dl 0-9a-zA-Z;=]{0,60}") {
            prop_assert!(of_mlsd(&line).is_none() || line.contains(' '));
            if let Some(FtpEntry::File(name, ..) | FtpEntry::Folder(name)) = of_list(&line) {
                prop_assert!(!name.contains(' '), "{name:?}");
            }
        }
    }
}
