//! `index/lost`: the blocks that are known to be damaged or gone. A hint like all of `index/`. When
//! the same data is archived again, these blocks are stored anew although the directory names them.
//! That heals every snapshot that had them.
//!
//! | offset | bytes | field | meaning                                                                                       |
//! |-------:|------:|-------|-----------------------------------------------------------------------------------------------|
//! |      0 |     8 | magic | `varveLB1`                                                                                    |
//! |      8 |    32 | salt  | random                                                                                        |
//! |     40 |       | body  | a score and a type byte for each block: AES-256-GCM, nonce 0, under `BLAKE3(a key, salt)`, and its tag |
//! |        |    32 | mac   | `BLAKE3(a key of the store's own, all before)`                                                |
//!
//! Scores that are not keyed would reveal whether a known file was among the lost ones. A store
//! without encryption has the plain rows with nothing before them; so have files of earlier builds.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use varve_block::{BlockName, BlockType, Score};
use varve_log::{LockedMemory, unwrap_secret, wrap_secret};
use zeroize::Zeroizing;

use crate::config::Encryption;
use crate::vault::{Hint, Vault};

/// No more blocks than this are remembered. After so much damage only `repair` helps.
const NAMES_MAX: usize = 1 << 20;
const LOST: Hint = Hint { file: "index/lost", context: "varve 1 lost blocks" };
const MAGIC: [u8; 8] = *b"varveLB1";
const SALT_BYTES: usize = 32;
/// The most bytes that encryption adds.
const ADDED_BYTES: usize = 128;

/// The blocks that are known to be lost.
pub(crate) struct LostBlocks {
    vault: Arc<Vault>,
    names: RwLock<LostNames>,
}

#[derive(Default)]
struct LostNames {
    lost: BTreeSet<BlockName>,
    is_saved: bool,
}

impl LostBlocks {
    pub(crate) fn contains(&self, name: &BlockName) -> bool {
        let names = self.names.read();
        !names.lost.is_empty() && names.lost.contains(name)
    }

    /// Records that a block is lost.
    pub(crate) fn add(&self, name: BlockName) {
        let mut names = self.names.write();
        if names.lost.len() < NAMES_MAX {
            names.is_saved &= !names.lost.insert(name);
        }
    }

    /// Records that blocks were stored anew.
    pub(crate) fn remove(&self, stored: impl Iterator<Item = BlockName>) {
        if self.names.read().lost.is_empty() {
            return;
        }
        let mut names = self.names.write();
        for name in stored {
            names.is_saved &= !names.lost.remove(&name);
        }
    }

    /// Returns the blocks that are known to be damaged or gone.
    pub(crate) fn all(&self) -> BTreeSet<BlockName> {
        self.names.read().lost.clone()
    }

    /// Replaces the set of lost blocks, so that these blocks, and no others, are stored anew when
    /// they are put again. If the set cannot be written, the only loss is the set itself.
    pub(crate) fn replace(&self, lost: &BTreeSet<BlockName>) {
        let mut names = self.names.write();
        let kept: BTreeSet<_> = lost.iter().take(NAMES_MAX).copied().collect();
        let is_saved = names.is_saved && names.lost == kept;
        *names = LostNames { lost: kept, is_saved };
        drop(names);
        self.save();
    }

    /// Loads the saved set.
    pub(crate) fn load(vault: Arc<Vault>) -> Self {
        let lost = Self { vault, names: RwLock::default() };
        let body =
            lost.vault.read_hint(&LOST, NAMES_MAX * lost.row_bytes() + ADDED_BYTES).unwrap_or_default();
        let rows = lost.decrypt(body).unwrap_or_default();
        *lost.names.write() = LostNames { lost: lost.decode(&rows).unwrap_or_default(), is_saved: true };
        lost
    }

    fn row_bytes(&self) -> usize {
        self.vault.config().score_bytes() + 1
    }

    fn encrypt(&self, rows: Vec<u8>) -> io::Result<Vec<u8>> {
        if self.vault.config().encryption == Encryption::None {
            return Ok(rows);
        }
        let mut salt = [0; SALT_BYTES];
        self.vault.world().random.fill(&mut salt)?;
        let body = wrap_secret(&self.key_for(&salt), &MAGIC, &rows);
        Ok([&MAGIC[..], &salt, &body].concat())
    }

