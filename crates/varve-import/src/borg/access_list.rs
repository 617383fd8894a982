//! Access lists as borg keeps them: the text of `acl_to_text(3)` with a number behind each name.
//! Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
/// Upper bound on the entries. The kernel accepts far fewer.
const ENTRY_COUNT_MAX: usize = 10_000;

/// The tags of entries, in the order in which the kernel keeps them.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The value of the attribute `system.posix_acl_access` or `system.posix_acl_default` for a text.
/// Empty if the list is empty; `None` if the text is malformed.
pub(super) fn access_list(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let lines = text.split(['\n', ',']).map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut entries = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        if entries.len() >= ENTRY_COUNT_MAX {
            return None;
        }
        entries.push(entry(line)?);
    }
    if entries.is_empty() {
        return Some(Vec::new());
    }
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Some(value)
}

/// Returns true if a list says no more than a mode. The kernel keeps no such list of a file.
pub(super) fn is_only_a_mode(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count() <= 3
}

/// An entry such as `user:NAME:rw-:1000`: its tag, its id and its permissions.
fn entry(line: &str) -> Option<(u16, u32, u16)> {
    let mut parts = line.split(':');
    let (kind, name, permissions) = (parts.next()?, parts.next()?, parts.next()?);
    let number = parts.next();
    let tag = match (kind, name.is_empty()) {
        ("user" | "u", true) => OWNER,
        ("user" | "u", false) => USER,
        ("group" | "g", true) => OWNING_GROUP,
        ("group" | "g", false) => GROUP,
        ("mask" | "m", true) => MASK,
        ("other" | "o", true) => OTHER,
        _ => return None,
    };
    let id = match tag {
        USER | GROUP => number.filter(|number| !number.is_empty()).unwrap_or(name).parse().ok()?,
        _ => NO_ID,
    };
    let bit = |letter: char| match letter {
        'r' => Some(4),
        'w' => Some(2),
        'x' => Some(1),
        '-' => Some(0),
        _ => None,
    };
    let permissions = permissions.chars().try_fold(0_u16, |bits, letter| Some(bits | bit(letter)?))?;
    Some((tag, id, permissions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_the_value_of_the_kernel() {
        let text = b"user::rw-\nuser:daemon:r--:1\ngroup::r--\ngroup:bin:rwx:2\nmask::rwx\nother::r--";
        let value = access_list(text).unwrap();
        let entries: [(u16, u16, u32); 6] =
            [(1, 6, NO_ID), (2, 4, 1), (4, 4, NO_ID), (8, 7, 2), (0x10, 7, NO_ID), (0x20, 4, NO_ID)];
        let mut expected = vec![2, 0, 0, 0];
        for (tag, permissions, id) in entries {
            expected.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
            expected.extend(id.to_le_bytes());
        }
        assert_eq!(value, expected);
        assert_eq!(access_list(b"user::rw-\nuser:1000:r--\nmask::r--\n").map(|value| value.len()), Some(28));
        assert_eq!(access_list(b""), Some(Vec::new()));
        assert!(is_only_a_mode(b"user::rwx\ngroup::r-x\nother::r-x\n") && !is_only_a_mode(text));
        for bad in ["user", "user:name:rwx", "user:name:rwx:x", "role::r--", "other::q--", "mask:x:r--"] {
            assert_eq!(access_list(bad.as_bytes()), None, "{bad}");
        }
    }
}
