//! The memory of believed heads: a text file in the cache folder.
//!
//! ```text
//! varve trust 2
//! edition = KEY ID SERIAL DIGEST NEXT...  the newest head that a reader with KEY has believed, and
//!                                         the keys that may sign the next one
//! place = ID KEY PLACE                    the publication at a place, and the key that led to it
//! ```
//!
//! Version 1 remembered a serial for each signer, and keys that lead to others for ever. It is
//! read, and written as version 2.
//!
//! The file is replaced as a whole. It is not authenticated: somebody who can write to the folder
//! can make this machine forget.

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use varve_block::{from_hex, has_kind, to_hex};

use crate::edition_key::EditionKey;
use crate::first_line::later_version;
use crate::object_name::ObjectName;

const FIRST_LINE: &str = "varve trust 2";
const FIRST_LINE_1: &str = "varve trust 1";

/// The id of a publication.
pub type PublicationId = [u8; 16];

/// A believed head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenEdition {
    pub serial: u64,
    /// The SHA-256 of the head.
    pub digest: ObjectName,
    /// The keys in its lines: only these sign the next head.
    pub keys: Vec<EditionKey>,
}

/// The believed heads of a machine.
///
/// The state is kept for each key that an address may have, and not for the id of a publication
/// alone. Otherwise anybody could publish a head with the id of another publication, and so change
/// what readers of that one believe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustRecord {
    editions: BTreeMap<(EditionKey, PublicationId), SeenEdition>,
    places: BTreeMap<String, (PublicationId, EditionKey)>,
}

/// The reason why a text is not such a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustRecordError {
    #[error("its first line is not {FIRST_LINE:?}: remove the file to trust anew")]
    FirstLine,
    #[error("the record of trust has version {version}, which is newer than this program: use a newer one")]
    NewerVersion { version: u32 },
    #[error("line {line} of the record of trust is invalid: remove the file to trust anew")]
    Line { line: usize },
}

has_kind!(TrustRecordError: Self::NewerVersion { .. } => NewerVersion);

impl TrustRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// [`TrustRecordError`].
    pub fn parse(text: &str) -> Result<Self, TrustRecordError> {
        let mut lines = (1..).zip(text.lines());
        match lines.next().map(|(_, line)| line) {
            Some(FIRST_LINE) => {
                let mut record = Self::default();
                for (line, text) in lines {
                    record.parse_line(text).ok_or(TrustRecordError::Line { line })?;
                }
                Ok(record)
            }
            Some(FIRST_LINE_1) => {
                let mut record = Record1::default();
                for (line, text) in lines {
                    record.parse_line(text).ok_or(TrustRecordError::Line { line })?;
                }
                Ok(record.into())
            }
            _ => Err(match later_version(text, FIRST_LINE) {
                Some(version) => TrustRecordError::NewerVersion { version },
                None => TrustRecordError::FirstLine,
            }),
        }
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let (kind, value) = line.split_once(" = ")?;
        let words: Vec<&str> = value.split(' ').collect();
        match (kind, words.as_slice()) {
            ("edition", [key, id, serial, digest, first, more @ ..]) => {
                let keys = [first].into_iter().chain(more).map(|key| key.parse().ok());
                let seen = SeenEdition {
                    serial: serial.parse().ok()?,
                    digest: digest.parse().ok()?,
                    keys: keys.collect::<Option<_>>()?,
                };
                self.editions.insert((key.parse().ok()?, parse_id(id)?), seen);
            }
            ("place", words) => self.places.extend([parse_place(words)?]),
            _ => return None,
        }
        Some(())
    }

    /// Writes the record.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for ((key, id), seen) in &self.editions {
            text.push_str(&format!("edition = {key} {} {} {}", to_hex(id), seen.serial, seen.digest));
            seen.keys.iter().for_each(|key| text.push_str(&format!(" {key}")));
            text.push('\n');
        }
        for (place, (id, key)) in &self.places {
            let place = utf8_percent_encode(place, NON_ALPHANUMERIC);
            text.push_str(&format!("place = {} {key} {place}\n", to_hex(id)));
        }
        text
    }

    /// Returns the keys that may sign the next head of a publication for a reader with `key`: those
    /// of the newest head that it has believed, or `key` itself before the first one.
    #[must_use]
    pub fn keys_after(&self, key: &EditionKey, id: &PublicationId) -> Vec<EditionKey> {
        self.seen(key, id).map_or_else(|| vec![*key], |seen| seen.keys.clone())
    }

    /// Returns `keys`, and all keys that may sign for a reader with one of them, of any
    /// publication.
    #[must_use]
    pub fn all_keys_after(&self, keys: &[EditionKey]) -> Vec<EditionKey> {
        let mut all = keys.to_vec();
        let seen = self.editions.iter().filter(|((key, _), _)| keys.contains(key));
        all.extend(seen.flat_map(|(_, seen)| &seen.keys));
        all.sort();
        all.dedup();
        all
    }

    /// Returns the newest head of a publication that a reader with `key` has believed.
    #[must_use]
    pub fn seen(&self, key: &EditionKey, id: &PublicationId) -> Option<&SeenEdition> {
        self.editions.get(&(*key, *id))
    }

    /// Returns the publication at a place, and the key that led to it.
    #[must_use]
    pub fn place(&self, place: &str) -> Option<(PublicationId, EditionKey)> {
        self.places.get(place).copied()
    }

    /// Adds a believed head, which `signers` have signed, for a reader with each of these keys, and
    /// for those who would have believed it too. An older one changes nothing.
    pub fn add_edition(&mut self, id: PublicationId, seen: &SeenEdition, signers: &[EditionKey]) {
        for ((_, other), known) in &mut self.editions {
            let is_believed = *other == id && known.keys.iter().any(|key| signers.contains(key));
            if is_believed && known.serial < seen.serial {
                *known = seen.clone();
            }
        }
        for signer in signers {
            self.editions.entry((*signer, id)).or_insert_with(|| seen.clone());
        }
    }

    /// Remembers the publication at a place, and the key that led to it.
    pub fn add_place(&mut self, place: &str, id: PublicationId, key: EditionKey) {
        self.places.insert(place.to_owned(), (id, key));
    }

    /// Adds everything that another record has. Of two editions, the one with the higher serial
    /// stays.
    pub fn merge(&mut self, other: Self) {
        for (key, seen) in other.editions {
            match self.editions.get(&key) {
                Some(known) if known.serial >= seen.serial => {}
                _ => drop(self.editions.insert(key, seen)),
            }
        }
        self.places.extend(other.places);
    }
}

