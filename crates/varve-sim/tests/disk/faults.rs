//! Each fault does happen, and nothing happens that the table does not allow. Otherwise the model
//! would prove nothing.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

use varve_sim::{Fault, Leftover, SECTOR_BYTES, SeededDraw, SimDisk, Strike};
use varve_world::{FileName, LockError, Storage};

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

fn whole(disk: &SimDisk, file: &FileName) -> io::Result<Vec<u8>> {
    (disk as &dyn Storage).read_whole(file, 1 << 20)
}

/// A disk with one durable file of these bytes.
fn with_file(seed: u64, file: &FileName, bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create(file).unwrap();
    disk.append(file, bytes).unwrap();
    disk.sync(file).unwrap();
    disk.sync_folder(file.folder()).unwrap();
    disk
}

fn strike(disk: &SimDisk, fault: Fault) {
    disk.arm(&[Strike { after: 0, fault }]);
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut draw = SeededDraw::new(seed);
    // Never zero, because zeros stand for lost bytes.
    (0..length).map(|_| u8::try_from(draw.below(255) + 1).unwrap()).collect()
}

#[test]
fn a_good_disk_keeps_the_contract() {
    let mut seed = 0;
    varve_world::contract::check(&mut || {
        seed += 1;
        SimDisk::new(seed)
    });
}

#[test]
fn what_was_synced_survives_every_power_cut() {
    let file = name("folder/file");
    for seed in 0..500 {
        let kept = bytes(seed, 1 + usize::try_from(seed).unwrap() * 7);
        let disk = with_file(seed, &file, &kept);
        for more in 0..3 {
            disk.append(&file, &bytes(more, 900)).unwrap();
        }
        disk.cut_power();
        assert!(disk.is_down());
        assert!(whole(&disk, &file).is_err());
        disk.restart();
        assert_eq!(whole(&disk, &file).unwrap()[..kept.len()], kept);
        assert!(disk.append(&file, b"x").is_ok(), "it works again");
    }
}

#[test]
fn unsynced_bytes_are_kept_lost_torn_and_reordered() {
    let file = name("file");
    let (durable, first, second) = (bytes(1, 700), bytes(2, 2000), bytes(3, 1000));
    let all = [&durable[..], &first, &second].concat();
    let mut lengths = BTreeSet::new();
    let mut left = BTreeSet::new();
    for seed in 0..2000 {
        let disk = with_file(seed, &file, &durable);
        disk.append(&file, &first).unwrap();
        disk.append(&file, &second).unwrap();
        disk.cut_power();
        disk.restart();
        let found = whole(&disk, &file).unwrap();
        lengths.insert(found.len());
        left.extend(disk.tally().left.into_keys());
        assert!((durable.len()..=all.len()).contains(&found.len()));
        for start in (0..found.len()).step_by(SECTOR_BYTES) {
            let sector = start..(start + SECTOR_BYTES).min(found.len());
            let is_new = found[sector.clone()] == all[sector.clone()];
            let unsynced = &found[sector.start.max(durable.len()).min(sector.end)..sector.end];
            assert!(is_new || unsynced.iter().all(|byte| *byte == 0), "a sector is whole, or lost");
        }
    }
    assert!(lengths.contains(&durable.len()) && lengths.contains(&2700) && lengths.contains(&all.len()));
    assert!(
        lengths.iter().any(|length| length % SECTOR_BYTES == 0),
        "cut at a border between the lengths it had"
    );
    for leftover in [Leftover::BytesLost, Leftover::BytesKept, Leftover::Torn, Leftover::Reordered] {
        assert!(left.contains(&leftover), "{leftover:?}");
    }
}

#[test]
fn names_are_undone_or_kept() {
    let (old, new, doomed) = (name("folder/a"), name("folder/a.new"), name("folder/doomed"));
    let mut seen = BTreeSet::new();
    let mut left = BTreeSet::new();
    for seed in 0..1000 {
        let disk = with_file(seed, &old, b"old");
        disk.create(&doomed).unwrap();
        disk.sync_folder("folder").unwrap();
        disk.create(&new).unwrap();
        disk.append(&new, b"newer").unwrap();
        disk.sync(&new).unwrap();
        disk.rename(&new, &old).unwrap();
        disk.remove(&doomed).unwrap();
        disk.cut_power();
        disk.restart();
        let found = whole(&disk, &old).expect("the old file or the new one, never neither");
        assert!(found == b"old" || found == b"newer");
        let unrenamed = whole(&disk, &new).ok();
        assert!(unrenamed.as_ref().is_none_or(|bytes| bytes == b"newer" && found == b"old"));
        seen.insert((found, unrenamed, disk.length(&doomed).is_ok()));
        left.extend(disk.tally().left.into_keys());
    }
    assert_eq!(seen.len(), 6, "each of the three outcomes for the rename, with the removal done or undone");
    for leftover in
        [Leftover::RenameUndone, Leftover::CreationUndone, Leftover::RemovalUndone, Leftover::NamesReordered]
    {
        assert!(left.contains(&leftover), "{leftover:?}");
    }
}

