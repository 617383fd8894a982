//! Reads of disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_attach::{
    AccessLog, AttachFigures, BlockAccess, BlockOrigin, BlockSupply, CacheBudget, FalsifiedBlock, FetchError,
    FetchSettings, FillError, PublishedDisk, ReadDiskError, StoredCache, fill_cache, prefetch_profile,
};
use varve_edition::{BlockForm, DiskProfile, EditionContentKey, ObjectName, ProfileRead};
use varve_image::ReadAt;
use varve_remote::Target;
use varve_world::{FileName, MemoryStorage, Storage};

use crate::publication::{
    BLOCK, Layout, Publication, TestServer, disk_of, mirrors, noise, source, source_in_form,
};

fn cache(storage: &Arc<dyn Storage>) -> StoredCache {
    StoredCache::open(Arc::clone(storage), CacheBudget::new(64 << 20), "test").unwrap()
}

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn read(disk: &PublishedDisk, offset: usize, length: usize) -> Result<Vec<u8>, ReadDiskError> {
    let mut bytes = vec![0xaa; length];
    disk.read(offset as u64, &mut bytes).map(|()| bytes)
}

/// Reads at many places, in order and not.
fn check(disk: &PublishedDisk, expected: &[u8]) {
    assert_eq!(disk.size(), expected.len() as u64);
    for step in [100_000, 70_003] {
        for offset in (0..expected.len()).step_by(step) {
            let length = step.min(expected.len() - offset);
            assert!(read(disk, offset, length).unwrap() == expected[offset..offset + length], "{offset}");
            disk.read_ahead();
        }
    }
    for offset in [expected.len() - 1, 0, expected.len() / 2, 3 * BLOCK - 1] {
        assert!(read(disk, offset, 1).unwrap() == expected[offset..=offset], "{offset}");
    }
    assert_eq!(read(disk, expected.len(), 0), Ok(vec![]));
    let beyond = read(disk, expected.len(), 1);
    assert!(matches!(beyond, Err(ReadDiskError::End { .. })), "{beyond:?}");
}

#[test]
fn a_disk_reads_as_it_was_published() {
    for layout in [Layout::Alone, Layout::Packed(5), Layout::Packed(100)] {
        for lacks_ranges in [false, true] {
            let publication = Publication::new(disk_of(41), layout);
            let server = TestServer::with(&publication.objects);
            server.set(|faults| faults.lacks_ranges = lacks_ranges);
            let storage = memory();
            let all = source(&[&server], Some(cache(&storage)));
            check(&publication.open(&all), &publication.disk);
            all.wait_idle(Duration::from_secs(9));
            let figures = all.figures();
            let stored_count = figures.cache.unwrap().blocks;
            // 22 different blocks, a page and the root.
            assert_eq!((stored_count, figures.failed), (24, 0), "{layout:?}");
            if layout == Layout::Alone {
                assert_eq!(server.requests(), 24, "each object once");
            }
            // Everything is in the cache now, so nobody is asked.
            drop(all);
            server.set(|faults| faults.is_down = true);
            let again = source(&[], Some(cache(&storage)));
            check(&publication.open(&again), &publication.disk);
        }
    }
}

fn content_key(seed: u8) -> BlockForm {
    EditionContentKey::from_bytes([seed; 32]).form()
}

#[test]
fn an_encrypted_disk_is_read_with_its_content_key_alone() {
    for layout in [Layout::Alone, Layout::Packed(5)] {
        let publication = Publication::in_form(disk_of(41), layout, content_key(1));
        let server = TestServer::with(&publication.objects);
        let storage = memory();
        let all = source_in_form(&[&server], Some(cache(&storage)), content_key(1));
        check(&publication.open(&all), &publication.disk);
        all.wait_idle(Duration::from_secs(9));
        assert_eq!((all.figures().cache.unwrap().blocks, all.figures().failed), (24, 0), "{layout:?}");
        drop(all);
        // The cache has what the server has sent.
        let files = storage.list("blocks").unwrap();
        for file in &files {
            let bytes = storage.read_whole(file, 1 << 30).unwrap();
            for secret in [&b"VARVEMAP"[..], b"line 1\nline 1\n", &publication.disk[..64]] {
                assert!(!bytes.windows(secret.len()).any(|part| part == secret), "{file}");
            }
        }
        assert!(!files.is_empty());
        let again = source_in_form(&[], Some(cache(&storage)), content_key(1));
        check(&publication.open(&again), &publication.disk);
        drop(again);

        for (servers, form) in
            [(vec![&server], content_key(2)), (vec![], content_key(2)), (vec![&server], BlockForm::Plain)]
        {
            let is_plain = form.cipher() == BlockForm::Plain.cipher();
            let all = source_in_form(&servers, Some(cache(&storage)), form);
            let opened = PublishedDisk::open(publication.image.clone(), Arc::clone(&all)).map(drop);
            let expected = if is_plain { ReadDiskError::NoKey } else { ReadDiskError::OtherKey };
            assert_eq!(opened, Err(expected));
        }
    }
    let plain = Publication::new(disk_of(5), Layout::Alone);
    let all = source_in_form(&[&TestServer::with(&plain.objects)], None, content_key(1));
    let opened = PublishedDisk::open(plain.image, all).map(drop);
    assert_eq!(opened, Err(ReadDiskError::NotEncrypted));
}

