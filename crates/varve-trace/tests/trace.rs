//! Traces survive the round trip, and no bytes make the reader fail in another way than by an
//! error.

use proptest::prelude::*;
use varve_block::BlockType;
use varve_trace::{
    ReadTraceError, SizeClass, SnapshotBegin, SourceKind, TraceEnding, TraceHeader, TraceMaker, TraceReader,
    TraceRecord, TraceRun, TraceWriter, WaitingRun, WriteTraceError,
};

fn header() -> TraceHeader {
    TraceHeader { maker: TraceMaker::Recorder, name: "varve 0.1.0".into(), block_bytes: Some(4096) }
}

fn written(header: &TraceHeader, records: &[TraceRecord]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), header).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

/// All records, and the error or the ending that follows them.
fn read(bytes: &[u8]) -> (Vec<TraceRecord>, Result<TraceEnding, ReadTraceError>) {
    let mut reader = match TraceReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut records = Vec::new();
    for next in reader.by_ref() {
        match next {
            Ok(record) => records.push(record),
            Err(error) => return (records, Err(error)),
        }
    }
    (records, Ok(reader.ending().expect("a reader without an error has an ending")))
}

/// The work of a short trace: each record and each form of a run.
fn sample() -> Vec<TraceRecord> {
    let run = TraceRun {
        place: 0,
        first_id: 0,
        block_count: 1000,
        block_type: BlockType::DATA,
        block_bytes: 4096,
        size_class: SizeClass::new(4).unwrap(),
    };
    let list = TraceRun {
        place: run.bytes(),
        first_id: 1000,
        block_count: 1,
        block_type: BlockType::DIRECTORY,
        block_bytes: 700,
        size_class: SizeClass::UNKNOWN,
    };
    let begin = |time| SnapshotBegin { time, series: 0, source: SourceKind::Image };
    vec![
        TraceRecord::Open,
        TraceRecord::Snapshot(begin(1_777_500_000)),
        TraceRecord::Put(run),
        TraceRecord::Put(list),
        TraceRecord::Sync,
        TraceRecord::Idle { milliseconds: 86_400_000 },
        TraceRecord::Snapshot(SnapshotBegin { source: SourceKind::Folder, ..begin(1_777_586_400) }),
        TraceRecord::Put(TraceRun { block_count: 500, ..run }),
        TraceRecord::Put(TraceRun {
            place: 500 * 4096,
            first_id: 1001,
            size_class: SizeClass::INCOMPRESSIBLE,
            ..run
        }),
        TraceRecord::IdsFull,
        TraceRecord::Get(TraceRun { place: 8192, first_id: 2, block_count: 1, ..run }),
        TraceRecord::Snapshot(SnapshotBegin { source: SourceKind::Unknown, series: 1, time: -5 }),
        TraceRecord::Sync,
        TraceRecord::Forget { snapshot: 0 },
        TraceRecord::Gc,
        TraceRecord::Close,
    ]
}

#[test]
fn each_record_survives_the_round_trip() {
    let bytes = written(&header(), &sample());
    let reader = TraceReader::new(&bytes[..]).unwrap();
    assert_eq!(*reader.header(), header());
    let (records, ending) = read(&bytes);
    assert_eq!(records, sample());
    assert_eq!(ending.unwrap(), TraceEnding::Complete);
}

/// The golden trace was written by the first version. `rosetta/vtrace.py` reads it, too.
#[test]
fn the_golden_trace_reads_as_it_did() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/trace-v1");
    if std::env::var_os("VARVE_REWRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        let lines: Vec<_> = sample().iter().map(|record| format!("{record}\n")).collect();
        std::fs::write(folder.join("sample.vtrace"), written(&header(), &sample())).unwrap();
        std::fs::write(folder.join("sample.expected.txt"), lines.concat()).unwrap();
    }
    let bytes = std::fs::read(folder.join("sample.vtrace")).unwrap();
    let (records, ending) = read(&bytes);
    assert_eq!(ending.unwrap(), TraceEnding::Complete);
    let lines: Vec<_> = records.iter().map(|record| format!("{record}\n")).collect();
    assert_eq!(lines.concat(), std::fs::read_to_string(folder.join("sample.expected.txt")).unwrap());
    assert_eq!(written(&header(), &records), bytes, "the writer still writes these bytes");
}

#[test]
fn a_cut_trace_is_readable_to_its_last_whole_record() {
    let all = sample();
    let bytes = written(&header(), &all);
    let header_bytes = 24 + header().name.len();
    let mut most = 0;
    for end in 0..bytes.len() {
        for zeros in [0, 100, 100_000] {
            let cut = [&bytes[..end], &vec![0; zeros]].concat();
            let (records, ending) = read(&cut);
            if end < header_bytes {
                assert!(records.is_empty());
                continue;
            }
            // Zeros after a part of a record may look like the rest of it.
            assert!(zeros > 0 || ending.is_ok(), "cut at {end}: {ending:?}");
            if zeros == 0 {
                assert!(matches!(ending, Ok(TraceEnding::Cut { offset }) if offset <= end as u64));
                assert_eq!(records, all[..records.len()]);
                assert!(records.len() >= most);
                most = records.len();
            }
        }
    }
    assert_eq!(most, all.len());
}

