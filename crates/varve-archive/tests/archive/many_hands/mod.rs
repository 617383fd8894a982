//! Several threads use one store, and then the disk fails or the power is cut. The fault simulation
//! runs one thread, so that a seed decides everything. Here the machine decides the order of
//! events.

mod blocks;
mod nights;

use std::ops::Range;
use std::sync::Arc;

use varve_log::{ArenaMap, ClumpBytes, ParityPercent};
use varve_sim::{SimDisk, SlowDisk};
use varve_store::{CompareMode, DiskIndexConfig, Encryption, IndexKind, Secret, StoreAccess, StoreConfig};
use varve_upkeep::{Damage, DamageKind, ParityDamage};
use varve_world::{RealWorkers, World};
use zeroize::Zeroizing;

const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "process 42 on here" };

fn world(disk: &SimDisk, seed: u64) -> World {
    let workers = Arc::new(RealWorkers::new(2));
    World { workers, ..World::deterministic(Arc::new(SlowDisk(disk.clone())), seed) }
}

fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

/// The settings of a store. The seeds cover all kinds.
fn config(seed: u64) -> StoreConfig {
    let bit = |number: u64| (seed >> number) & 1 == 1;
    StoreConfig {
        encryption: if bit(0) { Encryption::Aes256Gcm } else { Encryption::None },
        index: if bit(1) { IndexKind::Disk } else { IndexKind::Memory },
        compare: if bit(2) { CompareMode::Value } else { CompareMode::Hash },
        parity_percent: if bit(3) { ParityPercent::new(5) } else { None },
        disk_index: DiskIndexConfig {
            memory_bytes: 1 << 20,
            expected_blocks: 1000,
            ..DiskIndexConfig::default()
        },
        arena_map: ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap(),
        clump_bytes: ClumpBytes::new(64 << 10).unwrap(),
        ..StoreConfig::new([5; 16])
    }
}

/// Missing parity is no damage, because a crash may have come before it was made.
fn is_damage(damage: &Damage) -> bool {
    !matches!(damage.kind, DamageKind::Parity(ParityDamage::Missing))
}

/// 16 seeds from 0 on. `VARVE_HANDS_SEEDS` sets the count, and `VARVE_HANDS_FIRST` the first seed.
fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("VARVE_HANDS_FIRST").unwrap_or(0);
    first..first + number("VARVE_HANDS_SEEDS").unwrap_or(16)
}