/// Each changed, shortened or exchanged object of an encrypted disk ends the reads of its blocks,
/// and never becomes other bytes.
#[test]
fn exchanged_ciphertexts_are_refused() {
    let publication = Publication::in_form(disk_of(9), Layout::Alone, content_key(1));
    let name = |block| FileName::new(&publication.part(block).object.path()).unwrap();
    let object = |block| {
        let bytes = u64::from(publication.part(block).bytes);
        publication.objects.get(&name(block), 0..bytes).unwrap()
    };
    let (first, second) = (object(0), object(4));
    assert_eq!(first.len(), BLOCK + 1 + 28, "noise: a nonce, a codec, the block and a tag");
    // A nonce with the ciphertext of another block, the same block by another key, and less of it.
    let other = Publication::in_form(disk_of(9), Layout::Alone, content_key(2));
    let foreign = FileName::new(&other.part(0).object.path()).unwrap();
    let foreign = other.objects.get(&foreign, 0..u64::from(other.part(0).bytes)).unwrap();
    let mixed = [&first[..12], &second[12..]].concat();
    for bad in [second.clone(), foreign, mixed.into(), first.slice(..first.len() - 1), first.slice(..20)] {
        publication.objects.set(&name(0), Some(bad));
        let all = source_in_form(&[&TestServer::with(&publication.objects)], None, content_key(1));
        let disk = publication.open(&all);
        let failed = read(&disk, 0, 10).unwrap_err();
        assert!(matches!(failed, ReadDiskError::Block { block: 0, .. }), "{failed}");
        assert!(read(&disk, 4 * BLOCK, BLOCK).unwrap() == publication.disk[4 * BLOCK..5 * BLOCK]);
    }
    publication.objects.set(&name(0), Some(first));
    let all = source_in_form(&[&TestServer::with(&publication.objects)], None, content_key(1));
    check(&publication.open(&all), &publication.disk);
}

#[test]
fn packed_blocks_come_together() {
    let publication = Publication::new(disk_of(101), Layout::Packed(1000));
    let server = TestServer::with(&publication.objects);
    let all = source(&[&server], None);
    let disk = publication.open(&all);
    let before = server.requests();
    assert!(read(&disk, 0, 50 * BLOCK).unwrap() == publication.disk[..50 * BLOCK]);
    // A page of the map, and then the first block at once and all others together, or nearly so.
    assert!(server.requests() - before <= 8, "{} requests", server.requests() - before);
}

#[test]
fn zeros_cost_nothing_and_are_known_without_a_block() {
    let mut bytes = vec![0; 3000 * BLOCK];
    bytes[2999 * BLOCK..].copy_from_slice(&crate::publication::noise(1, BLOCK));
    let publication = Publication::new(bytes, Layout::Alone);
    let server = TestServer::with(&publication.objects);
    let all = source(&[&server], None);
    let disk = publication.open(&all);
    assert!(read(&disk, 10 * BLOCK, 2000 * BLOCK).unwrap().iter().all(|byte| *byte == 0));
    let size = publication.disk.len() as u64;
    assert_eq!(disk.next_data_in(5..size), Ok(Some(2999 * BLOCK as u64..size)));
    assert_eq!(disk.next_data_in(5..1000), Ok(None));
    assert_eq!(disk.next_data_in(size - 10..size), Ok(Some(size - 10..size)));
    // Two of the three pages have nothing but zeros, so they are one object.
    assert_eq!(server.requests(), 1 + 2, "the root and the pages");
}

