//! `index/barren`: the list of barren blocks, for machines with a write-only key. They cannot read
//! the list in the log, and would store everything again that leads to other blocks.
//!
//! A key that can read writes this hint whenever it has added a note to the log. The hint counts
//! only while the note that it names is the newest note of the log.
//!
//! | offset | bytes | field         | meaning                                                       |
//! |-------:|------:|---------------|---------------------------------------------------------------|
//! |      0 |     8 | magic         | `varveBB1`                                                    |
//! |      8 |     4 | score_bytes   | the length of a score of the store                            |
//! |     12 |     4 | count         | the number of barren blocks                                   |
//! |     16 |       | score         | of the newest note of the log                                 |
//! |        |     8 | fingerprint * | as in the list, in ascending order                            |
//! |        |    32 | code *        | one for each write-only key of the store, over all before     |
//!
//! A code is keyed with the origin key of its holder, which readers have too. So a machine that was
//! taken over can deprive the others of the hint, but cannot call a block good that is barren: the
//! snapshots of the others would lack what was removed below it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;

use varve_block::{LittleEndian, Score, to_usize};

use super::Vault;
use super::hint::Hint;
use crate::keyring;

const BARREN: Hint = Hint { file: "index/barren", context: "varve 1 barren blocks" };
const MAGIC: &[u8; 8] = b"varveBB1";
const CODE_BYTES: usize = 32;
/// A machine stores its structure anew rather than read a longer list: eight million blocks.
const BYTES_MAX: usize = 64 << 20;

/// Writes the list of barren blocks for the write-only keys of the store. `fingerprints` is the
/// list that counts, in ascending order, and `newest_note` the newest note of the log. Does nothing
/// if the store has no such key, or this key cannot read.
///
/// # Errors
/// When the hint cannot be written; the previous one then remains, and counts no more.
pub(crate) fn write(vault: &Vault, newest_note: &Score, fingerprints: &[u64]) -> io::Result<()> {
    let keys = vault.log().keys();
    let holders = keyring::write_only_origins(vault.storage());
    if holders.is_empty() || !keys.can_read() {
        return Ok(());
    }
    let score = newest_note.as_bytes();
    let lengths = [score.len(), fingerprints.len()].map(|length| u32::try_from(length).unwrap_or(u32::MAX));
    let mut body = [MAGIC, lengths.map(u32::to_le_bytes).as_flattened(), score].concat();
    fingerprints.iter().for_each(|fingerprint| body.extend_from_slice(&fingerprint.to_le_bytes()));
    let codes = holders.iter().filter_map(|holder| keys.holder_code(&holder.holder(), &body));
    let codes: Vec<_> = codes.collect();
    body.extend_from_slice(codes.as_flattened());
    if body.len() > BYTES_MAX {
        return Ok(());
    }
    vault.write_hint(&BARREN, body)
}