/// A record of version 1.
#[derive(Default)]
struct Record1 {
    /// The newest head that each key has signed.
    editions: BTreeMap<(EditionKey, PublicationId), (u64, ObjectName)>,
    /// A head that the first key has signed names the second.
    next: BTreeSet<(EditionKey, EditionKey)>,
    places: BTreeMap<String, (PublicationId, EditionKey)>,
}

impl Record1 {
    fn parse_line(&mut self, line: &str) -> Option<()> {
        let (kind, value) = line.split_once(" = ")?;
        let words: Vec<&str> = value.split(' ').collect();
        match (kind, words.as_slice()) {
            ("edition", [key, id, serial, digest]) => {
                let seen = (serial.parse().ok()?, digest.parse().ok()?);
                self.editions.insert((key.parse().ok()?, parse_id(id)?), seen);
            }
            ("next", [key, next]) => drop(self.next.insert((key.parse().ok()?, next.parse().ok()?))),
            ("place", words) => self.places.extend([parse_place(words)?]),
            _ => return None,
        }
        Some(())
    }

    fn next_of(&self, key: EditionKey) -> impl Iterator<Item = EditionKey> {
        self.next.iter().filter(move |(from, _)| *from == key).map(|(_, next)| *next)
    }

    /// Returns `key`, and the keys to which it leads.
    fn successors(&self, key: EditionKey) -> Vec<EditionKey> {
        let mut all = vec![key];
        let mut place = 0;
        while let Some(key) = all.get(place).copied() {
            place = place.saturating_add(1);
            let new: Vec<_> = self.next_of(key).filter(|next| !all.contains(next)).collect();
            all.extend(new);
        }
        all
    }
}

impl From<Record1> for TrustRecord {
    /// Version 1 did not remember the keys of the newest head. Its signers are among them. So is a
    /// key that they have named and that has not signed yet. A key that has signed earlier heads
    /// only was dropped.
    fn from(old: Record1) -> Self {
        let mut editions = BTreeMap::new();
        for (key, id) in old.editions.keys() {
            let mut signed = Vec::new();
            for key in old.successors(*key) {
                signed.extend(old.editions.get(&(key, *id)).map(|seen| (*seen, key)));
            }
            let Some(((serial, digest), _)) = signed.iter().copied().max_by_key(|((serial, _), _)| *serial)
            else {
                continue;
            };
            let newest = signed.iter().filter(|(seen, _)| *seen == (serial, digest));
            let mut keys: Vec<EditionKey> = newest.map(|(_, key)| *key).collect();
            let named: Vec<_> = keys.iter().flat_map(|key| old.next_of(*key)).collect();
            keys.extend(named.into_iter().filter(|key| !old.editions.contains_key(&(*key, *id))));
            keys.sort();
            keys.dedup();
            editions.insert((*key, *id), SeenEdition { serial, digest, keys });
        }
        Self { editions, places: old.places }
    }
}

fn parse_id(text: &str) -> Option<PublicationId> {
    from_hex(text).ok()?.try_into().ok()
}

