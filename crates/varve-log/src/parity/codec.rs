//! The code itself: computes recovery shards from data shards, and lost data shards from the
//! others. The library is `reed-solomon-simd`: Leopard's code over GF(2^16). It always runs at its
//! *high rate*. The bytes depend on the rate, so the choice is not left to the library.
//!
//! Every column of the shards is a code word of its own. So a group is processed in narrow slices
//! of all its shards. A slice fits into a processor's cache, and each worker processes one slice at
//! a time.

use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{HighRateDecoder, HighRateEncoder, RateDecoder, RateEncoder};
use varve_world::{Task, Workers};

/// The width of a slice. It is a multiple of 64 that divides every size of shard, so that the bytes
/// do not depend on it.
const SLICE_BYTES: usize = 1024;

/// More shards are lost than the available recovery shards can replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{lost} shards are lost, but only {good} recovery shards are good")]
pub struct TooFewShards {
    /// The number of lost data shards.
    pub lost: usize,
    /// The number of good recovery shards.
    pub good: usize,
}

/// Computes the recovery shards of a group's data shards.
///
/// # Panics
/// When the counts are not those of a [`ParityLayout`](crate::ParityLayout).
#[must_use]
pub fn recovery_of(data: &[u8], shard_bytes: usize, recovery_count: usize, workers: &dyn Workers) -> Vec<u8> {
    let data_count = data.len() / shard_bytes;
    let mut recovery = vec![0; recovery_count * shard_bytes];
    let new = || {
        HighRateEncoder::new(data_count, recovery_count, SLICE_BYTES, DefaultEngine::new(), None)
            .expect(COUNTS_FIT)
    };
    let mut coders: Vec<_> =
        (0..coder_count(shard_bytes, workers)).map(|_| (new(), Vec::<u8>::new())).collect();
    let starts: Vec<_> = (0..shard_bytes).step_by(SLICE_BYTES).collect();
    for starts in starts.chunks(coders.len()) {
        let tasks = starts.iter().zip(&mut coders).map(|(start, (encoder, slices))| {
            Box::new(move || {
                slices.clear();
                for shard in data.chunks_exact(shard_bytes) {
                    encoder.add_original_shard(slice(shard, *start)).expect(COUNTS_FIT);
                }
                let encoded = encoder.encode().expect(COUNTS_FIT);
                encoded.recovery_iter().for_each(|shard| slices.extend_from_slice(shard));
            }) as Task<'_>
        });
        workers.run_all(tasks.collect());
        for (start, (_, slices)) in starts.iter().zip(&coders) {
            for (shard, slice) in recovery.chunks_exact_mut(shard_bytes).zip(slices.chunks_exact(SLICE_BYTES))
            {
                shard[*start..*start + SLICE_BYTES].copy_from_slice(slice);
            }
        }
    }
    recovery
}

/// Computes the lost shards of a group from the good ones, in place.
///
/// # Errors
/// [`TooFewShards`]; `data` is then unchanged.
///
/// # Panics
/// When the counts are not those of a [`ParityLayout`](crate::ParityLayout).
pub fn rebuild(
    data: &mut [u8],
    data_is_good: &[bool],
    recovery: &[u8],
    recovery_is_good: &[bool],
    shard_bytes: usize,
    workers: &dyn Workers,
) -> Result<(), TooFewShards> {
    let lost: Vec<_> = (0..data_is_good.len()).filter(|shard| !data_is_good[*shard]).collect();
    let good: Vec<_> = (0..recovery_is_good.len()).filter(|shard| recovery_is_good[*shard]).collect();
    if lost.is_empty() {
        return Ok(());
    }
    if good.len() < lost.len() {
        return Err(TooFewShards { lost: lost.len(), good: good.len() });
    }
    // Uses no more recovery shards than needed, because each costs time.
    let good = &good[..lost.len()];
    let new = || {
        let (data_count, recovery_count) = (data_is_good.len(), recovery_is_good.len());
        HighRateDecoder::new(data_count, recovery_count, SLICE_BYTES, DefaultEngine::new(), None)
            .expect(COUNTS_FIT)
    };
    let mut coders: Vec<_> =
        (0..coder_count(shard_bytes, workers)).map(|_| (new(), Vec::<u8>::new())).collect();
    let starts: Vec<_> = (0..shard_bytes).step_by(SLICE_BYTES).collect();
    for starts in starts.chunks(coders.len()) {
        let shards: &[u8] = data;
        let tasks = starts.iter().zip(&mut coders).map(|(start, (decoder, slices))| {
            Box::new(move || {
                slices.clear();
                let numbered = shards.chunks_exact(shard_bytes).enumerate();
                for (number, shard) in numbered.filter(|(number, _)| data_is_good[*number]) {
                    decoder.add_original_shard(number, slice(shard, *start)).expect(COUNTS_FIT);
                }
                for number in good {
                    let shard = &recovery[number * shard_bytes..][..shard_bytes];
                    decoder.add_recovery_shard(*number, slice(shard, *start)).expect(COUNTS_FIT);
                }
                // The shards are restored in the order of their numbers, which is the order of
                // `lost`.
                let decoded = decoder.decode().expect(COUNTS_FIT);
                decoded.restored_original_iter().for_each(|(_, shard)| slices.extend_from_slice(shard));
            }) as Task<'_>
        });
        workers.run_all(tasks.collect());
        for (start, (_, slices)) in starts.iter().zip(&coders) {
            for (number, slice) in lost.iter().zip(slices.chunks_exact(SLICE_BYTES)) {
                data[number * shard_bytes + start..][..SLICE_BYTES].copy_from_slice(slice);
            }
        }
    }
    Ok(())
}

