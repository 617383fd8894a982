//! The reader of traces, which people exchange.

use varve_block::BlockType;
use varve_trace::{
    RUN_BLOCKS_MAX, SizeClass, SnapshotBegin, SourceKind, TraceHeader, TraceMaker, TraceReader, TraceRecord,
    TraceRun, TraceWriter,
};
use xxhash_rust::xxh3::xxh3_64;

/// The records of a trace, up to an error.
fn records(bytes: &[u8]) -> Option<(TraceHeader, Vec<TraceRecord>)> {
    let mut reader = TraceReader::new(bytes).ok()?;
    let header = reader.header().clone();
    let records = reader.by_ref().map_while(Result::ok).collect();
    Some((header, records))
}

fn written(header: &TraceHeader, records: &[TraceRecord]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), header).expect("the header was accepted");
    for record in records {
        writer.write(record).expect("the record was accepted");
    }
    writer.finish().expect("memory")
}

/// A trace of somebody else. Its records are within their limits, and writing them gives the same
/// records. The last eight bytes are also replaced by the code that a check there would have.
pub fn trace(bytes: &[u8]) {
    let mut forged = bytes.to_vec();
    if let Some(place) = forged.len().checked_sub(9).filter(|place| *place > 0) {
        let hash = xxh3_64(&forged[..place]);
        forged[place] = 1;
        forged[place + 1..].copy_from_slice(&hash.to_le_bytes());
    }
    for bytes in [bytes, &forged] {
        let Some((header, records)) = records(bytes) else { continue };
        for record in &records {
            if let TraceRecord::Put(run) | TraceRecord::Get(run) = record {
                assert!(run.block_count > 0 && run.block_count <= RUN_BLOCKS_MAX);
                assert!(run.place + run.bytes() <= 1 << 62 && run.end_id() <= 1 << 40);
            }
        }
        let again = written(&header, &records);
        assert_eq!(self::records(&again), Some((header, records)));
    }
}

/// The golden trace, and a generated one.
#[must_use]
pub fn trace_seeds() -> Vec<Vec<u8>> {
    let header = TraceHeader {
        maker: TraceMaker::Generator { seed: 7 },
        name: "fuzz 1".into(),
        block_bytes: Some(32 << 10),
    };
    let mut work = vec![TraceRecord::Open];
    for day in 0..20_u32 {
        let begin = SnapshotBegin { time: i64::from(day) * 86_400, series: 0, source: SourceKind::Image };
        work.push(TraceRecord::Snapshot(begin));
        for part in 0..10_u32 {
            let is_known = day > 0 && part % 3 > 0;
            let first_id = if is_known { u64::from(part) } else { u64::from(day * 10 + part) * 2 };
            let run = TraceRun {
                place: u64::from(part) << 20,
                first_id,
                block_count: 2,
                block_type: BlockType::DATA,
                block_bytes: 32 << 10,
                size_class: SizeClass::INCOMPRESSIBLE,
            };
            work.push(TraceRecord::Put(run));
        }
        work.push(TraceRecord::Sync);
    }
    let mut writer = TraceWriter::new(Vec::new(), &header).expect("a good header");
    // Records that may not follow the earlier ones are left out.
    work.iter().for_each(|record| drop(writer.write(record)));
    let golden = include_bytes!("../../fixtures/trace-v1/sample.vtrace").to_vec();
    vec![golden, writer.finish().expect("memory")]
}
