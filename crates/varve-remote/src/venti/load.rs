//! Measures the speed of a Venti server: many requests in flight on one connection, each timed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use varve_block::{BLOCK_BYTES_MAX, Score, to_usize};
use varve_venti::{Address, VentiReply, VentiRequest, WireType};

use super::connection::VentiConnection;
use super::{VentiError, VentiOptions};
use crate::edge;

/// The operation on the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadAction {
    /// Write them, then sync.
    Write,
    /// Read them, and compare them with the written ones.
    Read,
}

/// The order of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadOrder {
    /// Ascending.
    Sequential,
    /// Each once, in a pseudo-random order.
    Permuted,
    /// Pseudo-random, with repetitions.
    Random,
    /// Always the same block.
    Same,
}

/// A workload for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub action: LoadAction,
    pub order: LoadOrder,
    /// The size of a block: from 16 bytes to [`BLOCK_BYTES_MAX`].
    pub block_bytes: usize,
    /// The number of requests.
    pub count: u64,
    /// The number of distinct blocks from which a pseudo-random order chooses.
    pub among: u64,
    /// The requests in flight, from 1 to 256.
    pub depth: usize,
    /// Selects the blocks. The same seed makes the same blocks; two seeds have no block in common.
    pub seed: u64,
}

/// The measured times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadResult {
    /// From the first request to the last answer, without the sync.
    pub elapsed: Duration,
    /// The duration of the sync.
    pub sync: Duration,
    /// Microseconds from each request to its answer, the shortest first.
    pub latencies: Vec<u32>,
}

impl LoadResult {
    /// Returns the time within which this share of the requests, in per mille, was answered.
    #[must_use]
    pub fn latency(&self, per_mille: usize) -> Duration {
        let place = (self.latencies.len() * per_mille / 1000).min(self.latencies.len().saturating_sub(1));
        Duration::from_micros(self.latencies.get(place).copied().unwrap_or(0).into())
    }
}

/// Runs a workload on a server.
///
/// # Errors
/// [`VentiError`]; also when the server refuses a block, does not have it, or returns another one.
pub fn load(address: &Address, options: &VentiOptions, load: &Load) -> Result<LoadResult, VentiError> {
    let options = VentiOptions { depth: load.depth, ..options.clone() };
    let mut connection = VentiConnection::open(address, &options, 1)?;
    let count = u32::try_from(load.block_bytes.clamp(16, BLOCK_BYTES_MAX)).unwrap_or(u32::MAX);
    let number_at = |place: u64| match load.order {
        LoadOrder::Sequential => place,
        LoadOrder::Permuted => permuted(place % load.among.max(1), load.among),
        LoadOrder::Random => mixed(load.seed ^ mixed(place)) % load.among.max(1),
        LoadOrder::Same => 0,
    };
    let mut latencies = Vec::new();
    let mut failure = None;
    let mut next_place = 0;
    // Names are made before the clock starts, because only the server is measured.
    let blocks = LoadBlocks::of(load);
    let names: Vec<[u8; 20]> = match load.action {
        LoadAction::Write => Vec::new(),
        LoadAction::Read => (0..load.count)
            .map(|place| {
                let score = Score::sha1(&blocks.make(number_at(place)));
                score.as_bytes().try_into().unwrap_or_default()
            })
            .collect(),
    };
    let mut next = || {
        let place = (next_place < load.count).then_some(next_place)?;
        next_place += 1;
        Some(match load.action {
            LoadAction::Write => {
                VentiRequest::Write { wire_type: WireType::DATA, data: blocks.make(number_at(place)) }
            }
            LoadAction::Read => VentiRequest::read(*names.get(to_usize(place))?, WireType::DATA, count),
        })
    };
    let begun = edge::now();
    connection.drive(&mut next, &mut |place, sent: Instant, reply| {
        latencies.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
        let is_good = match &reply {
            // A comparison of the bytes is as strict as one of the scores, and costs less.
            Ok(VentiReply::Read(block)) => blocks.is(number_at(place as u64), block),
            Ok(_) => true,
            Err(_) => false,
        };
        if !is_good && failure.is_none() {
            failure = Some(match reply {
                Err(text) => VentiError::Refused { text },
                Ok(_) => VentiError::Lies,
            });
        }
        failure.is_none()
    })?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let elapsed = begun.elapsed();
    let begun = edge::now();
    if load.action == LoadAction::Write {
        let mut answer = [None];
        connection.ask_all(&[VentiRequest::Sync], &mut answer)?;
        if let [Some(Err(text))] = answer {
            return Err(VentiError::Refused { text });
        }
    }
    latencies.sort_unstable();
    Ok(LoadResult { elapsed, sync: begun.elapsed(), latencies })
}