fn parse_place(words: &[&str]) -> Option<(String, (PublicationId, EditionKey))> {
    let [id, key, place] = words else { return None };
    let place = percent_decode_str(place).decode_utf8().ok()?.into_owned();
    Some((place, (parse_id(id)?, key.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EditionSigner;

    fn key(seed: u8) -> EditionKey {
        EditionSigner::from_seed([seed; 32]).key()
    }

    fn keys(seeds: &[u8]) -> Vec<EditionKey> {
        seeds.iter().map(|seed| key(*seed)).collect()
    }

    fn seen(serial: u64, seeds: &[u8]) -> SeenEdition {
        SeenEdition { serial, digest: ObjectName::of(&serial.to_le_bytes()), keys: keys(seeds) }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = TrustRecord::default();
        record.add_edition([1; 16], &seen(7, &[1, 2]), &keys(&[1]));
        record.add_place("https://a.example/ b", [1; 16], key(1));
        record.add_edition([2; 16], &seen(9, &[3]), &keys(&[3]));
        record.add_place("/srv/www", [2; 16], key(3));
        let text = record.to_text();
        assert_eq!(TrustRecord::parse(&text), Ok(record.clone()));
        assert_eq!(record.place("https://a.example/ b"), Some(([1; 16], key(1))));
        let without_keys = text.replace(&format!(" {}\n", key(3)), "\n");
        for bad in ["", "varve trust 3\n", &format!("{text}x\n"), &text.replace(" 7 ", " -7 "), &without_keys]
        {
            assert!(TrustRecord::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn serials_only_grow_and_only_the_newest_head_names_the_next_keys() {
        let (id, mut record) = ([1; 16], TrustRecord::default());
        for serial in [5, 3] {
            record.add_edition(id, &seen(serial, &[1, 2]), &keys(&[1]));
        }
        assert_eq!(record.seen(&key(1), &id), Some(&seen(5, &[1, 2])));
        assert_eq!((record.seen(&key(1), &[2; 16]), record.seen(&key(2), &id)), (None, None));
        assert_eq!(record.keys_after(&key(2), &id), keys(&[2]));
        // The second key signs alone, and lists only itself. A reader with the first key follows.
        record.add_edition(id, &seen(6, &[2]), &keys(&[2]));
        assert_eq!(record.keys_after(&key(1), &id), keys(&[2]));
        record.add_edition(id, &seen(9, &[1]), &keys(&[1]));
        assert_eq!(record.seen(&key(1), &id), Some(&seen(6, &[2])));
        let mut other = TrustRecord::default();
        other.add_edition(id, &seen(4, &[1]), &keys(&[1]));
        other.add_place("y", id, key(1));
        record.merge(other);
        assert_eq!(record.seen(&key(1), &id), Some(&seen(6, &[2])));
        assert!(record.place("y").is_some());
    }

    #[test]
    fn a_head_with_the_id_of_another_publication_changes_nothing_for_its_readers() {
        let (id, mut record) = ([1; 16], TrustRecord::default());
        record.add_edition(id, &seen(5, &[1]), &keys(&[1]));
        record.add_edition(id, &seen(1 << 40, &[1, 9]), &keys(&[9]));
        assert_eq!(record.seen(&key(1), &id), Some(&seen(5, &[1])));
    }

    /// Editions 3 (key 1), 5 (both) and 8 (key 2), as version 1 remembered them.
    #[test]
    fn a_record_of_version_1_keeps_its_serials_and_its_newest_keys() {
        let id = [1; 16];
        let line = |seed, serial: u64| {
            let digest = ObjectName::of(&serial.to_le_bytes());
            format!("edition = {} {} {serial} {digest}\n", key(seed), to_hex(&id))
        };
        let next = |from, to| format!("next = {} {}\n", key(from), key(to));
        let place = format!("place = {} {} www\n", to_hex(&id), key(1));
        let changed = [line(1, 5), line(2, 8), next(1, 2), next(2, 1), place.clone()].concat();
        let record = TrustRecord::parse(&format!("{FIRST_LINE_1}\n{changed}")).unwrap();
        for seed in [1, 2] {
            assert_eq!(record.seen(&key(seed), &id), Some(&seen(8, &[2])));
        }
        assert_eq!(record.place("www"), Some((id, key(1))));
        assert_eq!(TrustRecord::parse(&record.to_text()), Ok(record));
        // Key 2 is named, and has not signed yet.
        let named = [line(1, 5), next(1, 2), place].concat();
        let record = TrustRecord::parse(&format!("{FIRST_LINE_1}\n{named}")).unwrap();
        let mut expected = keys(&[1, 2]);
        expected.sort();
        assert_eq!(record.keys_after(&key(1), &id), expected);
    }
}