    /// Decrypts the rows. A body without the magic holds plain rows.
    fn decrypt(&self, body: Vec<u8>) -> Option<Vec<u8>> {
        let Some(encrypted) = body.strip_prefix(&MAGIC) else { return Some(body) };
        let (salt, encrypted) = encrypted.split_first_chunk::<SALT_BYTES>()?;
        Some(unwrap_secret(&self.key_for(salt), &MAGIC, encrypted).ok()?.to_vec())
    }

    fn key_for(&self, salt: &[u8; SALT_BYTES]) -> LockedMemory<[u8; 32]> {
        let key = Zeroizing::new(self.vault.log().keys().derive("varve 1 lost blocks, encrypted"));
        LockedMemory::filled(|into: &mut [u8; 32]| {
            into.copy_from_slice(blake3::keyed_hash(&key, salt).as_bytes())
        })
    }

    fn decode(&self, rows: &[u8]) -> Option<BTreeSet<BlockName>> {
        let row = |row: &[u8]| {
            let (block_type, score) = row.split_last()?;
            let block_type = BlockType::from_byte(*block_type)?;
            Some(BlockName { score: Score::try_from(score).ok()?, block_type })
        };
        rows.chunks(self.row_bytes()).map(row).collect()
    }

    /// Saves the set if it has changed.
    pub(crate) fn save(&self) {
        let mut names = self.names.write();
        if names.is_saved {
            return;
        }
        let mut rows = Vec::new();
        for name in &names.lost {
            rows.extend_from_slice(name.score.as_bytes());
            rows.push(name.block_type.to_byte());
        }
        match self.encrypt(rows).and_then(|body| self.vault.write_hint(&LOST, body)) {
            Ok(()) => names.is_saved = true,
            Err(error) => tracing::warn!(%error, "the list of lost blocks could not be saved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_world::{FixedClock, InlineWorkers, MemoryStorage, SeededRandom, Timestamp, World};

    use super::*;
    use crate::config::StoreConfig;
    use crate::{PassphraseCost, Secret, Store, StoreAccess};

    fn world(storage: &Arc<MemoryStorage>, seed: u64) -> World {
        World {
            storage: storage.clone(),
            clock: Arc::new(FixedClock(Timestamp(0))),
            random: Arc::new(SeededRandom::new(seed)),
            workers: Arc::new(InlineWorkers),
        }
    }

    /// The file does not reveal the lost blocks without the key. With the key they are read, also
    /// from a file of an earlier build.
    #[test]
    fn what_is_lost_is_told_to_nobody_without_a_key() {
        let secret = Secret::KeyFile(Zeroizing::new(vec![7; 32]));
        let lost: BTreeSet<_> = (1..40)
            .map(|number| BlockName {
                score: Score::try_from([number; 32].as_slice()).unwrap(),
                block_type: BlockType::DATA,
            })
            .collect();
        for encryption in [Encryption::Aes256Gcm, Encryption::None] {
            let storage = Arc::new(MemoryStorage::new());
            let mut config = StoreConfig::new([5; 16]);
            config.encryption = encryption;
            let secret = (encryption != Encryption::None).then_some(&secret);
            Store::create(&world(&storage, 1), &config, secret, PassphraseCost::default()).unwrap();
            let open =
                |seed| Store::open(world(&storage, seed), secret, StoreAccess::Read, &mut |_| {}).unwrap();
            let store = open(2);
            store.remember_lost(&lost);
            assert_eq!(open(3).lost_blocks(), lost);
            let file = varve_world::FileName::new("index/lost").unwrap();
            let disk: &dyn varve_world::Storage = &*storage;
            let read = || disk.read_whole(&file, 1 << 20).unwrap();
            let tells = read().windows(32).any(|bytes| bytes == [9; 32]);
            assert_eq!(tells, encryption == Encryption::None);
            // The form of an earlier build.
            let rows: Vec<_> = lost
                .iter()
                .flat_map(|name| [name.score.as_bytes(), &[name.block_type.to_byte()]].concat())
                .collect();
            store.vault().write_hint(&LOST, rows).unwrap();
            assert_eq!(open(4).lost_blocks(), lost);
            // A changed file is ignored.
            let mut changed = read();
            changed[50] ^= 1;
            disk.replace(&file, &changed).unwrap();
            assert!(open(5).lost_blocks().is_empty());
        }
    }
}
