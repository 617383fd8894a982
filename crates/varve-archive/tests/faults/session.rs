//! Opening an archive on a disk, to write and to read, and reading back from it.

use std::error::Error;
use std::sync::Arc;

use varve_archive::{Archive, ImagePart, Progress, Snapshot, SnapshotContent, verify, write_image};
use varve_sim::Disk;
use varve_store::{Access, AuditShare, Encryption, Secret, Store, StoreConfig};
use varve_tree::{Piece, TreeReader};
use varve_world::{FixedClock, InlineWorkers, SeededRandom, Timestamp, World};
use zeroize::Zeroizing;

use crate::model::StoredFile;

pub const WRITER: Access<'static> = Access::Write { holder: "the model" };

/// An error with all that led to it.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// The world of one session: one thread, a fixed time, and random bytes that `seed` decides.
pub fn world(disk: &Disk, seed: u64) -> World {
    World {
        storage: Arc::new(disk.clone()),
        clock: Arc::new(FixedClock(Timestamp(1_700_000_000_000_000_000))),
        random: Arc::new(SeededRandom::new(seed)),
        workers: Arc::new(InlineWorkers),
    }
}

pub fn secret(config: &StoreConfig) -> Option<Secret> {
    (config.encryption != Encryption::None).then(|| Secret::KeyFile(Zeroizing::new(vec![7; 32])))
}

pub fn open(world: World, config: &StoreConfig, access: Access<'_>) -> Result<Archive, String> {
    let store =
        Store::open(world, secret(config).as_ref(), access, &mut |_| {}).map_err(|error| chain(&error))?;
    Archive::open(store).map_err(|error| chain(&error))
}

/// The names of an archive's snapshots.
pub fn listed(archive: &Archive) -> Vec<String> {
    archive.snapshots().iter().map(|snapshot| snapshot.name.clone()).collect()
}

pub fn restore(store: &Store, snapshot: &Snapshot) -> Result<Vec<u8>, String> {
    let SnapshotContent::Image(entry) = &snapshot.content else { return Err("it is no image".into()) };
    let mut bytes = Vec::new();
    write_image(store, &InlineWorkers, &ImagePart::whole(entry), &mut bytes, &Progress::new())
        .map_err(|error| chain(&error))?;
    Ok(bytes)
}

pub fn read_file(store: &Store, file: &StoredFile) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let taken = TreeReader::new(store, &file.entry).stream(&mut |piece| {
        match piece {
            Piece::Bytes(piece) => bytes.extend_from_slice(piece),
            Piece::Zeros(count) => bytes.resize(bytes.len() + count as usize, 0),
        }
        Ok(())
    });
    taken.map_err(|error| chain(&error)).map(|()| bytes)
}

/// What `verify` complains of.
pub fn complaints(archive: &Archive, data: bool) -> Result<Vec<String>, String> {
    let verified =
        verify(archive.store(), archive.snapshots(), data.then_some(AuditShare::ALL), &Progress::new())
            .map_err(|error| chain(&error))?;
    let damage = verified
        .damage
        .iter()
        .map(|damage| format!("arena {}, offset {}: {}", damage.arena, damage.offset, chain(&damage.kind)));
    let harm = verified.harm.iter().map(|harm| format!("{}: {}", harm.snapshot_name, harm.reason));
    Ok(damage.chain(harm).collect())
}
