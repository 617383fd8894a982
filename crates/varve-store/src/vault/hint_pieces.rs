//! A secret hint of any length, written and read in pieces, so that memory holds one piece of it.
//!
//! | field   | bytes | meaning                                                                    |
//! |---------|------:|----------------------------------------------------------------------------|
//! | magic   |     8 | `varveSH2`                                                                 |
//! | salt    |    32 | random                                                                     |
//! | piece * |       | length (4, little-endian), AES-256-GCM with nonce 0 and its tag (length)   |
//!
//! The key of a piece is `BLAKE3(BLAKE3(a key of readers, salt), its number (8), 1 byte)`. The byte
//! is 1 for the last piece, and 0 for all others. So a piece opens only in its place, and a hint
//! that lacks its end is detected.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read, Write};

use varve_block::to_usize;
use varve_log::{LockedMemory, unwrap_secret, wrap_secret};
use varve_world::{FileName, Storage};
use zeroize::Zeroizing;

use super::Vault;
use super::hint::{Hint, SALT_BYTES};

const MAGIC: [u8; 8] = *b"varveSH2";
/// The bytes of a piece before encryption. Only the last piece is shorter.
const PIECE_BYTES: usize = 256 << 10;
/// The most bytes of a piece after encryption.
const SEALED_BYTES_MAX: usize = PIECE_BYTES + 64;

impl Vault {
    /// Replaces a secret hint with the bytes that `write` writes.
    ///
    /// # Errors
    /// The errors of `write`. The hint cannot be written, or this key cannot read the store. The
    /// previous hint then remains.
    pub fn write_secret_pieces(
        &self,
        hint: &Hint,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let (salt, key) = self.new_hint_key(hint)?;
        self.storage().replace_with(&hint.file(), |append| {
            append(&MAGIC)?;
            append(&salt)?;
            let mut pieces =
                PieceWriter { keys: PieceKeys { key, number: 0 }, piece: Zeroizing::default(), append };
            write(&mut pieces)?;
            pieces.seal(true)
        })
    }

    /// Opens a hint of [`write_secret_pieces`](Self::write_secret_pieces); `None` if there is none,
    /// or this key cannot read the store. Damage is an error of the reading.
    #[must_use]
    pub fn read_secret_pieces(&self, hint: &Hint) -> Option<Box<dyn Read + '_>> {
        let (storage, file) = (self.storage(), hint.file());
        let length = storage.length(&file).ok()?;
        let (mut magic, mut salt) = ([0; MAGIC.len()], [0; SALT_BYTES]);
        storage.read_at(&file, 0, &mut magic).ok()?;
        storage.read_at(&file, MAGIC.len() as u64, &mut salt).ok()?;
        let key = self.hint_key(hint, &salt).filter(|_| magic == MAGIC)?;
        let offset = (MAGIC.len() as u64).saturating_add(SALT_BYTES as u64);
        let keys = PieceKeys { key, number: 0 };
        Some(Box::new(PieceReader {
            storage,
            file,
            length,
            offset,
            keys,
            piece: Zeroizing::default(),
            at: 0,
        }))
    }
}

/// The keys of the pieces, one after the other.
struct PieceKeys {
    key: LockedMemory<[u8; 32]>,
    number: u64,
}

impl PieceKeys {
    fn next(&mut self, is_last: bool) -> LockedMemory<[u8; 32]> {
        let key = LockedMemory::filled(|into: &mut [u8; 32]| {
            let mut hasher = blake3::Hasher::new_keyed(&self.key);
            hasher.update(&self.number.to_le_bytes()).update(&[u8::from(is_last)]);
            into.copy_from_slice(hasher.finalize().as_bytes());
        });
        self.number = self.number.saturating_add(1);
        key
    }
}

struct PieceWriter<'a> {
    keys: PieceKeys,
    /// The bytes that are not sealed yet.
    piece: Zeroizing<Vec<u8>>,
    append: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
}

impl PieceWriter<'_> {
    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let sealed = wrap_secret(&self.keys.next(is_last), &MAGIC, &self.piece);
        self.piece.clear();
        (self.append)(&u32::try_from(sealed.len()).map_err(io::Error::other)?.to_le_bytes())?;
        (self.append)(&sealed)
    }
}

impl Write for PieceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The last piece is sealed at the end, so a full one waits for the next byte.
        if self.piece.len() >= PIECE_BYTES && !bytes.is_empty() {
            self.seal(false)?;
        }
        let room = PIECE_BYTES.saturating_sub(self.piece.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.piece.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct PieceReader<'a> {
    storage: &'a dyn Storage,
    file: FileName,
    length: u64,
    /// The place of the next piece.
    offset: u64,
    keys: PieceKeys,
    /// The piece that is being read, and the place in it.
    piece: Zeroizing<Vec<u8>>,
    at: usize,
}

impl PieceReader<'_> {
    fn next_piece(&mut self) -> io::Result<()> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a piece of a hint is damaged");
        let mut length = [0; 4];
        self.storage.read_at(&self.file, self.offset, &mut length)?;
        let length = u32::from_le_bytes(length);
        let begin = self.offset.saturating_add(4);
        let end = begin.saturating_add(u64::from(length));
        let sealed_bytes = to_usize(length);
        if end > self.length || sealed_bytes > SEALED_BYTES_MAX {
            return Err(damaged());
        }
        let mut sealed = vec![0; sealed_bytes];
        self.storage.read_at(&self.file, begin, &mut sealed)?;
        let key = self.keys.next(end == self.length);
        self.piece = unwrap_secret(&key, &MAGIC, &sealed).map_err(|_| damaged())?;
        (self.offset, self.at) = (end, 0);
        Ok(())
    }
}

