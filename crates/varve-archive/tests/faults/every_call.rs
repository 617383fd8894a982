//! Read this first: the smallest crash test. The simulation in `main.rs` is this test with more
//! actions, more kinds of fault, and everything drawn from a seed.
//!
//! **The disk.** [`SimDisk`] is a disk in memory that keeps only what a real one promises. Every
//! call to it (create, append, sync, rename, read, …) is counted. It has two views: what a process
//! sees, and what is durable. Only a sync moves bytes or names from the first view to the second.
//!
//! **The crash.** A [`Strike`] cuts the power at the `n`th call from now. That call is done in
//! whole, in part, or not at all, and every later call fails: the process is dead.
//! [`SimDisk::restart`] then decides what is left of everything that was not synced. Each sector,
//! each length and each name is kept or lost by itself, as the disk's seed draws. So one place to
//! crash has many outcomes, and each place is tried with several seeds.
//!
//! **The promise.** A call that returned success has acknowledged its data. After any crash:
//!
//! 1. The archive opens, with no other step before.
//! 2. Every acknowledged snapshot is listed, in order, and reads back as it was taken.
//! 3. The snapshot that was being taken is listed whole, or not at all.
//! 4. `verify`, which reads every byte, finds no damage: a crash is not damage.
//! 5. The archive can be written again, and all of this holds after that, too.
//!
//! **How the test knows.** [`take_snapshots`] notes a snapshot only after the call returned. It
//! runs again and again on a fresh disk, with the power cut one call later each time, until it
//! comes to its end undisturbed. The last test shows that a broken promise is noticed.

use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;

use varve_archive::{Archive, SnapshotRequest};
use varve_block::with_causes;
use varve_content::Progress;
use varve_content::image::ImageSource;
use varve_log::{ArenaMap, ClumpBytes};
use varve_sim::{Fault, SeededDraw, SimDisk, Strike};
use varve_store::{Encryption, PassphraseCost, Store, StoreAccess, StoreConfig};

use crate::model::Taken;
use crate::session::{self, WRITER, complaints, world};

const BLOCK_BYTES: u32 = 16 << 10;
const SNAPSHOT_COUNT: u64 = 6;

/// The disk image that is archived: noise, so that snapshots share nothing. Six of them fill an
/// arena of the smallest size, so that crashes hit its seal and the beginning of the next one.
fn image(number: u64) -> Vec<u8> {
    let mut draw = SeededDraw::new(number);
    (0..30_000).flat_map(|_| draw.number().to_le_bytes()).collect()
}

fn create(disk: &SimDisk) {
    let config = StoreConfig {
        encryption: Encryption::None,
        arena_map: ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap(),
        clump_bytes: ClumpBytes::new(64 << 10).unwrap(),
        ..StoreConfig::new([7; 16])
    };
    Store::create(&world(disk, 1), &config, None, PassphraseCost::default()).unwrap();
}

/// Opens the archive. Each session draws its own random bytes: from them it makes ids and nonces.
fn open(disk: &SimDisk, session: u64, access: StoreAccess<'_>) -> Result<Archive, String> {
    session::open(world(disk, session), None, access)
}

fn take(archive: &mut Archive, number: u64) -> Result<(), String> {
    let source = ImageSource::stream(Box::new(Cursor::new(image(number))), Path::new("image"));
    let request = SnapshotRequest { name: number.to_string(), ..SnapshotRequest::default() };
    let taken = archive.take_image(&source, BLOCK_BYTES, request, &Progress::new());
    taken.map(drop).map_err(|error| with_causes(&error))
}

/// The work that a crash interrupts. `acknowledged` counts the snapshots whose call has returned.
fn take_snapshots(disk: &SimDisk, acknowledged: &mut u64) -> Result<(), String> {
    let mut archive = open(disk, 2, WRITER)?;
    for number in 0..SNAPSHOT_COUNT {
        take(&mut archive, number)?;
        *acknowledged += 1;
    }
    archive.close().map_err(|error| with_causes(&error))
}

/// Points 2 to 4 of the promise. Returns the number of snapshots that are there.
fn check(archive: &Archive, acknowledged: u64) -> Result<u64, String> {
    let listed = session::listed(archive);
    let count = listed.len() as u64;
    if !(acknowledged..=acknowledged + 1).contains(&count) {
        return Err(format!("{acknowledged} snapshots were acknowledged, and {count} are there"));
    }
    for (number, snapshot) in (0..).zip(archive.snapshots()) {
        let taken = Taken::Image(image(number).into());
        if snapshot.name != number.to_string() || !session::is_right(archive.store(), snapshot, &taken)? {
            return Err(format!("snapshot {number} is another one"));
        }
    }
    match complaints(archive, true)? {
        none if none.is_empty() => Ok(count),
        found => Err(format!("verify finds damage: {found:?}")),
    }
}

/// Acts as a machine does after a crash: it opens a reader, and then a writer that continues.
fn look_and_continue(disk: &SimDisk, acknowledged: u64) -> Result<(), String> {
    let there = check(&open(disk, 3, StoreAccess::Read)?, acknowledged)?;
    // A writer first cuts off what the crash has left behind the last durable page.
    let mut archive = open(disk, 4, WRITER)?;
    check(&archive, there)?;
    take(&mut archive, there)?;
    archive.close().map_err(|error| with_causes(&error))?;
    // Everything was synced: another power cut takes nothing.
    disk.cut_power();
    disk.restart();
    check(&open(disk, 5, StoreAccess::Read)?, there + 1).map(drop)
}

/// Cuts the power at the `call`th call. Breaks with the number of snapshots if the work came to its
/// end before that.
fn crash_at(call: u64, seed: u64, pretends_to_sync: bool) -> ControlFlow<u64, Result<(), String>> {
    let disk = SimDisk::new(seed);
    create(&disk);
    if pretends_to_sync {
        disk.pretend_to_sync();
    }
    disk.arm(&[Strike { after: call, fault: Fault::PowerCut }]);
    let mut acknowledged = 0;
    let outcome = take_snapshots(&disk, &mut acknowledged);
    if !disk.is_down() {
        outcome.unwrap();
        return ControlFlow::Break(acknowledged);
    }
    disk.restart();
    ControlFlow::Continue(look_and_continue(&disk, acknowledged))
}

/// Crashes at each call in turn, until the work is no longer interrupted. Returns the first broken
/// promise, or the number of places where the power was cut.
fn crash_everywhere(pretends_to_sync: bool) -> Result<u64, String> {
    for call in 0.. {
        for seed in [call, call + 1000] {
            match crash_at(call, seed, pretends_to_sync) {
                ControlFlow::Continue(Ok(())) => {}
                ControlFlow::Continue(Err(broken)) => {
                    return Err(format!("power cut at call {call}, seed {seed}: {broken}"));
                }
                ControlFlow::Break(acknowledged) => {
                    assert_eq!(acknowledged, SNAPSHOT_COUNT);
                    return Ok(call);
                }
            }
        }
    }
    unreachable!("the work ends")
}

#[test]
fn the_promise_holds_wherever_the_power_is_cut() {
    let places = crash_everywhere(false).unwrap_or_else(|broken| panic!("{broken}"));
    assert!(places > 100, "{places}");
}

/// The promise cannot hold on a disk that reports a sync it has not done.
#[test]
fn a_broken_promise_is_noticed() {
    let broken = crash_everywhere(true).unwrap_err();
    assert!(broken.contains("power cut at call"), "{broken}");
}