#[derive(Default)]
struct Recorded {
    accesses: Mutex<Vec<BlockAccess>>,
    falsified: Mutex<Vec<FalsifiedBlock>>,
}

impl AccessLog for Recorded {
    fn accessed(&self, access: &BlockAccess) {
        self.accesses.lock().push(access.clone());
    }

    fn falsified(&self, block: &FalsifiedBlock) {
        self.falsified.lock().push(block.clone());
    }
}

#[test]
fn a_falsified_block_is_refused_named_and_taken_from_the_mirror() {
    let publication = Publication::new(disk_of(9), Layout::Alone);
    let (bad, good) = (TestServer::with(&publication.objects), TestServer::with(&publication.objects));
    let part = publication.part(4);
    bad.set(|faults| {
        faults.falsified.insert(part.object);
    });
    let log = Arc::new(Recorded::default());
    let open = |servers: &[&Arc<TestServer>]| {
        let settings = FetchSettings::default();
        let log = Some(Arc::clone(&log) as Arc<dyn AccessLog>);
        Arc::new(
            BlockSupply::open(mirrors(servers), settings, BlockForm::Plain, None, 32 << 20, log).unwrap(),
        )
    };
    let both = open(&[&bad, &good]);
    let disk = publication.open(&both);
    let expected = &publication.disk[4 * BLOCK..5 * BLOCK];
    assert!(read(&disk, 4 * BLOCK, BLOCK).unwrap() == expected);
    {
        let falsified = log.falsified.lock();
        let [block] = &falsified[..] else { panic!("{falsified:?}") };
        assert_eq!((&block.mirror[..], block.object, block.expected), ("server 0", part.object, part.name));
        let accesses = log.accesses.lock();
        let from = BlockOrigin::Fetched { mirror: "server 1".into() };
        assert!(accesses.iter().any(|access| access.block == 4 && access.origin == from), "{accesses:?}");
    }
    assert_eq!(both.figures().falsified, 1);

    // Without a mirror, that read fails, and nothing else.
    let alone = open(&[&bad]);
    let disk = publication.open(&alone);
    let refused = read(&disk, 4 * BLOCK, BLOCK);
    assert!(
        matches!(&refused, Err(ReadDiskError::Block { block: 4, reason: FetchError::WrongBytes { object, .. } }) if *object == part.object),
        "{refused:?}"
    );
    assert!(read(&disk, 5 * BLOCK, BLOCK).unwrap() == publication.disk[5 * BLOCK..6 * BLOCK]);
    // The server was mended.
    bad.set(|faults| faults.falsified.clear());
    assert!(read(&disk, 4 * BLOCK, BLOCK).unwrap() == expected);
}

#[test]
fn a_server_that_vanishes_fails_one_read_after_its_patience() {
    let publication = Publication::new(disk_of(9), Layout::Alone);
    let server = TestServer::with(&publication.objects);
    let all = source(&[&server], None);
    let disk = publication.open(&all);
    read(&disk, 0, BLOCK).unwrap();
    server.set(|faults| faults.is_down = true);
    let begun = Instant::now();
    let failed = read(&disk, 4 * BLOCK, BLOCK);
    assert!(
        matches!(&failed, Err(ReadDiskError::Block { reason: FetchError::Patience { reason, .. }, .. }) if reason.contains("nobody answers")),
        "{failed:?}"
    );
    assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
    let kind = std::io::Error::from(failed.unwrap_err()).kind();
    assert_eq!(kind, std::io::ErrorKind::TimedOut);
    assert!(read(&disk, 0, BLOCK).unwrap() == publication.disk[..BLOCK], "what is in memory goes on");
    server.set(|faults| faults.is_down = false);
    // The server rests for a second after its failure, so a patient reader gets the block.
    std::thread::sleep(Duration::from_millis(900));
    assert!(read(&disk, 4 * BLOCK, BLOCK).unwrap() == publication.disk[4 * BLOCK..5 * BLOCK]);
}

#[test]
fn a_missing_object_is_named_at_once() {
    let publication = Publication::new(disk_of(9), Layout::Alone);
    let server = TestServer::with(&publication.objects);
    let part = publication.part(4);
    server.set(|faults| {
        faults.missing.insert(part.object);
    });
    let disk = publication.open(&source(&[&server], None));
    let missing = read(&disk, 4 * BLOCK, 1);
    assert!(
        matches!(&missing, Err(ReadDiskError::Block { reason: FetchError::Missing { object }, .. }) if *object == part.object),
        "{missing:?}"
    );
    let good = TestServer::with(&publication.objects);
    let disk = publication.open(&source(&[&server, &good], None));
    assert!(read(&disk, 4 * BLOCK, 1).is_ok(), "another one has it");
}