/// Some file systems leave zeros after a crash, also behind a trace that was complete.
#[test]
fn zeros_after_the_end_are_left_out() {
    let bytes = written(&header(), &sample());
    for (end, is_complete) in [(bytes.len(), true), (bytes.len() - 3, false), (bytes.len() - 9, false)] {
        for zeros in [1, 9, 100_000] {
            let (records, ending) = read(&[&bytes[..end], &vec![0; zeros]].concat());
            assert_eq!(records, sample());
            assert_eq!(ending.unwrap() == TraceEnding::Complete, is_complete, "{end} bytes, {zeros} zeros");
        }
    }
    let (_, ending) = read(&[&bytes[..], &[0, 1]].concat());
    assert!(matches!(ending, Err(ReadTraceError::Damaged { .. })));
}

/// The page prints the golden trace, so that a stranger with the page alone can test a reader.
#[test]
fn the_page_of_the_format_prints_the_golden_trace() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(folder.join("docs/internals/trace-format.md")).unwrap();
    let (_, sample) = page.split_once("## 4. A sample\n").unwrap();
    let block = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with("    "));
        lines.take_while(|line| line.starts_with("    ")).map(|line| line[4..].to_owned()).collect()
    };
    let digits = block(sample).concat().replace(' ', "");
    let golden = folder.join("fixtures/trace-v1");
    assert_eq!(varve_block::from_hex(&digits).unwrap(), std::fs::read(golden.join("sample.vtrace")).unwrap());
    let (_, lines) = sample.split_once("The records are:\n").unwrap();
    let expected = std::fs::read_to_string(golden.join("sample.expected.txt")).unwrap();
    assert_eq!(block(lines), expected.lines().collect::<Vec<_>>());
}

#[test]
fn long_traces_have_checks_and_one_changed_bit_is_found() {
    let records: Vec<_> = (0..30_000).map(|milliseconds| TraceRecord::Idle { milliseconds }).collect();
    let bytes = written(&header(), &records);
    assert_eq!(read(&bytes).0, records);
    for place in (24..bytes.len()).step_by(997) {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        let (_, ending) = read(&changed);
        assert!(ending.is_err(), "the bit at {place} was not missed");
    }
    let extended = [&bytes[..], b"more"].concat();
    assert!(matches!(read(&extended).1, Err(ReadTraceError::Damaged { .. })));
}

#[test]
fn records_that_contradict_earlier_ones_are_refused() {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    let run = TraceRun {
        place: 0,
        first_id: 0,
        block_count: 2,
        block_type: BlockType::DATA,
        block_bytes: 1,
        size_class: SizeClass::UNKNOWN,
    };
    writer.write(&TraceRecord::Put(run)).unwrap();
    for wrong in [
        TraceRun { block_count: 0, ..run },
        TraceRun { block_count: u64::MAX, ..run },
        TraceRun { block_bytes: u32::MAX, ..run },
        TraceRun { place: u64::MAX, ..run },
        TraceRun { first_id: 3, ..run },
        TraceRun { first_id: 1, ..run },
        TraceRun { first_id: u64::MAX, ..run },
    ] {
        let refused = writer.write(&TraceRecord::Put(wrong));
        assert!(matches!(refused, Err(WriteTraceError::Record { .. })), "{wrong:?}");
    }
    assert!(writer.write(&TraceRecord::Forget { snapshot: 0 }).is_err());
    let far = SnapshotBegin { time: i64::MIN, series: 0, source: SourceKind::Image };
    assert!(writer.write(&TraceRecord::Snapshot(far)).is_err());
    let (records, ending) = read(&writer.finish().unwrap());
    assert_eq!((records, ending.unwrap()), (vec![TraceRecord::Put(run)], TraceEnding::Complete));
    for wrong in [
        TraceHeader { name: "\u{e9}".into(), ..header() },
        TraceHeader { name: "x".repeat(256), ..header() },
        TraceHeader { block_bytes: Some(0), ..header() },
        TraceHeader { block_bytes: Some(2 << 20), ..header() },
    ] {
        assert!(matches!(TraceWriter::new(Vec::new(), &wrong), Err(WriteTraceError::Header)));
    }
}

#[test]
fn strange_files_are_named() {
    assert!(matches!(TraceReader::new(&b"not a trace"[..]), Err(ReadTraceError::NotATrace)));
    let mut newer = written(&header(), &[]);
    newer[8] = 2;
    let error = TraceReader::new(&newer[..]).err().unwrap();
    assert_eq!(
        error.to_string(),
        "the trace has version 2, which is newer than this program: use a newer one"
    );
}

