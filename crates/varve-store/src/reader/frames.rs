//! Opened clumps: the maps of their frames, and the frames that were read last, behind caches of
//! bounded size.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use varve_block::{BlockName, BlockType, LogAddress, PlacedName, Score};
use varve_log::{ArenaId, ArenaMap, ClumpMap, FrameContent, FramePlace};
use varve_world::{FixedHasher, weighted_cache};

use crate::cache::CacheBytes;
use crate::vault::Namer;

/// An authenticated frame. Its blocks are named when they are first requested, and are returned
/// only under the name of their bytes; in a by-value store, under the name that their clump's table
/// has at their place.
pub(crate) struct OpenedFrame {
    blocks: Vec<(BlockType, Bytes, OnceLock<Score>)>,
    base: Option<Score>,
    memory_bytes: usize,
}

impl OpenedFrame {
    pub(crate) fn new(content: &FrameContent) -> Self {
        let blocks =
            content.blocks().map(|(block_type, bytes)| (block_type, bytes, OnceLock::new())).collect();
        Self { blocks, base: content.base(), memory_bytes: content.memory_bytes() }
    }

    /// Returns the score of the block that its only block is stored as a delta of.
    pub(crate) fn base(&self) -> Option<Score> {
        self.base
    }

    /// Returns the block of this name, if it is at this place.
    pub(crate) fn block(&self, name: &BlockName, place: FramePlace, namer: &Namer) -> Option<Bytes> {
        let blocks = match place.ordinal {
            Some(ordinal) => self.blocks.get(ordinal..)?.get(..1)?,
            None => self.blocks.as_slice(),
        };
        if PlacedName::of(&name.score).is_some() {
            // The clump's table has led to this place; every clump of a by-value store has a table.
            // In a store without encryption anybody can compute the codes, so the fingerprint is
            // checked as well. Otherwise somebody could make pointer blocks that form a cycle.
            let [(block_type, bytes, score)] = blocks else { return None };
            let is_it = *block_type == name.block_type && place.ordinal.is_some();
            let is_good = || {
                namer.is_encrypted()
                    || *score.get_or_init(|| namer.named_again(&name.score, bytes)) == name.score
            };
            return (is_it && is_good()).then(|| bytes.clone());
        }
        let is_it = |(block_type, bytes, score): &&(BlockType, Bytes, OnceLock<Score>)| {
            *block_type == name.block_type && *score.get_or_init(|| namer.hash(bytes)) == name.score
        };
        blocks.iter().find(is_it).map(|(_, bytes, _)| bytes.clone())
    }
}

/// Identifies a frame. After a crash another clump may be written at the place of one that a reader
/// still knows, so the code of the clump is part of the key.
type FrameKey = (LogAddress, usize, [u8; 16]);

#[derive(Clone)]
struct FrameWeight;

impl Weighter<FrameKey, Arc<OpenedFrame>> for FrameWeight {
    fn weight(&self, _: &FrameKey, frame: &Arc<OpenedFrame>) -> u64 {
        (frame.memory_bytes + frame.blocks.len() * size_of::<(BlockType, Bytes, OnceLock<Score>)>()) as u64
            + 200
    }
}

#[derive(Clone)]
struct MapWeight;

impl Weighter<LogAddress, Arc<ClumpMap>> for MapWeight {
    fn weight(&self, _: &LogAddress, map: &Arc<ClumpMap>) -> u64 {
        map.memory_bytes() as u64 + 100
    }
}

/// The maps and frames of clumps that were read.
pub(crate) struct FrameCache {
    maps: Cache<LogAddress, Arc<ClumpMap>, MapWeight, FixedHasher>,
    frames: Cache<FrameKey, Arc<OpenedFrame>, FrameWeight, FixedHasher>,
}

impl FrameCache {
    pub(crate) fn new() -> Self {
        let bytes = CacheBytes::default();
        Self {
            maps: weighted_cache(bytes.clump_maps, 1000, MapWeight),
            frames: weighted_cache(bytes.frames, 64 << 10, FrameWeight),
        }
    }

    /// Bounds the memory for frames and maps.
    pub(crate) fn bound(&self, bytes: CacheBytes) {
        self.frames.set_capacity(bytes.frames);
        self.maps.set_capacity(bytes.clump_maps);
    }

    /// Returns the map of the clump at `address`; calls `read` if it is not cached.
    pub(crate) fn map<E>(
        &self,
        address: LogAddress,
        read: impl FnOnce() -> Result<ClumpMap, E>,
    ) -> Result<Arc<ClumpMap>, E> {
        self.maps.get_or_insert_with(&address, || read().map(Arc::new))
    }

    /// Returns a frame if it is cached.
    pub(crate) fn known(
        &self,
        address: LogAddress,
        clump: &ClumpMap,
        frame: usize,
    ) -> Option<Arc<OpenedFrame>> {
        self.frames.get(&(address, frame, clump.header().code))
    }

    /// Returns a frame; calls `read` if it is not cached and no other thread is reading it.
    pub(crate) fn frame<E>(
        &self,
        address: LogAddress,
        clump: &ClumpMap,
        frame: usize,
        read: impl FnOnce() -> Result<FrameContent, E>,
    ) -> Result<Arc<OpenedFrame>, E> {
        let key = (address, frame, clump.header().code);
        self.frames.get_or_insert_with(&key, || Ok(Arc::new(OpenedFrame::new(&read()?))))
    }

    /// Drops a clump.
    pub(crate) fn remove(&self, address: LogAddress) {
        if let Some((_, map)) = self.maps.remove(&address) {
            for frame in 0..map.frame_count() {
                self.frames.remove(&(address, frame, map.header().code));
            }
        }
    }

    /// Drops everything that was read of an arena that was written anew.
    pub(crate) fn forget(&self, map: ArenaMap, arena: ArenaId) {
        self.maps.retain(|address, _| map.locate(*address).0 != arena);
        self.frames.retain(|(address, ..), _| map.locate(*address).0 != arena);
    }
}