#[test]
fn a_late_answer_is_requested_from_the_mirror_as_well() {
    let publication = Publication::new(disk_of(21), Layout::Alone);
    let (slow, fast) = (TestServer::with(&publication.objects), TestServer::with(&publication.objects));
    let settings = FetchSettings::default();
    let all = BlockSupply::open(mirrors(&[&slow, &fast]), settings, BlockForm::Plain, None, 32 << 20, None)
        .unwrap();
    let disk = publication.open(&Arc::new(all));
    slow.set(|faults| faults.delay = Duration::from_secs(4));
    let begun = Instant::now();
    for block in [0, 1, 4, 5, 8, 9] {
        let expected = &publication.disk[block * BLOCK..][..BLOCK];
        assert!(read(&disk, block * BLOCK, BLOCK).unwrap() == expected);
    }
    // One read has waited for half a second, and one or two others after the slow one has rested.
    assert!(begun.elapsed() < Duration::from_millis(2500), "{:?}", begun.elapsed());
    assert!(fast.requests() >= 6);
}

#[test]
fn a_block_is_fetched_once_for_all_its_readers() {
    let publication = Publication::new(disk_of(9), Layout::Alone);
    let server = TestServer::with(&publication.objects);
    let all = source(&[&server], None);
    let disk = publication.open(&all);
    read(&disk, BLOCK, 1).unwrap();
    let before = server.requests();
    server.set(|faults| faults.delay = Duration::from_millis(100));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert!(read(&disk, 4 * BLOCK, 100).unwrap() == publication.disk[4 * BLOCK..][..100])
            });
        }
    });
    assert_eq!(server.requests() - before, 1);
    let figures = all.figures();
    assert!(figures.waited + figures.memory >= 7, "{figures:?}");
}