impl Read for PieceReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.piece.len() {
            // The piece that ends with the file has opened as the last one.
            if self.offset == self.length && self.keys.number > 0 {
                return Ok(0);
            }
            self.next_piece()?;
        }
        let mut left = self.piece.get(self.at..).unwrap_or_default();
        let count = left.read(into)?;
        self.at = self.at.saturating_add(count);
        Ok(count)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use varve_world::{FixedClock, InlineWorkers, MemoryStorage, SeededRandom, Timestamp, World};

    use super::*;
    use crate::config::{Encryption, StoreConfig};
    use crate::{PassphraseCost, Secret, Store, StoreAccess};

    const HINT: Hint = Hint { file: "index/sample", context: "varve 1 sample" };

    fn opened(encryption: Encryption) -> (Arc<MemoryStorage>, Store) {
        let storage = Arc::new(MemoryStorage::new());
        let world = World {
            storage: storage.clone(),
            clock: Arc::new(FixedClock(Timestamp(0))),
            random: Arc::new(SeededRandom::new(1)),
            workers: Arc::new(InlineWorkers),
        };
        let secret = Secret::KeyFile(Zeroizing::new(vec![7; 32]));
        let secret = (encryption != Encryption::None).then_some(&secret);
        let mut config = StoreConfig::new([5; 16]);
        config.encryption = encryption;
        Store::create(&world, &config, secret, PassphraseCost::default()).unwrap();
        (storage, Store::open(world, secret, StoreAccess::Read, &mut |_| {}).unwrap())
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    fn read(store: &Store) -> Option<io::Result<Vec<u8>>> {
        let mut bytes = Vec::new();
        let mut pieces = store.vault().read_secret_pieces(&HINT)?;
        Some(pieces.read_to_end(&mut bytes).map(|_| bytes))
    }

    #[test]
    fn a_hint_of_any_length_is_read_again() {
        for encryption in [Encryption::Aes256Gcm, Encryption::None] {
            let (_, store) = opened(encryption);
            assert!(read(&store).is_none());
            for length in [3 * PIECE_BYTES, PIECE_BYTES + 1, PIECE_BYTES, PIECE_BYTES - 1, 1, 0] {
                let text = text(length);
                store.vault().write_secret_pieces(&HINT, &mut |into| into.write_all(&text)).unwrap();
                assert_eq!(read(&store).unwrap().unwrap(), text, "{length}");
            }
        }
    }

    #[test]
    fn a_hint_that_was_not_written_whole_leaves_the_one_before() {
        let (_, store) = opened(Encryption::Aes256Gcm);
        store.vault().write_secret_pieces(&HINT, &mut |into| into.write_all(b"before")).unwrap();
        let failed = store.vault().write_secret_pieces(&HINT, &mut |into| {
            into.write_all(&text(2 * PIECE_BYTES))?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(read(&store).unwrap().unwrap(), b"before");
    }

    #[test]
    fn hints_of_the_older_form_and_of_other_files_are_refused() {
        let (_, store) = opened(Encryption::Aes256Gcm);
        store.vault().write_secret_hint(&HINT, b"an older form").unwrap();
        assert!(read(&store).is_none());
        store.vault().write_secret_pieces(&HINT, &mut |into| into.write_all(b"text")).unwrap();
        assert_eq!(store.vault().read_secret_hint(&HINT, 1 << 20), None);
    }

    #[test]
    fn pieces_that_are_cut_swapped_or_left_out_are_detected() {
        let (storage, store) = opened(Encryption::Aes256Gcm);
        store.vault().write_secret_pieces(&HINT, &mut |into| into.write_all(&text(3 * PIECE_BYTES))).unwrap();
        let good = (&*storage as &dyn Storage).read_whole(&HINT.file(), 4 << 20).unwrap();
        let head = MAGIC.len() + SALT_BYTES;
        let piece = (good.len() - head) / 3;
        let (head, pieces) = good.split_at(head);
        let pieces: Vec<&[u8]> = pieces.chunks(piece).collect();
        assert!(!good.windows(16).any(|part| *part == text(16)));
        for order in [&[0, 1][..], &[0, 2], &[1, 0, 2], &[2], &[], &[0, 1, 2, 2]] {
            let bad: Vec<u8> = order.iter().flat_map(|at| pieces[*at]).copied().collect();
            (&*storage as &dyn Storage).replace(&HINT.file(), &[head, &bad].concat()).unwrap();
            assert!(read(&store).unwrap().is_err(), "{order:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn damage_is_detected(at: prop::sample::Index, bit in 0_u8..8, length: prop::sample::Index) {
            let (storage, store) = opened(Encryption::Aes256Gcm);
            let text = text(PIECE_BYTES + 100);
            store.vault().write_secret_pieces(&HINT, &mut |into| into.write_all(&text)).unwrap();
            let good = (&*storage as &dyn Storage).read_whole(&HINT.file(), 4 << 20).unwrap();
            let (mut flipped, mut cut) = (good.clone(), good.clone());
            *at.get_mut(&mut flipped) ^= 1 << bit;
            cut.truncate(length.index(good.len()));
            for bad in [flipped, cut] {
                (&*storage as &dyn Storage).replace(&HINT.file(), &bad).unwrap();
                prop_assert!(read(&store).is_none_or(|read| read.is_err()));
            }
        }
    }
}