/// The blocks of a seed. All are distinct and incompressible. Making one costs far less than
/// sending it.
struct LoadBlocks {
    noise: Vec<u64>,
    bytes: usize,
    seed: u64,
}

impl LoadBlocks {
    fn of(load: &Load) -> Self {
        let bytes = load.block_bytes.clamp(16, BLOCK_BYTES_MAX);
        let count = bytes.div_ceil(8) as u64;
        let noise = (0..count).map(|place| mixed(load.seed ^ mixed(place.wrapping_add(1)))).collect();
        Self { noise, bytes, seed: mixed(load.seed) }
    }

    fn words(&self, number: u64) -> impl Iterator<Item = [u8; 8]> {
        let step = mixed(self.seed.wrapping_add(number)) | 1;
        self.noise.iter().zip(2..).map(move |(word, place)| (word ^ step.wrapping_mul(place)).to_le_bytes())
    }

    fn make(&self, number: u64) -> Bytes {
        let mut bytes = vec![0; self.bytes.next_multiple_of(8)];
        let (places, _) = bytes.as_chunks_mut::<8>();
        for (place, word) in places.iter_mut().zip(self.words(number)) {
            *place = word;
        }
        bytes.truncate(self.bytes);
        bytes.into()
    }

    /// Returns true if these are the bytes of a block. Compares word by word without an early exit,
    /// because it must cost less than the measured request.
    fn is(&self, number: u64, bytes: &[u8]) -> bool {
        let mut words = self.words(number);
        let (whole, rest) = bytes.as_chunks::<8>();
        let difference = |sum, (found, word): (&[u8; 8], [u8; 8])| {
            sum | (u64::from_le_bytes(*found) ^ u64::from_le_bytes(word))
        };
        let difference = whole.iter().zip(words.by_ref()).fold(0, difference);
        let is_rest = rest.is_empty() || words.next().is_some_and(|word| word.starts_with(rest));
        bytes.len() == self.bytes && difference == 0 && is_rest
    }
}

/// Mixes the bits of a number.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Permutes the numbers below `count`: a full cycle of a larger power of two, in which numbers that
/// are too large are skipped.
fn permuted(place: u64, count: u64) -> u64 {
    let mask = count.max(2).next_power_of_two() - 1;
    let step = |number: u64| {
        let number = (number.wrapping_mul(0x9e37_79b1) + 0x55) & mask;
        (number ^ (number >> 3)) & mask
    };
    let mut number = step(place);
    while number >= count {
        number = step(number);
    }
    number
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_permutation_has_every_number_once() {
        for count in [1, 2, 3, 100, 1000, 4096, 5000] {
            let numbers: BTreeSet<u64> = (0..count).map(|place| permuted(place, count)).collect();
            assert_eq!(numbers, (0..count).collect(), "{count}");
        }
        let in_order =
            (1..5000_u64).filter(|place| permuted(*place, 5000) == permuted(place - 1, 5000) + 1).count();
        assert!(in_order < 50, "{in_order} neighbours");
    }

    #[test]
    fn no_two_blocks_are_the_same_and_none_can_be_compressed() {
        let load = Load {
            action: LoadAction::Write,
            order: LoadOrder::Sequential,
            block_bytes: 1000,
            count: 1000,
            among: 1000,
            depth: 1,
            seed: 7,
        };
        let made = LoadBlocks::of(&load);
        let blocks: BTreeSet<Bytes> = (0..1000).map(|number| made.make(number)).collect();
        assert_eq!(blocks.len(), 1000);
        assert!(!blocks.contains(&LoadBlocks::of(&Load { seed: 8, ..load }).make(0)));
        let words: BTreeSet<&[u8]> = blocks.iter().flat_map(|block| block.chunks(8)).collect();
        assert!(words.len() > 124_900, "{} different words", words.len());
    }

    #[test]
    fn a_block_is_known_by_its_bytes() {
        for block_bytes in [16, 17, 100, 8192] {
            let load = Load {
                action: LoadAction::Read,
                order: LoadOrder::Same,
                block_bytes,
                count: 1,
                among: 1,
                depth: 1,
                seed: 3,
            };
            let blocks = LoadBlocks::of(&load);
            let mut bytes = blocks.make(5).to_vec();
            assert!(blocks.is(5, &bytes) && !blocks.is(6, &bytes));
            assert!(!blocks.is(5, &bytes[1..]));
            bytes[block_bytes - 1] ^= 1;
            assert!(!blocks.is(5, &bytes), "the last of {block_bytes} bytes differs");
        }
    }
}