/// Figures are asked for while blocks come: neither waits for ever for the other.
#[test]
fn the_figures_of_a_cache_can_be_asked_for_while_it_is_written() {
    const COUNT: u32 = 20_000;
    let (storage, (ended, end)) = (memory(), std::sync::mpsc::channel());
    let stored = Arc::new(cache(&storage));
    let threads = [true, false].map(|writes| {
        let (stored, ended) = (Arc::clone(&stored), ended.clone());
        std::thread::spawn(move || {
            for number in 0..COUNT {
                if writes {
                    let bytes = number.to_le_bytes();
                    stored.put(&ObjectName::of(&bytes), &bytes);
                } else {
                    assert!(stored.figures().blocks <= u64::from(COUNT));
                }
            }
            ended.send(()).unwrap();
        })
    });
    for _ in &threads {
        end.recv_timeout(Duration::from_secs(30)).expect("both come to their end");
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(stored.figures().blocks, u64::from(COUNT));
}

#[test]
fn a_filled_cache_needs_no_server() {
    for layout in [Layout::Alone, Layout::Packed(7)] {
        let publication = Publication::new(disk_of(101), layout);
        let server = TestServer::with(&publication.objects);
        let storage = memory();
        let all = source(&[&server], Some(cache(&storage)));
        let disk = publication.open(&all);
        read(&disk, 0, 3 * BLOCK).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let filled = fill_cache(&disk, None, &is_over).unwrap();
        assert!(filled.is_complete() && filled.blocks > 40, "{filled:?}");
        assert_eq!(fill_cache(&disk, Some(1), &is_over).unwrap(), filled, "nothing is left to do");
        drop((disk, all));
        let offline = source(&[], Some(cache(&storage)));
        let disk = publication.open(&offline);
        check(&disk, &publication.disk);
        assert_eq!(offline.figures().fetched, 0);
    }
    // Offline, a block that is not there fails at once.
    let publication = Publication::new(disk_of(9), Layout::Alone);
    let server = TestServer::with(&publication.objects);
    let storage = memory();
    let all = source(&[&server], Some(cache(&storage)));
    read(&publication.open(&all), 0, 1).unwrap();
    all.wait_idle(Duration::from_secs(9));
    drop(all);
    let disk = publication.open(&source(&[], Some(cache(&storage))));
    assert!(read(&disk, 0, 1).is_ok());
    let missing = read(&disk, 4 * BLOCK, 1);
    assert!(
        matches!(&missing, Err(ReadDiskError::Block { reason: FetchError::Offline { .. }, .. })),
        "{missing:?}"
    );
}

#[test]
fn a_fill_ends_with_the_object_that_no_server_has() {
    let publication = Publication::new(disk_of(21), Layout::Alone);
    let part = publication.part(4);
    let fill = |server: &Arc<TestServer>, is_over: &Arc<AtomicBool>| {
        let all = source(&[server], Some(cache(&memory())));
        let disk = publication.open(&all);
        let begun = Instant::now();
        let outcome = fill_cache(&disk, None, is_over);
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        outcome
    };
    let never = Arc::default();
    for is_missing in [true, false] {
        let server = TestServer::with(&publication.objects);
        server.set(|faults| {
            let objects = if is_missing { &mut faults.missing } else { &mut faults.falsified };
            objects.insert(part.object);
        });
        let Err(FillError::Block { there, reason }) = fill(&server, &never) else { panic!("it is whole") };
        assert_eq!(there.blocks_there + 1, there.blocks, "all others are there");
        assert!(reason.to_string().contains(&part.object.to_string()), "{reason}");
        let is_right = match is_missing {
            true => matches!(reason, FetchError::Missing { .. }),
            false => matches!(reason, FetchError::WrongBytes { .. }),
        };
        assert!(is_right, "{reason}");
    }
    // A server that answers nothing any more.
    let server = TestServer::with(&publication.objects);
    let all = source(&[&server], Some(cache(&memory())));
    let disk = publication.open(&all);
    read(&disk, 0, 1).unwrap();
    server.set(|faults| faults.is_down = true);
    let failed = fill_cache(&disk, None, &never);
    assert!(
        matches!(failed, Err(FillError::Block { reason: FetchError::Patience { .. }, .. })),
        "{failed:?}"
    );
}

/// The patience of a reader does not keep the program from its end.
#[test]
fn a_read_ends_with_the_program() {
    let publication = Publication::new(disk_of(9), Layout::Alone);
    let server = TestServer::with(&publication.objects);
    let settings = FetchSettings { patience: None, ..FetchSettings::default() };
    let is_over = Arc::clone(&settings.is_over);
    let all = BlockSupply::open(mirrors(&[&server]), settings, BlockForm::Plain, None, 32 << 20, None);
    let disk = publication.open(&Arc::new(all.unwrap()));
    read(&disk, 0, 1).unwrap();
    server.set(|faults| faults.is_down = true);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&disk, 4 * BLOCK, 1));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!reader.is_finished());
        is_over.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        let ended = reader.join().unwrap();
        assert!(
            matches!(ended, Err(ReadDiskError::Block { reason: FetchError::Ended { .. }, .. })),
            "{ended:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    });
}

/// The profile of a start that reads these blocks.
fn profile_of(blocks: impl IntoIterator<Item = usize>, disk: &[u8]) -> DiskProfile {
    let read = |(milliseconds, block): (u64, usize)| ProfileRead {
        milliseconds,
        range: (block * BLOCK) as u64..((block + 1) * BLOCK) as u64,
    };
    DiskProfile::from_reads(disk.len() as u64, (0..).zip(blocks).map(read))
}

#[test]
fn the_blocks_of_a_profile_are_there_before_they_are_read() {
    for layout in [Layout::Alone, Layout::Packed(7)] {
        let publication = Publication::new(disk_of(201), layout);
        let server = TestServer::with(&publication.objects);
        let all = source(&[&server], None);
        let disk = publication.open(&all);
        // From the end to the start, and without the blocks of zeros in between.
        let blocks: Vec<usize> = (0..50).rev().map(|number| number * 4).collect();
        let profile = profile_of(blocks.iter().copied(), &publication.disk);
        let is_over = Arc::new(AtomicBool::new(false));
        let report = prefetch_profile(&disk, &profile, &is_over).unwrap();
        assert_eq!((report.blocks, report.requested, report.was_wrong), (50, 50, false));
        all.wait_idle(Duration::from_secs(9));
        for block in &blocks {
            let expected = &publication.disk[block * BLOCK..][..100];
            assert!(read(&disk, block * BLOCK, 100).unwrap() == expected, "block {block}");
        }
        let figures = all.figures();
        assert_eq!((figures.memory, figures.waited, figures.fetched), (50, 0, 0), "{layout:?}");
        // The profile of another, longer disk prefetches what is there.
        let longer = profile_of([0, 4, 100_000], &vec![0; 100_001 * BLOCK]);
        let report = prefetch_profile(&disk, &longer, &is_over).unwrap();
        assert_eq!((report.blocks, report.requested), (2, 0));
    }
}