/// Returns the list of barren blocks for this write-only key, in ascending order. `None` if there
/// is no hint, another note than `newest_note` was the newest when it was written, or no code is
/// this key's.
pub(crate) fn read(vault: &Vault, newest_note: &Score) -> Option<Vec<u64>> {
    let contents = vault.read_hint(&BARREN, BYTES_MAX)?;
    let mut decoder = LittleEndian::new(contents.strip_prefix(MAGIC)?);
    let (score_bytes, count) = (to_usize(decoder.u32()?), to_usize(decoder.u32()?));
    let score = decoder.take(score_bytes)?;
    let rows = decoder.take(count.checked_mul(size_of::<u64>())?)?;
    let codes = decoder.left();
    if score != newest_note.as_bytes() {
        return None;
    }
    let message = contents.get(..contents.len().checked_sub(codes.len())?)?;
    let own = vault.log().keys().holder_code(&vault.own_origin()?.holder(), message)?;
    let is_known = codes.as_chunks::<CODE_BYTES>().0.iter().any(|code| blake3::Hash::from(*code) == own);
    let fingerprints: Vec<u64> = rows.as_chunks().0.iter().map(|row| u64::from_le_bytes(*row)).collect();
    (is_known && fingerprints.is_sorted_by(|one, next| one < next)).then_some(fingerprints)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use varve_world::{FixedClock, InlineWorkers, MemoryStorage, SeededRandom, Timestamp, World};
    use zeroize::Zeroizing;

    use super::*;
    use crate::config::StoreConfig;
    use crate::{Keyring, NewKey, PassphraseCost, Role, Secret, Store, StoreAccess};

    const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };

    /// A store with a full key, and two write-only keys.
    struct Machines {
        full: Store,
        web: Store,
        mail: Store,
    }

    impl Machines {
        fn new() -> Self {
            let storage = MemoryStorage::new();
            let world = |seed| World {
                storage: Arc::new(storage.clone()),
                clock: Arc::new(FixedClock(Timestamp(0))),
                random: Arc::new(SeededRandom::new(seed)),
                workers: Arc::new(InlineWorkers),
            };
            let key = |byte| Secret::KeyFile(Zeroizing::new(vec![byte; 32]));
            let full = key(1);
            Store::create(&world(1), &StoreConfig::new([5; 16]), Some(&full), COST).unwrap();
            let keyring = Keyring::of(&world(2)).unwrap();
            let by = keyring.unlock(&full).unwrap();
            let open = |byte| {
                let secret = key(byte);
                if byte > 1 {
                    let new = NewKey { secret: &secret, cost: COST, label: "", role: Role::WriteOnly };
                    keyring.add(&by, &new).unwrap();
                }
                Store::open(world(byte.into()), Some(&secret), StoreAccess::Read, &mut |_| {}).unwrap()
            };
            let (full, web, mail) = (open(1), open(2), open(3));
            Self { full, web, mail }
        }
    }

    #[test]
    fn each_write_only_key_reads_the_list_of_the_newest_note() {
        let machines = Machines::new();
        let (note, later) = (Score::from([4; 32]), Score::from([5; 32]));
        assert_eq!(read(machines.web.vault(), &note), None);
        for list in [vec![], vec![3, 70, u64::MAX], (0..10_000).collect()] {
            write(machines.full.vault(), &note, &list).unwrap();
            for store in [&machines.web, &machines.mail] {
                assert_eq!(read(store.vault(), &note), Some(list.clone()));
                assert_eq!(read(store.vault(), &later), None);
            }
        }
        write(machines.web.vault(), &later, &[]).unwrap();
        assert_eq!(read(machines.web.vault(), &later), None, "it cannot read, so it writes nothing");
    }

    /// A write-only key has the key of a hint's own code, but not the origin keys of the others.
    #[test]
    fn no_write_only_key_makes_a_hint_for_another_one() {
        let machines = Machines::new();
        let note = Score::from([4; 32]);
        write(machines.full.vault(), &note, &[3, 70]).unwrap();
        let mut body = machines.web.vault().read_hint(&BARREN, BYTES_MAX).unwrap();
        let message_bytes = body.len() - 2 * CODE_BYTES;
        body[message_bytes - 8] ^= 1;
        let own = machines.web.vault().own_origin().unwrap();
        let code =
            machines.web.vault().log().keys().holder_code(&own.holder(), &body[..message_bytes]).unwrap();
        body.extend_from_slice(&code);
        machines.web.vault().write_hint(&BARREN, body).unwrap();
        assert_eq!(read(machines.web.vault(), &note), Some(vec![3, 71]));
        assert_eq!(read(machines.mail.vault(), &note), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_contents_are_believed_or_panic(
            flips in prop::collection::vec((any::<usize>(), 1_u8..), 0..4),
            cut in any::<usize>(),
        ) {
            let machines = Machines::new();
            let note = Score::from([4; 32]);
            write(machines.full.vault(), &note, &[3, 70]).unwrap();
            let good = machines.web.vault().read_hint(&BARREN, BYTES_MAX).unwrap();
            let mut body = good.clone();
            for (place, byte) in flips {
                let place = place % body.len();
                body[place] ^= byte;
            }
            body.truncate(body.len() - cut % body.len());
            let message_bytes = good.len() - 2 * CODE_BYTES;
            let is_same = body.get(..message_bytes) == Some(&good[..message_bytes]);
            machines.web.vault().write_hint(&BARREN, body).unwrap();
            let found = read(machines.mail.vault(), &note);
            prop_assert!(found.is_none() || is_same && found == Some(vec![3, 70]));
        }
    }
}