#[test]
fn a_rename_onto_an_unsynced_file_may_leave_it_empty() {
    let (old, new) = (name("a"), name("a.new"));
    let found = (0..200).map(|seed| {
        let disk = with_file(seed, &old, b"old");
        disk.create(&new).unwrap();
        disk.append(&new, b"newer").unwrap();
        disk.rename(&new, &old).unwrap();
        disk.sync_folder("").unwrap();
        disk.cut_power();
        disk.restart();
        whole(&disk, &old).unwrap()
    });
    let found: BTreeSet<_> = found.collect();
    assert!(found.contains(b"".as_slice()) && found.contains(b"newer".as_slice()), "{found:?}");
}

#[test]
fn a_new_folder_may_go_with_all_in_it() {
    let file = name("folder/file");
    let is_there = (0..100).map(|seed| {
        let disk = SimDisk::new(seed);
        disk.create(&file).unwrap();
        disk.sync(&file).unwrap();
        disk.cut_power();
        disk.restart();
        disk.list("folder").unwrap().len() == 1
    });
    assert_eq!(is_there.collect::<BTreeSet<_>>().len(), 2);
}

#[test]
fn truncations_are_undone_or_kept() {
    let file = name("file");
    let durable = bytes(1, 3000);
    let mut lengths = BTreeSet::new();
    for seed in 0..500 {
        let disk = with_file(seed, &file, &durable);
        disk.truncate(&file, 1000).unwrap();
        disk.cut_power();
        disk.restart();
        let found = whole(&disk, &file).unwrap();
        assert_eq!(found[..1000], durable[..1000]);
        lengths.insert(found.len());
        let synced = with_file(seed, &file, &durable);
        synced.truncate(&file, 1000).unwrap();
        synced.sync(&file).unwrap();
        synced.cut_power();
        synced.restart();
        assert_eq!(whole(&synced, &file).unwrap(), durable[..1000]);
    }
    assert!(lengths.contains(&1000) && lengths.contains(&3000), "{lengths:?}");
}

#[test]
fn power_may_go_at_any_call() {
    let (file, other) = (name("folder/file"), name("folder/other"));
    let calls: [&dyn Fn(&SimDisk) -> bool; 11] = [
        &|disk| disk.create(&other).is_err(),
        &|disk| disk.append(&file, b"more").is_err(),
        &|disk| disk.read_at(&file, 0, &mut [0; 2]).is_err(),
        &|disk| disk.length(&file).is_err(),
        &|disk| disk.truncate(&file, 1).is_err(),
        &|disk| disk.sync(&file).is_err(),
        &|disk| disk.sync_folder("folder").is_err(),
        &|disk| disk.rename(&file, &other).is_err(),
        &|disk| disk.remove(&file).is_err(),
        &|disk| disk.list("folder").is_err(),
        &|disk| disk.lock(&other, "me").is_err(),
    ];
    for (number, call) in calls.iter().enumerate() {
        let disk = with_file(7, &file, b"bytes");
        strike(&disk, Fault::PowerCut);
        assert!(call(&disk), "call {number}");
        assert!(disk.is_down());
        assert_eq!(disk.tally().struck[&Fault::PowerCut], 1);
        disk.restart();
        assert!(!disk.is_down());
        assert!(disk.list("folder").is_ok());
    }
    let disk = with_file(7, &file, b"bytes");
    strike(&disk, Fault::PowerCut);
    disk.sync_soon(&file);
    assert!(disk.is_down());
}

#[test]
fn reads_fail_and_lie_once() {
    let file = name("file");
    let disk = with_file(3, &file, &bytes(1, 1000));
    disk.append(&file, &bytes(2, 1000)).unwrap();
    let right = whole(&disk, &file).unwrap();
    strike(&disk, Fault::ReadError);
    assert!(disk.length(&file).is_err());
    strike(&disk, Fault::ReadFlip);
    let flipped = whole(&disk, &file).unwrap();
    let bits: u32 = flipped.iter().zip(&right).map(|(found, right)| (found ^ right).count_ones()).sum();
    assert_eq!(bits, 1);
    strike(&disk, Fault::ReadStale);
    let stale = whole(&disk, &file).unwrap();
    assert_ne!(stale, right);
    let first_zero = stale.iter().position(|byte| *byte == 0).unwrap();
    assert!([0, 1000].contains(&first_zero), "as it was before an append: {first_zero}");
    assert_eq!(whole(&disk, &file).unwrap(), right, "the next read is right");
    (&disk as &dyn Storage).replace(&file, &bytes(9, 2000)).unwrap();
    strike(&disk, Fault::ReadStale);
    assert_eq!(whole(&disk, &file).unwrap(), right, "as it was before it was replaced");
}

