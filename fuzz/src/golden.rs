//! Good stores for the targets that damage their files. They are made from the same seeds in every
//! run.

use std::sync::{Arc, LazyLock};

use varve_archive::{Archive, Catalog, CollectOptions, Collection, ForeignRoots, PriceFile, SnapshotContent};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, PutHints};
use varve_content::Progress;
use varve_log::ArenaMap;
use varve_store::{
    CompareMode, DiskIndexConfig, Encryption, IndexKind, Keyring, NewKey, OpenStoreError, PassphraseCost,
    Role, ScoreAlgorithm, Secret, Store, StoreAccess, StoreConfig,
};
use varve_tree::{ContentWriter, Cutting};
use varve_upkeep::{FILTER_BYTES_DEFAULT, ReclaimBudget};
use varve_world::{MemoryStorage, Random, SeededRandom, Timestamp, World};
use zeroize::Zeroizing;

use crate::archive::good_snapshot;

/// Opens the golden stores that are encrypted, with the permission to write only.
#[must_use]
pub fn writer_secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![8; 32]))
}

/// Opens the golden stores with all permissions.
#[must_use]
pub fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

/// A store, and the blocks in it.
pub struct Golden {
    /// Its files.
    pub storage: MemoryStorage,
    /// Its blocks.
    pub blocks: Vec<(BlockName, Vec<u8>)>,
}

/// A world with this storage.
#[must_use]
pub fn world(storage: &MemoryStorage, seed: u64) -> World {
    World::deterministic(Arc::new(storage.clone()), seed)
}

/// Opens a store. Each session gets a seed of its own, so that each has another salt.
///
/// # Errors
/// The error of the store.
pub fn open(
    storage: &MemoryStorage,
    seed: u64,
    secret: &Secret,
    access: StoreAccess<'_>,
) -> Result<Store, OpenStoreError> {
    Store::open(world(storage, seed), Some(secret), access, &mut |_| {})
}

/// Access for a writer.
pub const WRITER: StoreAccess<'static> = StoreAccess::Write { holder: "the fuzzer" };

fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandom::new(seed).fill(&mut bytes).expect("seeded");
    bytes
}

/// Two arenas, the first one sealed; a catalog with one snapshot; a checkpoint of the index.
fn made(score: ScoreAlgorithm, encryption: Encryption) -> Golden {
    let mut config = StoreConfig::new([5; 16]);
    (config.score, config.encryption) = (score, encryption);
    made_with(config)
}

/// The same, with the index on disk.
fn made_on_disk(compare: CompareMode) -> Golden {
    let mut config = StoreConfig::new([5; 16]);
    (config.compare, config.encryption, config.index) = (compare, Encryption::None, IndexKind::Disk);
    // This is so little memory that the index writes its pages all the time.
    config.disk_index.memory_bytes = DiskIndexConfig::MEMORY_BYTES_MIN;
    config.disk_index.expected_blocks = 100;
    made_with(config)
}

fn made_with(mut config: StoreConfig) -> Golden {
    let storage = MemoryStorage::new();
    let encryption = config.encryption;
    config.arena_map = ArenaMap::new(1 << 20).expect("the smallest");
    Store::create(&world(&storage, 1), &config, Some(&secret()), PassphraseCost::default())
        .expect("in memory");
    if encryption == Encryption::Aes256Gcm {
        let keyring = Keyring::of(&world(&storage, 2)).expect("an encrypted store");
        let by = keyring.unlock(&secret()).expect("its key");
        let (secret, cost) = (&writer_secret(), PassphraseCost::default());
        keyring.add(&by, &NewKey { secret, cost, label: "", role: Role::WriteOnly }).expect("in memory");
    }
    let mut blocks = Vec::new();
    for session in 0..2 {
        // In an encrypted store, the second session has the key that may only write.
        let is_blind = session == 1 && encryption == Encryption::Aes256Gcm;
        let secret = if is_blind { writer_secret() } else { secret() };
        let store = open(&storage, 10 + session, &secret, WRITER).expect("a good store");
        for number in 0..20_u64 {
            let compressible = b"the same again. ".repeat(500 + usize::try_from(number).expect("small"));
            let bytes = if number.is_multiple_of(5) {
                compressible
            } else {
                random_bytes(session * 100 + number, 40_000)
            };
            let score = store.put(Block { block_type: BlockType::DATA, bytes: &bytes }).expect("in memory");
            blocks.push((BlockName { score, block_type: BlockType::DATA }, bytes));
            if number.is_multiple_of(6) {
                store.sync().expect("in memory");
            }
        }
        if session == 0 {
            let mut writer = ContentWriter::new(&store, BlockKind::Data, Cutting::DIRECTORY);
            writer.write(&random_bytes(99, 30_000)).expect("in memory");
            let image = SnapshotContent::Image(writer.finish().expect("in memory"));
            Catalog::default().add(&store, good_snapshot(image)).expect("in memory");
            store.sync().expect("in memory");
            store.save_checkpoint().expect("in memory");
        }
        store.close().expect("in memory");
    }
    Golden { storage, blocks }
}