#[test]
fn the_pages_of_a_map_do_not_come_one_after_the_other() {
    let mut bytes = vec![0; 2 * 1024 * BLOCK + 100];
    let blocks = [0, 1024, 2048];
    for (seed, block) in (1..).zip(blocks) {
        bytes[block * BLOCK..][..100].copy_from_slice(&noise(seed, 100));
    }
    let publication = Publication::new(bytes, Layout::Alone);
    let server = TestServer::with(&publication.objects);
    server.set(|faults| faults.delay = Duration::from_millis(50));
    let profile = profile_of(blocks, &publication.disk);
    let is_over = Arc::new(AtomicBool::new(false));
    let is_block =
        |name: &FileName| blocks.iter().any(|block| name.as_str() == publication.part(*block).object.path());
    for fills in [false, true] {
        let all = source(&[&server], fills.then(|| cache(&memory())));
        let disk = publication.open(&all);
        server.requested.lock().clear();
        match fills {
            false => assert_eq!(prefetch_profile(&disk, &profile, &is_over).unwrap().requested, 3),
            true => assert!(fill_cache(&disk, None, &is_over).unwrap().is_complete()),
        }
        all.wait_idle(Duration::from_secs(9));
        let requested = server.requested.lock().clone();
        let first_block = requested.iter().position(is_block);
        assert_eq!((first_block, requested.len()), (Some(3), 6), "{requested:?}");
    }
}

#[test]
fn a_profile_takes_the_place_of_read_ahead() {
    const FORESEEN: usize = 100;
    let publication = Publication::new(disk_of(401), Layout::Alone);
    let all = source(&[&TestServer::with(&publication.objects)], None);
    let disk = publication.open(&all);
    let read_in_order = |blocks: std::ops::Range<usize>| {
        for block in blocks {
            let expected = &publication.disk[block * BLOCK..(block + 1) * BLOCK];
            assert!(read(&disk, block * BLOCK, BLOCK).unwrap() == expected, "{block}");
            disk.read_ahead();
        }
        all.wait_idle(Duration::from_secs(9));
        all.figures()
    };
    let profile = profile_of(0..FORESEEN, &publication.disk);
    prefetch_profile(&disk, &profile, &Arc::new(AtomicBool::new(false))).unwrap();
    all.wait_idle(Duration::from_secs(9));
    let before = all.figures();
    let foreseen = read_in_order(0..FORESEEN);
    let bytes = |figures: AttachFigures| figures.reader_bytes + figures.ahead_bytes;
    assert_eq!(bytes(foreseen), bytes(before), "nothing else is fetched");
    // After the profile, read-ahead goes on.
    let later = read_in_order(FORESEEN..300);
    assert!(later.fetched < 20 && later.memory + later.waited > 50, "{later:?}");
}

#[test]
fn a_wrong_profile_ends_and_readers_go_first() {
    let publication = Publication::new(disk_of(1601), Layout::Alone);
    let server = TestServer::with(&publication.objects);
    server.set(|faults| faults.delay = Duration::from_millis(80));
    let all = source(&[&server], None);
    let disk = Arc::new(publication.open(&all));
    let block_count = publication.disk.len().div_ceil(BLOCK);
    // Noise and text, each block another: more than five requests at once fetch in 9 s.
    let profile =
        profile_of((0..block_count).filter(|block| block % 4 < 2 && *block < 1200), &publication.disk);
    let is_over = Arc::new(AtomicBool::new(false));
    let prefetch = {
        let (disk, is_over) = (Arc::clone(&disk), Arc::clone(&is_over));
        std::thread::spawn(move || prefetch_profile(&disk, &profile, &is_over).unwrap())
    };
    for block in (1200..1600).filter(|block| block % 4 < 2).step_by(3) {
        let expected = &publication.disk[block * BLOCK..][..100];
        // A read that waited for all requests before it would fail: its patience is 300 ms.
        assert!(read(&disk, block * BLOCK, 100).as_deref() == Ok(expected), "block {block}");
        if prefetch.is_finished() {
            break;
        }
    }
    let report = prefetch.join().unwrap();
    assert!(report.was_wrong && report.requested < 400, "{report:?}");
}
