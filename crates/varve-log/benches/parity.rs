//! Measures the parity of an arena of 64 MiB in memory (`--mebibytes N` for another size): making
//! it, finding damage, and computing the damaged parts again, for several percentages.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::time::{Duration, Instant};

use varve_log::{ArenaId, LogKeys, ParityHeader, ParityLayout, ParityPercent, rebuild, recovery_of};
use varve_world::{InlineWorkers, Random, RealWorkers, SeededRandom, Workers};

const MEBIBYTES: u64 = 64;
/// The size under Cargo's test runner.
const MEBIBYTES_TEST: u64 = 1;

fn main() {
    let arena_bytes = mebibytes() << 20;
    let mut arena = vec![0; usize::try_from(arena_bytes).expect("it fits into memory")];
    SeededRandom::new(1).fill(&mut arena).expect("a generator never fails");
    println!("parity  hands  make MB/s  find MB/s  mend MB/s  parity file / arena");
    for percent in [1, 5, 10, 25, 100] {
        for workers in [&InlineWorkers as &dyn Workers, &RealWorkers::one_a_core()] {
            measure(&arena, ParityPercent::new(percent).expect("a share"), workers);
        }
    }
}

fn measure(arena: &[u8], percent: ParityPercent, workers: &dyn Workers) {
    let layout = ParityLayout::plan(arena.len() as u64, percent).expect("an arena's size");
    let header = ParityHeader {
        store_id: [1; 16],
        arena: ArenaId(0),
        generation: 0,
        arena_header_code: [2; 32],
        arena_seal_code: [3; 32],
        layout,
    };
    let (_, key) = header.encode(&LogKeys::plain(&[4; 32]));
    let shard_bytes = layout.shard_bytes();
    let (mut making, mut finding, mut mending) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for group in 0..layout.group_count() {
        let mut data: Vec<u8> = Vec::with_capacity(layout.data_count(group) * shard_bytes);
        for piece in layout.pieces(group) {
            let range =
                usize::try_from(piece.start).expect("small")..usize::try_from(piece.end).expect("small");
            data.extend_from_slice(&arena[range]);
        }
        data.resize(layout.data_count(group) * shard_bytes, 0);
        let started = Instant::now();
        let recovery = recovery_of(&data, shard_bytes, layout.recovery_count(group), workers);
        let mut codes = key.shard_codes(&data, shard_bytes, workers);
        codes.extend(key.shard_codes(&recovery, shard_bytes, workers));
        making += started.elapsed();
        // The bench damages as much as can be mended, spread evenly.
        let (data_count, recovery_count) = (layout.data_count(group), layout.recovery_count(group));
        let good = data.clone();
        for number in 0..recovery_count {
            data[number * data_count / recovery_count * shard_bytes] ^= 1;
        }
        let started = Instant::now();
        let known: Vec<_> = codes.iter().map(|code| Some(*code)).collect();
        let is_good = key.good_shards(&data, shard_bytes, &known[..data_count], workers);
        finding += started.elapsed();
        let started = Instant::now();
        let mended =
            rebuild(&mut data, &is_good, &recovery, &vec![true; recovery_count], shard_bytes, workers);
        mending += started.elapsed();
        assert!(mended.is_ok() && data == good, "it is as it was");
    }
    let rate = |time: Duration| arena.len() as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{:>5} %  {:>5}  {:>9.0}  {:>9.0}  {:>9.0}  {:>19.4}",
        percent.get(),
        workers.width(),
        rate(making),
        rate(finding),
        rate(mending),
        layout.file_bytes() as f64 / arena.len() as f64
    );
}

fn mebibytes() -> u64 {
    let words: Vec<_> = std::env::args().collect();
    match words.iter().position(|word| word == "--mebibytes") {
        Some(place) => words[place + 1].parse().expect("a number"),
        None if words.iter().any(|word| word == "--bench") => MEBIBYTES,
        None => MEBIBYTES_TEST,
    }
}
