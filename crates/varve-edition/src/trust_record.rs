//! The memory of believed heads: a text file in the cache folder.
//!
//! ```text
//! varve trust 1
//! edition = KEY ID SERIAL DIGEST      the newest believed head of a publication, signed by KEY
//! next = KEY KEY                      a head that the first key has signed names the second
//! place = ID KEY PLACE                the publication at a place, and the key that was believed first
//! ```
//!
//! The file is replaced as a whole. It is not authenticated: somebody who can write to the folder
//! can make this machine forget.

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use varve_block::{from_hex, to_hex};

use crate::{EditionKey, ObjectName};

const FIRST_LINE: &str = "varve trust 1";

/// The id of a publication.
pub type PublicationId = [u8; 16];

/// A believed head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenEdition {
    pub serial: u64,
    /// The SHA-256 of the head.
    pub digest: ObjectName,
}

/// The believed heads of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustRecord {
    editions: BTreeMap<(EditionKey, PublicationId), SeenEdition>,
    next: BTreeSet<(EditionKey, EditionKey)>,
    places: BTreeMap<String, (PublicationId, EditionKey)>,
}

/// The text is not such a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the record of trust is invalid: remove the file to trust anew")]
pub struct TrustRecordError {
    line: usize,
}

impl TrustRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// [`TrustRecordError`].
    pub fn parse(text: &str) -> Result<Self, TrustRecordError> {
        let mut record = Self::default();
        let mut lines = (1..).zip(text.lines());
        if lines.next().is_none_or(|(_, line)| line != FIRST_LINE) {
            return Err(TrustRecordError { line: 1 });
        }
        for (line, text) in lines {
            record.parse_line(text).ok_or(TrustRecordError { line })?;
        }
        Ok(record)
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let (key, value) = line.split_once(" = ")?;
        let words: Vec<&str> = value.split(' ').collect();
        match (key, words.as_slice()) {
            ("edition", [key, id, serial, digest]) => {
                let seen = SeenEdition { serial: serial.parse().ok()?, digest: digest.parse().ok()? };
                self.editions.insert((key.parse().ok()?, parse_id(id)?), seen);
            }
            ("next", [key, next]) => drop(self.next.insert((key.parse().ok()?, next.parse().ok()?))),
            ("place", [id, key, place]) => {
                let place = percent_decode_str(place).decode_utf8().ok()?.into_owned();
                self.places.insert(place, (parse_id(id)?, key.parse().ok()?));
            }
            _ => return None,
        }
        Some(())
    }

    /// Writes the record.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for ((key, id), seen) in &self.editions {
            text.push_str(&format!("edition = {key} {} {} {}\n", to_hex(id), seen.serial, seen.digest));
        }
        for (key, next) in &self.next {
            text.push_str(&format!("next = {key} {next}\n"));
        }
        for (place, (id, key)) in &self.places {
            let place = utf8_percent_encode(place, NON_ALPHANUMERIC);
            text.push_str(&format!("place = {} {key} {place}\n", to_hex(id)));
        }
        text
    }

    /// Returns the keys that may sign instead of `keys`, because heads that those have signed name
    /// them; `keys` included.
    #[must_use]
    pub fn successors(&self, keys: &[EditionKey]) -> Vec<EditionKey> {
        let mut trusted: Vec<EditionKey> = keys.to_vec();
        let mut place = 0;
        while let Some(key) = trusted.get(place).copied() {
            place = place.saturating_add(1);
            let next = self.next.iter().filter(|(from, _)| *from == key).map(|(_, next)| *next);
            let new: Vec<_> = next.filter(|next| !trusted.contains(next)).collect();
            trusted.extend(new);
        }
        trusted
    }

    /// Returns the newest believed head of a publication that this key has signed.
    #[must_use]
    pub fn seen(&self, key: &EditionKey, id: &PublicationId) -> Option<SeenEdition> {
        self.editions.get(&(*key, *id)).copied()
    }

    /// Returns the publication at a place, and the key that was believed there first.
    #[must_use]
    pub fn place(&self, place: &str) -> Option<(PublicationId, EditionKey)> {
        self.places.get(place).copied()
    }

    /// Adds a believed head. An older one changes no serial.
    pub fn add(
        &mut self,
        place: &str,
        id: PublicationId,
        first_key: EditionKey,
        seen: SeenEdition,
        trusted_signers: &[EditionKey],
        next_keys: &[EditionKey],
    ) {
        for signer in trusted_signers {
            let known = self.editions.entry((*signer, id)).or_insert(seen);
            if known.serial < seen.serial {
                *known = seen;
            }
            let others = next_keys.iter().filter(|next| *next != signer);
            self.next.extend(others.map(|next| (*signer, *next)));
        }
        self.places.insert(place.to_owned(), (id, first_key));
    }

    /// Adds everything that another record has. Of two editions, the one with the higher serial
    /// stays.
    pub fn merge(&mut self, other: Self) {
        for (key, seen) in other.editions {
            let known = self.editions.entry(key).or_insert(seen);
            if known.serial < seen.serial {
                *known = seen;
            }
        }
        self.next.extend(other.next);
        self.places.extend(other.places);
    }
}

fn parse_id(text: &str) -> Option<PublicationId> {
    from_hex(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EditionSigner;

    fn key(seed: u8) -> EditionKey {
        EditionSigner::from_seed([seed; 32]).key()
    }

    fn seen(serial: u64) -> SeenEdition {
        SeenEdition { serial, digest: ObjectName::of(&serial.to_le_bytes()) }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = TrustRecord::default();
        record.add("https://a.example/ b", [1; 16], key(1), seen(7), &[key(1)], &[key(1), key(2)]);
        record.add("/srv/www", [2; 16], key(3), seen(9), &[key(3)], &[key(3)]);
        let text = record.to_text();
        assert_eq!(TrustRecord::parse(&text), Ok(record.clone()));
        assert_eq!(record.place("https://a.example/ b"), Some(([1; 16], key(1))));
        for bad in ["", "varve trust 2\n", &format!("{text}x\n"), &text.replace(" 7 ", " -7 ")] {
            assert!(TrustRecord::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn serials_only_grow_and_keys_lead_to_others() {
        let mut record = TrustRecord::default();
        for serial in [5, 3] {
            record.add("x", [1; 16], key(1), seen(serial), &[key(1)], &[key(1), key(2)]);
        }
        assert_eq!(record.seen(&key(1), &[1; 16]), Some(seen(5)));
        assert_eq!((record.seen(&key(1), &[2; 16]), record.seen(&key(2), &[1; 16])), (None, None));
        record.add("x", [1; 16], key(1), seen(6), &[key(2)], &[key(3), key(1)]);
        assert_eq!(record.successors(&[key(1)]), [key(1), key(2), key(3)]);
        assert_eq!(record.successors(&[key(3)]), [key(3)]);
        let mut other = TrustRecord::default();
        other.add("y", [1; 16], key(1), seen(4), &[key(1)], &[key(1)]);
        record.merge(other);
        assert_eq!(record.seen(&key(1), &[1; 16]), Some(seen(5)));
        assert!(record.place("y").is_some());
    }
}