/// A store that was collected: it has rewritten arenas, and notes about them. Only the blocks of
/// its snapshot are left.
fn made_collected() -> Golden {
    let golden = made(ScoreAlgorithm::Blake3, Encryption::None);
    let options = CollectOptions {
        budget: ReclaimBudget { least_dead: 0.0, ..ReclaimBudget::default() },
        filter_bytes: FILTER_BYTES_DEFAULT,
        young_since: None,
        prices: PriceFile::default(),
        foreign: Some(ForeignRoots::None),
        trusts_clock: true,
    };
    let archive = |seed, access| {
        let store = open(&golden.storage, seed, &secret(), access).expect("a good store");
        Archive::open(store).expect("a good catalog")
    };
    let progress = Progress::new();
    let mut collection =
        Collection::plan(&archive(90, StoreAccess::Read), options, &progress).expect("a whole store");
    let mut seed = 91;
    while !collection.is_done() {
        let mut writer = archive(seed, WRITER);
        let batch = collection.apply(&mut writer, Timestamp(i64::MAX), &progress).expect("in memory");
        assert!(batch.failed.is_empty());
        writer.close().expect("in memory");
        seed += 1;
    }
    let store = open(&golden.storage, seed, &secret(), StoreAccess::Read).expect("a good store");
    let mut blocks = golden.blocks;
    blocks.retain(|(name, _)| store.get(name).is_ok());
    Golden { storage: golden.storage, blocks }
}

/// A store whose blocks have replaced others, and are stored as deltas of them.
fn made_with_deltas() -> Golden {
    let mut config = StoreConfig::new([5; 16]);
    (config.encryption, config.deltas) = (Encryption::None, true);
    let mut golden = made_with(config);
    let store = open(&golden.storage, 15, &secret(), WRITER).expect("a good store");
    for (name, bytes) in golden.blocks.clone() {
        let mut changed = bytes;
        changed[1000..1008].copy_from_slice(b"changed!");
        let block = Block { block_type: BlockType::DATA, bytes: &changed };
        let hints = PutHints { replaced: &[Some(name.score)], ..PutHints::default() };
        let scores = store.put_batch_with(&[block], hints).expect("in memory");
        golden.blocks.push((BlockName { score: scores[0], ..name }, changed));
    }
    store.close().expect("in memory");
    golden
}

/// One golden store of each kind, one with deltas, and one that was collected.
pub static GOLDEN: LazyLock<[Golden; 8]> = LazyLock::new(|| {
    [
        made(ScoreAlgorithm::Blake3, Encryption::None),
        made(ScoreAlgorithm::Blake3, Encryption::Aes256Gcm),
        made(ScoreAlgorithm::Sha1, Encryption::None),
        made(ScoreAlgorithm::Sha1, Encryption::Aes256Gcm),
        made_on_disk(CompareMode::Hash),
        made_on_disk(CompareMode::Value),
        made_collected(),
        made_with_deltas(),
    ]
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_stores_are_good() {
        for golden in GOLDEN.iter() {
            let store = open(&golden.storage, 20, &secret(), StoreAccess::Read).unwrap();
            assert!(store.arenas().unwrap().len() >= 2);
            assert_eq!(Catalog::load(&store, store.last_catalog()).unwrap().snapshots().len(), 1);
            for (name, bytes) in &golden.blocks {
                assert_eq!(store.get(name).unwrap(), bytes);
            }
        }
    }
}
