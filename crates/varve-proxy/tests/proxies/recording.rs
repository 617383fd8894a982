use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use varve_block::{Block, BlockName, BlockStore, BlockType, PutHints, contract};
use varve_proxy::{Configuration, RecordingStore, StoreDescription};
use varve_trace::{SizeClass, SourceKind, TraceEnding, TraceReader, TraceRecord, TraceRun};
use varve_world::{Clock, FixedClock, SeededRandom, Timestamp};

use crate::behind::{Behind, bytes_of, data, name_of};

/// A file in memory that others can read.
#[derive(Clone, Default)]
struct SharedFile(Arc<Mutex<Vec<u8>>>);

impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct FullDisk;

impl Write for FullDisk {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct MovingClock(AtomicI64);

impl Clock for MovingClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

fn recorder(inner: Arc<dyn BlockStore>, file: &SharedFile, clock: Arc<dyn Clock>) -> RecordingStore {
    let random = SeededRandom::new(1);
    RecordingStore::new(inner, Box::new(file.clone()), "test 1", None, &random, clock).unwrap()
}

fn fixed() -> Arc<dyn Clock> {
    Arc::new(FixedClock(Timestamp(1_777_500_000_123_456_789)))
}

fn records(file: &SharedFile) -> (Vec<TraceRecord>, TraceEnding) {
    let bytes = file.0.lock().clone();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let records = reader.by_ref().map(Result::unwrap).collect();
    (records, reader.ending().unwrap())
}

#[test]
fn a_recorder_keeps_the_contract() {
    contract::check(&mut || recorder(Behind::new(), &SharedFile::default(), fixed()));
    let random = SeededRandom::new(1);
    assert!(
        RecordingStore::new(Behind::new(), Box::new(FullDisk), "test 1", None, &random, fixed()).is_err(),
        "a trace that cannot be begun is reported"
    );
}

#[test]
fn the_trace_has_the_calls_in_their_order() {
    let file = SharedFile::default();
    let clock = Arc::new(MovingClock(AtomicI64::new(1_777_500_000_000_000_000)));
    let store = recorder(Behind::new(), &file, Arc::clone(&clock) as _);
    let blocks: Vec<_> = (0..6).map(|number| bytes_of(number, 1000)).collect();
    store.begin_snapshot("web", SourceKind::Image);
    let batch: Vec<_> = blocks[..4].iter().map(|bytes| data(bytes)).collect();
    store.put_batch(&batch).unwrap();
    store.put_batch_with(&[data(&blocks[4])], PutHints::default()).unwrap();
    // Blocks 1 and 2 are there already. The directory is a block of another type.
    store.put_batch(&batch[1..3]).unwrap();
    store.put(Block { block_type: BlockType::DIRECTORY, bytes: &[0; 500] }).unwrap();
    store.sync().unwrap();
    clock.0.fetch_add(90_000_000_000, Ordering::SeqCst);
    store.begin_snapshot("home", SourceKind::Folder);
    store.get(&name_of(&blocks[3])).unwrap();
    store.get_batch(&[name_of(&blocks[4]), name_of(b"never put")]).pop().unwrap().unwrap_err();
    store.put(data(&blocks[5])).unwrap();
    store.begin_snapshot("web", SourceKind::Image);
    store.note_sync();
    store.finish().unwrap();
    let run = |place, first_id, block_count, size_class| TraceRun {
        place,
        first_id,
        block_count,
        block_type: BlockType::DATA,
        block_bytes: 1000,
        size_class,
    };
    let (found, ending) = records(&file);
    let expected = [
        "open",
        "snapshot of an image, series 0, time 1777500000",
        "put 5 × 1000 bytes at 0: data from id 0, class 8",
        "put 2 × 1000 bytes at 5000: data from id 1, class 0",
        "put 1 × 500 bytes at 7000: directory from id 5, class 1",
        "sync",
        "idle 90000 ms",
        "snapshot of a folder, series 1, time 1777500090",
        "get 2 × 1000 bytes at 0: data from id 3, class 0",
        "put 1 × 1000 bytes at 2000: data from id 6, class 8",
        "snapshot of an image, series 0, time 1777500090",
        "sync",
        "close",
    ];
    let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(shown, expected);
    assert_eq!(found[2], TraceRecord::Put(run(0, 0, 5, SizeClass::INCOMPRESSIBLE)));
    assert_eq!(ending, TraceEnding::Complete);
    // After its end the recorder only passes calls on.
    store.put(data(b"later")).unwrap();
    assert_eq!(records(&file).0.len(), expected.len());
}

#[test]
fn no_content_and_no_name_is_in_a_trace() {
    let file = SharedFile::default();
    let store = recorder(Behind::new(), &file, fixed());
    store.begin_snapshot("the name of the series", SourceKind::Folder);
    let blocks: Vec<_> = (0..300).map(|number| bytes_of(number as u64, 100 + number * 7)).collect();
    for bytes in &blocks {
        store.put(data(bytes)).unwrap();
        store.get(&name_of(bytes)).unwrap();
    }
    store.sync().unwrap();
    store.finish().unwrap();
    let trace = file.0.lock().clone();
    let has = |needle: &[u8]| trace.windows(needle.len()).any(|window| window == needle);
    assert!(has(b"varvetrc") && !has(b"series"));
    for bytes in &blocks {
        let name: BlockName = name_of(bytes);
        // Six bytes of a score or of a content are not there by chance.
        assert!(name.score.as_bytes().windows(6).all(|part| !has(part)));
        // The first eight bytes are a small number, and mostly zeros.
        assert!(bytes[8..].windows(6).step_by(29).all(|part| !has(part)));
    }
}

#[test]
fn a_killed_recorder_leaves_everything_up_to_the_last_sync() {
    let file = SharedFile::default();
    let store = recorder(Behind::new(), &file, fixed());
    store.put(data(&bytes_of(1, 100))).unwrap();
    store.sync().unwrap();
    store.put(data(&bytes_of(2, 100))).unwrap();
    drop(store);
    let (found, ending) = records(&file);
    let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["open", "put 1 × 100 bytes at 0: data from id 0, class 8", "sync"]);
    assert!(matches!(ending, TraceEnding::Cut { .. }));
}

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    /// Accepts the header, and nothing after it.
    struct SoonFull(bool);
    impl Write for SoonFull {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match std::mem::replace(&mut self.0, true) {
                false => Ok(bytes.len()),
                true => Err(io::ErrorKind::StorageFull.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let random = SeededRandom::new(1);
    let behind = Behind::new();
    let output = Box::new(SoonFull(false));
    let store =
        RecordingStore::new(Arc::clone(&behind) as _, output, "test 1", None, &random, fixed()).unwrap();
    for number in 0..10 {
        store.put(data(&bytes_of(number, 100))).unwrap();
        store.sync().unwrap();
    }
    assert_eq!(behind.get(&name_of(&bytes_of(9, 100))).unwrap(), bytes_of(9, 100));
    assert!(store.finish().unwrap_err().to_string().contains("the trace could not be written"));
}

#[test]
fn a_recorder_is_a_store_of_a_configuration() {
    let text = "serve = 'front'\n[store.front]\nkind = 'record'\nsource = 'back'\nfolder = '/var/traces'\n\
                [store.back]\nkind = 'folder'\npath = '/backup/store'";
    let described = Configuration::from_text(text).unwrap();
    let StoreDescription::Record { source, folder } = described.store("front").unwrap() else { panic!() };
    assert_eq!((source.as_str(), folder.to_str()), ("back", Some("/var/traces")));
    let same = text.replace("/backup/store", "/var/traces");
    assert!(Configuration::from_text(&same).is_err(), "two stores cannot share a folder");
}
