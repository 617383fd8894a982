//! The layers of a record of the last snapshot: for each session that read contents which the
//! record lists, the arenas that hold them.
//!
//! | bytes | field  | meaning                                                                         |
//! |------:|--------|---------------------------------------------------------------------------------|
//! |     4 | arenas | the number of arenas                                                            |
//! |    48 | mark   | of each arena, in ascending order                                               |
//! |     2 | layers | the number of layers                                                            |
//! |       | set    | of each layer, oldest first: a bit for each arena, low bits first, in whole bytes |
//!
//! Invariant: a layer stands only while all of its arenas stand, so the contents in it are there.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeSet;
use std::io;

use varve_log::ArenaId;
use varve_store::ArenaExtent;

/// More layers are merged, the oldest first.
const LAYERS_MAX: usize = 64;

/// The arenas of each layer; `None` for a layer that does not stand.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct RecordLayers(Vec<Option<BTreeSet<ArenaId>>>);

impl RecordLayers {
    /// Reads the layers at the start of `bytes`, and returns the rest. `stands` tells whether an
    /// arena is as it was marked.
    pub(super) fn decode<'a>(
        bytes: &'a [u8],
        stands: &mut dyn FnMut(&ArenaExtent) -> bool,
    ) -> Option<(Self, &'a [u8])> {
        let (count, mut rest) = bytes.split_first_chunk()?;
        let mut arenas: Vec<(ArenaId, bool)> = Vec::new();
        for _ in 0..u32::from_le_bytes(*count) {
            let (mark, after) = rest.split_first_chunk()?;
            let mark = ArenaExtent::from_bytes(*mark);
            if arenas.last().is_some_and(|(last, _)| *last >= mark.arena()) {
                return None;
            }
            arenas.push((mark.arena(), stands(&mark)));
            rest = after;
        }
        let (count, mut rest) = rest.split_first_chunk()?;
        let mut layers = Vec::new();
        for _ in 0..u16::from_le_bytes(*count) {
            let (set, after) = rest.split_at_checked(arenas.len().div_ceil(8))?;
            let bits = set.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
            let members =
                || arenas.iter().zip(bits.clone()).filter(|(_, is_in)| *is_in).map(|(arena, _)| arena);
            let does_stand = members().all(|(_, stands)| *stands);
            layers.push(does_stand.then(|| members().map(|(id, _)| *id).collect()));
            rest = after;
        }
        Some((Self(layers), rest))
    }

    /// Returns true if the contents of a layer are still there.
    pub(super) fn stands(&self, layer: u16) -> bool {
        self.0.get(usize::from(layer)).is_some_and(Option::is_some)
    }
}

/// The layers of the next record: those of the last one that are still needed, and this session's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextLayers {
    layers: Vec<BTreeSet<ArenaId>>,
    /// The number in the next record of each layer of the last one.
    numbers: Vec<Option<u16>>,
}

impl NextLayers {
    /// Keeps the layers of `last` that are in `used`, and adds one with `arenas`.
    pub(super) fn new(last: Option<&RecordLayers>, used: &BTreeSet<u16>, arenas: BTreeSet<ArenaId>) -> Self {
        let mut layers: Vec<BTreeSet<ArenaId>> = Vec::new();
        let mut numbers = Vec::new();
        let kept_count = last.map_or(0, |last| used.iter().filter(|layer| last.stands(**layer)).count());
        // With the new layer there are at most `LAYERS_MAX`.
        let mut merged_count = kept_count.saturating_add(1).saturating_sub(LAYERS_MAX);
        for (layer, set) in (0_u16..).zip(last.map_or(&[][..], |last| &last.0)) {
            let Some(set) = set.as_ref().filter(|_| used.contains(&layer)) else {
                numbers.push(None);
                continue;
            };
            match layers.last_mut() {
                Some(merged) if merged_count > 0 => {
                    merged.extend(set);
                    merged_count = merged_count.saturating_sub(1);
                }
                _ => layers.push(set.clone()),
            }
            numbers.push(u16::try_from(layers.len().saturating_sub(1)).ok());
        }
        layers.push(arenas);
        Self { layers, numbers }
    }

    /// Returns the number in the next record of a layer of the last one, or of this session's
    /// layer. `None` for a layer that is not kept.
    pub(super) fn number(&self, layer: Option<u16>) -> Option<u16> {
        match layer {
            Some(layer) => *self.numbers.get(usize::from(layer))?,
            None => u16::try_from(self.layers.len().saturating_sub(1)).ok(),
        }
    }