#[test]
fn space_runs_out_and_comes_back() {
    let file = name("file");
    let mut parts = BTreeSet::new();
    for seed in 0..50 {
        let disk = with_file(seed, &file, b"");
        strike(&disk, Fault::DiskFull);
        assert_eq!(disk.append(&file, b"1234").unwrap_err().kind(), ErrorKind::StorageFull);
        parts.insert(disk.length(&file).unwrap());
        assert_eq!(disk.append(&file, b"5678").unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(disk.create(&name("other")).unwrap_err().kind(), ErrorKind::StorageFull);
        assert!(disk.is_full());
        disk.behave();
        disk.append(&file, b"5678").unwrap();
        disk.create(&name("other")).unwrap();
    }
    assert_eq!(parts, BTreeSet::from([0, 1, 2, 3, 4]), "any part may be there");
}

#[test]
fn a_write_fails_with_a_part_of_it_there() {
    let file = name("file");
    let parts = (0..50).map(|seed| {
        let disk = with_file(seed, &file, b"");
        strike(&disk, Fault::WriteError);
        assert!(disk.append(&file, b"1234").is_err());
        disk.length(&file).unwrap()
    });
    assert_eq!(parts.collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2, 3, 4]));
}

#[test]
fn a_failed_sync_marks_clean_what_it_did_not_write() {
    let file = name("file");
    let all = bytes(1, 5000);
    let (mut lost_later, mut lost_at_once, mut told_late) = (false, false, false);
    for seed in 0..200 {
        let disk = with_file(seed, &file, b"");
        disk.append(&file, &all).unwrap();
        strike(&disk, Fault::SyncError);
        if seed % 2 == 0 {
            assert!(disk.sync(&file).is_err());
        } else {
            disk.sync_soon(&file);
            told_late |= disk.sync(&file).is_err();
        }
        disk.sync(&file).expect("the next sync says that all is well");
        let seen = whole(&disk, &file).unwrap();
        lost_at_once |= seen != all;
        disk.cut_power();
        disk.restart();
        lost_later |= seen == all && whole(&disk, &file).unwrap() != all;
    }
    assert!(lost_later && lost_at_once && told_late);
}

#[test]
fn a_failed_sync_of_a_folder_leaves_changes_waiting() {
    let outcomes = (0..100).map(|seed| {
        let disk = with_file(seed, &name("folder/a"), b"a");
        disk.create(&name("folder/b")).unwrap();
        strike(&disk, Fault::FolderSyncError);
        assert!(disk.sync_folder("folder").is_err());
        let again = seed % 2 == 0;
        if again {
            disk.sync_folder("folder").unwrap();
        }
        disk.cut_power();
        disk.restart();
        (again, disk.length(&name("folder/b")).is_ok())
    });
    let outcomes: BTreeSet<_> = outcomes.collect();
    assert_eq!(outcomes, BTreeSet::from([(false, false), (false, true), (true, true)]));
}

#[test]
fn changes_of_names_fail_without_effect() {
    let (file, other) = (name("file"), name("other"));
    let disk = with_file(1, &file, b"bytes");
    let refused = |call: &dyn Fn() -> bool| {
        strike(&disk, Fault::NameError);
        assert!(call());
        assert_eq!(disk.list("").unwrap(), std::slice::from_ref(&file));
        assert_eq!(whole(&disk, &file).unwrap(), b"bytes");
    };
    refused(&|| disk.create(&other).is_err());
    refused(&|| disk.truncate(&file, 1).is_err());
    refused(&|| disk.rename(&file, &other).is_err());
    refused(&|| disk.remove(&file).is_err());
    refused(&|| matches!(disk.lock(&other, "me"), Err(LockError::Storage { .. })));
}

#[test]
fn a_power_cut_ends_locks() {
    let file = name("lock");
    let disk = SimDisk::new(1);
    let before = disk.lock(&file, "before").unwrap_or_else(|error| panic!("{error}"));
    disk.cut_power();
    disk.restart();
    let _after = disk.lock(&file, "after").unwrap_or_else(|error| panic!("{error}"));
    drop(before);
    assert!(matches!(disk.lock(&file, "third"), Err(LockError::Held { holder }) if holder == "after"));
}

#[test]
fn a_seed_decides_everything() {
    let run = |seed| {
        let (file, disk) = (name("folder/file"), SimDisk::new(seed));
        disk.create(&file).unwrap();
        for more in 0..20 {
            disk.append(&file, &bytes(more, 700)).unwrap();
        }
        disk.cut_power();
        disk.restart();
        (disk.tally(), whole(&disk, &file).ok())
    };
    assert_eq!(run(5), run(5));
    assert_ne!((0..20).map(|seed| run(seed).1).collect::<BTreeSet<_>>().len(), 1);
}

#[test]
fn a_disk_can_pretend() {
    let file = name("file");
    let found = (0..50).map(|seed| {
        let disk = SimDisk::new(seed);
        disk.pretend_to_sync();
        disk.create(&file).unwrap();
        disk.sync(&file).unwrap();
        disk.sync_folder("").unwrap();
        disk.cut_power();
        disk.restart();
        disk.length(&file).is_ok()
    });
    assert_eq!(found.collect::<BTreeSet<_>>().len(), 2);
}