#[test]
fn runs_are_joined_only_if_they_are_one() {
    let run = TraceRun {
        place: 0,
        first_id: 0,
        block_count: 2,
        block_type: BlockType::DATA,
        block_bytes: 10,
        size_class: SizeClass::UNKNOWN,
    };
    let next = TraceRun { place: 20, first_id: 2, ..run };
    assert_eq!(run.joined(&next), Some(TraceRun { block_count: 4, ..run }));
    for other in [
        TraceRun { place: 30, ..next },
        TraceRun { first_id: 0, ..next },
        TraceRun { block_bytes: 11, ..next },
        TraceRun { block_type: BlockType::DIRECTORY, ..next },
        TraceRun { size_class: SizeClass::INCOMPRESSIBLE, ..next },
    ] {
        assert_eq!(run.joined(&other), None);
    }
}

proptest! {
    /// Neighbours repeat, and known blocks stand before new ones.
    #[test]
    fn every_order_of_blocks_has_a_trace(blocks in proptest::collection::vec(0_u64..9, 0..40)) {
        let (mut ids, mut waiting, mut records) = (Vec::new(), WaitingRun::default(), Vec::new());
        let mut expected = Vec::new();
        for (place, block) in (0..).zip(&blocks) {
            let known = ids.iter().position(|known| known == block);
            let first_id = known.unwrap_or(ids.len()) as u64;
            if known.is_none() {
                ids.push(*block);
            }
            let run = TraceRun {
                place: place * 10,
                first_id,
                block_count: 1,
                block_type: BlockType::DATA,
                block_bytes: 10,
                size_class: SizeClass::UNKNOWN,
            };
            expected.push(first_id);
            records.extend(waiting.add(TraceRecord::Put(run)).into_iter().flatten());
        }
        records.extend(waiting.take());
        let (found, ending) = read(&written(&header(), &records));
        prop_assert!(matches!(ending, Ok(TraceEnding::Complete)));
        let found = found.iter().flat_map(|record| match record {
            TraceRecord::Put(run) => run.first_id..run.end_id(),
            _ => 0..0,
        });
        prop_assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_class_is_rounded_up() {
    let class = |packed, bytes| SizeClass::of(packed, bytes).eighths();
    assert_eq!([class(0, 800), class(100, 800), class(101, 800), class(900, 800)], [1, 1, 2, 8]);
    assert_eq!((class(0, 0), SizeClass::new(9)), (0, None));
}

/// Records that may follow each other, made from drawn numbers.
fn records() -> impl Strategy<Value = Vec<TraceRecord>> {
    let draw = (any::<[u64; 5]>(), 0..16_u8);
    prop::collection::vec(draw, 0..200).prop_map(|draws| {
        let (mut next_id, mut snapshots) = (0, 0);
        let mut records = Vec::new();
        for ([place, id, count, size, class], kind) in draws {
            let record = match kind {
                0 => TraceRecord::Open,
                1 => TraceRecord::Close,
                2 => TraceRecord::Idle { milliseconds: place },
                3 => {
                    snapshots += 1;
                    let source = [SourceKind::Unknown, SourceKind::Image, SourceKind::Folder];
                    TraceRecord::Snapshot(SnapshotBegin {
                        time: (place >> 24).cast_signed() - (1 << 39),
                        series: id,
                        source: source[usize::try_from(count % 3).unwrap()],
                    })
                }
                4 => TraceRecord::Sync,
                5 if snapshots > 0 => TraceRecord::Forget { snapshot: id % snapshots },
                6 => TraceRecord::Gc,
                7 => TraceRecord::IdsFull,
                _ => {
                    let is_new = kind % 2 == 0 || next_id == 0;
                    let first_id = if is_new { next_id } else { id % next_id };
                    let count_max = if is_new { 1 << 30 } else { (next_id - first_id).min(1 << 30) };
                    let run = TraceRun {
                        place: place >> (2 + class % 40),
                        first_id,
                        block_count: 1 + count % count_max,
                        block_type: BlockType::from_byte(u8::try_from(size >> 32 & 127).unwrap()).unwrap(),
                        block_bytes: u32::try_from(size % (1 << 20)).unwrap(),
                        size_class: SizeClass::new(u8::try_from(class % 9).unwrap()).unwrap(),
                    };
                    if run.place + run.bytes() > 1 << 62 {
                        continue;
                    }
                    next_id = next_id.max(run.end_id());
                    if class % 5 == 0 { TraceRecord::Get(run) } else { TraceRecord::Put(run) }
                }
            };
            records.push(record);
        }
        records
    })
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(records in records(), seed in any::<u64>(), name in "[ -~]{0,40}") {
        let header = TraceHeader { maker: TraceMaker::Generator { seed }, name, block_bytes: None };
        let bytes = written(&header, &records);
        let reader = TraceReader::new(&bytes[..]).unwrap();
        prop_assert_eq!(reader.header(), &header);
        let (again, ending) = read(&bytes);
        prop_assert_eq!(again, records);
        prop_assert_eq!(ending.unwrap(), TraceEnding::Complete);
    }

    #[test]
    fn changed_bytes_are_read_or_refused(
        records in records(),
        place in any::<prop::sample::Index>(),
        fresh in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = written(&header(), &records);
        let place = place.index(bytes.len());
        let end = (place + fresh.len()).min(bytes.len());
        bytes.splice(place..end, fresh);
        // The records that are accepted can be written again.
        let (read, _) = read(&bytes);
        written(&header(), &read);
    }
}