    /// Appends the layers to `bytes`, with a mark of each arena.
    pub(super) fn encode(
        &self,
        bytes: &mut Vec<u8>,
        mark: &mut dyn FnMut(ArenaId) -> io::Result<ArenaExtent>,
    ) -> io::Result<()> {
        let arenas: BTreeSet<ArenaId> = self.layers.iter().flatten().copied().collect();
        let too_many = || io::Error::other("too many arenas");
        bytes.extend_from_slice(&u32::try_from(arenas.len()).map_err(|_| too_many())?.to_le_bytes());
        for arena in &arenas {
            bytes.extend_from_slice(mark(*arena)?.as_bytes());
        }
        bytes.extend_from_slice(&u16::try_from(self.layers.len()).map_err(|_| too_many())?.to_le_bytes());
        let arenas: Vec<ArenaId> = arenas.into_iter().collect();
        for layer in &self.layers {
            for eight in arenas.chunks(8) {
                let bit = |(bit, arena): (u32, &ArenaId)| u8::from(layer.contains(arena)).wrapping_shl(bit);
                bytes.push((0..).zip(eight).map(bit).fold(0, |byte, bit| byte | bit));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(arenas: &[u64]) -> BTreeSet<ArenaId> {
        arenas.iter().copied().map(ArenaId).collect()
    }

    /// A mark that says the generation of its arena.
    fn mark(arena: ArenaId, generation: u8) -> ArenaExtent {
        let mut bytes = [generation; ArenaExtent::BYTES];
        bytes[..8].copy_from_slice(&arena.0.to_le_bytes());
        ArenaExtent::from_bytes(bytes)
    }

    fn encoded(next: &NextLayers, generations: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        next.encode(&mut bytes, &mut |arena| Ok(mark(arena, generations[arena.0 as usize]))).unwrap();
        bytes
    }

    fn decoded(bytes: &[u8], generations: &[u8]) -> RecordLayers {
        let mut stands =
            |marked: &ArenaExtent| *marked == mark(marked.arena(), generations[marked.arena().0 as usize]);
        let (layers, rest) = RecordLayers::decode(bytes, &mut stands).unwrap();
        assert!(rest.is_empty());
        layers
    }

    #[derive(Debug, Clone)]
    enum LayerStep {
        /// A session puts contents into these arenas, and no longer has files of these layers.
        Night {
            arenas: BTreeSet<u64>,
            dropped: BTreeSet<u16>,
        },
        Rewrite(u64),
    }

    const ARENAS: u64 = 20;

    fn any_step() -> impl Strategy<Value = LayerStep> {
        let arenas = proptest::collection::btree_set(0..ARENAS, 0..4);
        let dropped = proptest::collection::btree_set(0_u16..8, 0..3);
        prop_oneof![
            3 => (arenas, dropped).prop_map(|(arenas, dropped)| LayerStep::Night { arenas, dropped }),
            1 => (0..ARENAS).prop_map(LayerStep::Rewrite),
        ]
    }

    proptest! {
        /// The model knows for each file the generation of each arena that holds a part of it.
        #[test]
        fn a_file_is_known_only_while_its_arenas_stand(
            steps in proptest::collection::vec(any_step(), 1..120),
            keeps_all in any::<bool>(),
        ) {
            let mut generations = vec![0_u8; ARENAS as usize];
            let mut record: Option<Vec<u8>> = None;
            // The files of the record: the layer, and the arenas with their generations then.
            let mut files: Vec<(u16, Vec<(u64, u8)>)> = Vec::new();
            for step in steps {
                match step {
                    LayerStep::Rewrite(arena) => generations[arena as usize] = generations[arena as usize].wrapping_add(1),
                    LayerStep::Night { arenas, dropped } => {
                        let last = record.as_ref().map(|bytes| decoded(bytes, &generations));
                        for (layer, held) in &files {
                            let is_there = held.iter().all(|(arena, then)| generations[*arena as usize] == *then);
                            let stands = last.as_ref().unwrap().stands(*layer);
                            prop_assert!(!stands || is_there, "a file whose arena was rewritten");
                        }
                        let stays = |layer: &u16| {
                            (keeps_all || !dropped.contains(layer)) && last.as_ref().is_some_and(|last| last.stands(*layer))
                        };
                        files.retain(|(layer, _)| stays(layer));
                        let used = files.iter().map(|(layer, _)| *layer).collect();
                        let next = NextLayers::new(last.as_ref(), &used, arenas.iter().copied().map(ArenaId).collect());
                        prop_assert!(next.layers.len() <= LAYERS_MAX);
                        for (layer, _) in &mut files {
                            *layer = next.number(Some(*layer)).unwrap();
                        }
                        let held = arenas.iter().map(|arena| (*arena, generations[*arena as usize])).collect();
                        files.push((next.number(None).unwrap(), held));
                        record = Some(encoded(&next, &generations));
                    }
                }
            }
        }

        #[test]
        fn damaged_layers_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(RecordLayers::decode(&bytes, &mut |_| true));
        }
    }

    #[test]
    fn a_rewritten_arena_voids_the_layers_that_lie_in_it() {
        let first = NextLayers::new(None, &BTreeSet::new(), set(&[0, 9]));
        let last = decoded(&encoded(&first, &[0; 10]), &[0; 10]);
        let next = NextLayers::new(Some(&last), &[0].into(), set(&[3]));
        let bytes = encoded(&next, &[0; 10]);
        let stand = |rewritten: usize| {
            let mut generations = [0; 10];
            generations[rewritten] = 1;
            let layers = decoded(&bytes, &generations);
            [layers.stands(0), layers.stands(1), layers.stands(2)]
        };
        assert_eq!([stand(0), stand(9)], [[false, true, false]; 2]);
        assert_eq!(stand(3), [true, false, false]);
        assert_eq!(stand(5), [true, true, false], "no part of the record lies there");
        for length in 0..bytes.len() {
            assert!(RecordLayers::decode(&bytes[..length], &mut |_| true).is_none());
        }
    }
}