const COUNTS_FIT: &str = "a layout has only counts that the code supports";

fn slice(shard: &[u8], start: usize) -> &[u8] {
    &shard[start..start + SLICE_BYTES]
}

fn coder_count(shard_bytes: usize, workers: &dyn Workers) -> usize {
    workers.width().clamp(1, shard_bytes / SLICE_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use varve_world::{InlineWorkers, Random, RealWorkers, SeededRandom};

    use super::*;

    fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn any_number_of_coders_make_the_same_shards() {
        let data = random_bytes(1, 70 * 8192);
        let alone = recovery_of(&data, 8192, 7, &InlineWorkers);
        for width in [2, 3, 50] {
            assert_eq!(recovery_of(&data, 8192, 7, &RealWorkers::new(width)), alone);
        }
    }

    /// Pins the bytes of the recovery shards, which every reader of the format must compute.
    #[test]
    fn the_recovery_shards_are_these() {
        let data: Vec<u8> = (0..5 * 4096_usize).map(|n| (n * 7 + n / 256).to_le_bytes()[0]).collect();
        let recovery = recovery_of(&data, 4096, 2, &InlineWorkers);
        assert_eq!(
            blake3::hash(&recovery).to_hex().as_str(),
            "1c8211cac2d85be1269f8185ee0c157ba1d91c4bda35b6aae4c1309c5262bb12"
        );
    }

    #[test]
    fn what_the_library_can_do_without_slices_is_the_same() {
        let data = random_bytes(2, 10 * 4096);
        let recovery = recovery_of(&data, 4096, 3, &InlineWorkers);
        let whole = reed_solomon_simd::encode(10, 3, data.chunks(4096)).unwrap().concat();
        assert!(recovery == whole, "the width of slices must not show in the bytes");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_is_lost_up_to_the_limit_comes_back(
            data_count in 1_usize..80, recovery_count in 1_usize..20, seed in any::<u64>(), more in any::<bool>(),
        ) {
            let recovery_count = recovery_count.min(data_count);
            let good = random_bytes(seed, data_count * 4096);
            let mut recovery = recovery_of(&good, 4096, recovery_count, &InlineWorkers);
            // Loses as many shards as can be mended, in random places, or one more.
            let mut order: Vec<usize> = (0..data_count + recovery_count).collect();
            let keys = random_bytes(seed ^ 1, order.len() * 8);
            order.sort_by_key(|number| &keys[number * 8..][..8]);
            let lost = &order[..recovery_count + usize::from(more)];
            let (mut data, mut is_good) = (good.clone(), vec![true; data_count + recovery_count]);
            for number in lost {
                is_good[*number] = false;
                match number.checked_sub(data_count) {
                    None => data[number * 4096..][..4096].fill(0xEE),
                    Some(number) => recovery[number * 4096..][..4096].fill(0xEE),
                }
            }
            let (data_is_good, recovery_is_good) = is_good.split_at(data_count);
            let before = data.clone();
            let width = RealWorkers::new(1 + data_count % 3);
            let rebuilt = rebuild(&mut data, data_is_good, &recovery, recovery_is_good, 4096, &width);
            let any_data_lost = data_is_good.contains(&false);
            if more && any_data_lost {
                prop_assert!(rebuilt.is_err());
                prop_assert!(data == before, "nothing changes if not everything comes back");
            } else {
                prop_assert_eq!(rebuilt, Ok(()));
                prop_assert!(data == good);
            }
        }
    }
}
