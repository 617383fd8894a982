//! Translates the names of owners, which vac stores, to and from the numbers of the file system.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

/// Stands for an unknown owner. A restore leaves the owner of such a file unchanged.
const NOBODY: u32 = u32::MAX;

/// The names and numbers of users and groups on one machine.
#[derive(Debug, Clone, Default)]
pub struct OwnerNames {
    users: IdNames,
    groups: IdNames,
}

#[derive(Debug, Clone, Default)]
struct IdNames {
    numbers: BTreeMap<Vec<u8>, u32>,
    names: BTreeMap<u32, Vec<u8>>,
}

impl OwnerNames {
    /// Parses the contents of `/etc/passwd` and `/etc/group`. Malformed lines are skipped.
    #[must_use]
    pub fn parse(passwd: &[u8], group: &[u8]) -> Self {
        Self { users: IdNames::parse(passwd), groups: IdNames::parse(group) }
    }

    /// The number of a user; [`NOBODY`] if unknown.
    pub(super) fn user(&self, name: &[u8]) -> u32 {
        self.users.number(name)
    }

    /// The number of a group; [`NOBODY`] if unknown.
    pub(super) fn group(&self, name: &[u8]) -> u32 {
        self.groups.number(name)
    }

    /// The name of a user. If unknown, the number in digits, as vac writes it.
    pub(crate) fn user_name(&self, number: u32) -> Vec<u8> {
        self.users.name(number)
    }

    /// The name of a group. If unknown, the number in digits.
    pub(crate) fn group_name(&self, number: u32) -> Vec<u8> {
        self.groups.name(number)
    }
}

impl IdNames {
    /// Parses lines of a name, another field and a number, separated by colons.
    fn parse(text: &[u8]) -> Self {
        let mut names = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b':');
            let (Some(name), Some(number)) = (fields.next(), fields.nth(1)) else { continue };
            let Some(number) = digits(number) else { continue };
            if !name.is_empty() {
                // The first line counts, as in the system.
                names.numbers.entry(name.to_vec()).or_insert(number);
                names.names.entry(number).or_insert_with(|| name.to_vec());
            }
        }
        names
    }

    fn number(&self, name: &[u8]) -> u32 {
        self.numbers.get(name).copied().or_else(|| digits(name)).unwrap_or(NOBODY)
    }

    fn name(&self, number: u32) -> Vec<u8> {
        self.names.get(&number).cloned().unwrap_or_else(|| number.to_string().into_bytes())
    }
}

fn digits(text: &[u8]) -> Option<u32> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_to_each_other() {
        let passwd =
            b"root:x:0:0:root:/root:/bin/sh\n\nbad line\nme:x:1000:1000::/:\ntoor:x:0:0::/:\n+:x:x:\n";
        let names = OwnerNames::parse(passwd, b"staff:x:50:me\n");
        assert_eq!((names.user(b"me"), names.user(b"root"), names.user(b"toor")), (1000, 0, 0));
        assert_eq!((names.user(b"54321"), names.user(b"vac"), names.user(b"-1")), (54321, NOBODY, NOBODY));
        assert_eq!((names.group(b"staff"), names.group(b"me")), (50, NOBODY));
        assert_eq!((names.user_name(0), names.user_name(7)), (b"root".to_vec(), b"7".to_vec()));
        assert_eq!(names.group_name(50), b"staff");
    }
}
