//! Opens an archive on a disk, for writing or for reading, and reads back from it.

use std::sync::Arc;

use varve_archive::{Archive, Losses, Snapshot, SnapshotContent, verify};
use varve_block::with_causes;
use varve_content::Progress;
use varve_content::image::{ImagePart, write_image};
use varve_sim::SimDisk;
use varve_store::{Encryption, Secret, Store, StoreAccess, StoreConfig};
use varve_tree::{StreamPiece, TreeReader};
use varve_upkeep::{AuditShare, Damage};
use varve_world::{FixedClock, InlineWorkers, RealWorkers, SeededRandom, Storage, Timestamp, Workers, World};
use zeroize::Zeroizing;

use crate::folder;
use crate::model::{StoredFile, Taken};

pub const WRITER: StoreAccess<'static> = StoreAccess::Write { holder: "the model" };

/// The time of all sessions before any hours have passed.
pub const EPOCH: Timestamp = Timestamp(1_700_000_000_000_000_000);

/// The world of one session: one thread, a fixed time, and random bytes that `seed` decides.
pub fn world(disk: &SimDisk, seed: u64) -> World {
    world_of(Arc::new(disk.clone()), seed)
}

/// The world of one session, on any storage.
pub fn world_of(storage: Arc<dyn Storage>, seed: u64) -> World {
    World {
        storage,
        clock: Arc::new(FixedClock(EPOCH)),
        random: Arc::new(SeededRandom::new(seed)),
        workers: workers(),
    }
}

/// One thread, so that a seed decides everything. With `VARVE_FAULT_HANDS` there are that many
/// threads, and a seed does not decide everything.
pub fn workers() -> Arc<dyn Workers> {
    match crate::setting("VARVE_FAULT_HANDS") {
        Some(hands) => Arc::new(RealWorkers::new(hands)),
        None => Arc::new(InlineWorkers),
    }
}

pub fn secret(config: &StoreConfig) -> Option<Secret> {
    (config.encryption != Encryption::None).then(|| Secret::KeyFile(Zeroizing::new(vec![7; 32])))
}

/// The secret of the key that may add and not read.
pub fn write_only_secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![8; 32]))
}

pub fn open(world: World, secret: Option<&Secret>, access: StoreAccess<'_>) -> Result<Archive, String> {
    let store = open_store(world, secret, access)?;
    Archive::open(store).map_err(|error| with_causes(&error))
}

pub fn open_store(world: World, secret: Option<&Secret>, access: StoreAccess<'_>) -> Result<Store, String> {
    Store::open(world, secret, access, &mut |_| {}).map_err(|error| with_causes(&error))
}

/// The name of all snapshots of the folder. Because they share it, a snapshot does not read files
/// that are unchanged since the one before.
pub const FOLDER_NAME: &str = "folder";

/// The text that identifies a snapshot.
pub fn label(snapshot: &Snapshot) -> &str {
    snapshot.tags.first().unwrap_or(&snapshot.name)
}

/// All snapshots of an archive.
pub fn listed(archive: &Archive) -> Vec<String> {
    archive.snapshots().iter().map(|snapshot| label(snapshot).to_owned()).collect()
}

/// Returns true if a snapshot holds what was taken. Fails if it cannot be read.
pub fn is_right(store: &Store, snapshot: &Snapshot, taken: &Taken) -> Result<bool, String> {
    match (&snapshot.content, taken) {
        (SnapshotContent::Image(entry), Taken::Image(image)) => {
            let mut bytes = Vec::new();
            write_image(store, &*workers(), &ImagePart::whole(entry), &mut bytes, &Progress::new())
                .map_err(|error| with_causes(&error))?;
            Ok(bytes == **image)
        }
        (SnapshotContent::Folder(root), Taken::Folder(state)) => Ok(folder::read(store, root)? == **state),
        _ => Ok(false),
    }
}

pub fn read_file(store: &Store, file: &StoredFile) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let taken = TreeReader::new(store, &file.entry).stream(&mut |piece| {
        match piece {
            StreamPiece::Bytes(piece) => bytes.extend_from_slice(piece),
            StreamPiece::Zeros(count) => bytes.resize(bytes.len() + count as usize, 0),
        }
        Ok(())
    });
    taken.map_err(|error| with_causes(&error)).map(|()| bytes)
}

/// Returns the complaints of `verify`. Missing parity is no complaint, because a crash may have
/// come before it.
pub fn complaints(archive: &Archive, data: bool) -> Result<Vec<String>, String> {
    let verified = verify(archive, data.then_some(AuditShare::ALL), &Progress::new())
        .map_err(|error| with_causes(&error))?;
    let damage = verified.damage.iter().map(describe);
    let harm = verified.harm.iter().map(|harm| format!("{}: {}", harm.snapshot_name, harm.reason));
    Ok(damage.chain(harm).chain(lost(&verified.losses)).collect())
}

/// Returns the losses as text, one line each.
pub fn lost(losses: &Losses) -> Vec<String> {
    let blocks = losses.blocks().map(|block| format!("lost: {}", block.name));
    let places = losses.places().map(|place| format!("lost: {:?}", place.id));
    let more = losses.is_incomplete().then(|| "lost: more than is named".to_owned());
    blocks.chain(places).chain(more).collect()
}

/// The sealed arenas whose parity is missing.
pub fn missing_parity(archive: &Archive) -> Result<Vec<String>, String> {
    let verified = verify(archive, None, &Progress::new()).map_err(|error| with_causes(&error))?;
    Ok(verified.without_parity.iter().map(|arena| format!("arena {arena}")).collect())
}

pub fn described(damage: &[Damage]) -> Vec<String> {
    damage.iter().map(describe).collect()
}

fn describe(damage: &Damage) -> String {
    format!("arena {}, offset {}: {}", damage.arena, damage.offset, with_causes(&damage.kind))
}
