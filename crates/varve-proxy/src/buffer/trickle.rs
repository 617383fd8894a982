//! Sends buffered blocks to the target in small steps. After each step, the target may become
//! unreachable for a long time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockStore, PutError, with_causes};
use varve_world::Timestamp;

use super::WriteBuffer;
use super::cursor::{RouteProgress, TrickleCursor};
use super::segment::BufferSegment;
use super::target::BufferRoute;

/// The limits of one step.
const STEP_BLOCKS: usize = 256;
const STEP_BYTES: usize = 2 << 20;
/// After this many bytes, the target is synced, and the blocks are marked as delivered.
const SYNC_BYTES: u64 = 16 << 20;
/// If a reachable target fails to take a block this often, the block counts as refused.
const REFUSALS: u32 = 3;
/// The pause before a refused block is tried again.
const HELD_PAUSE: Duration = Duration::from_secs(600);

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrickleStep {
    Idle,
    /// Blocks were sent.
    Sent {
        bytes: u64,
    },
    /// The end of a segment was reached.
    Ended,
    /// The target accepts nothing; try again after a pause.
    Away {
        reason: String,
    },
}

impl WriteBuffer {
    /// Does one unit of background work for a route: sends some blocks, or finds that there is
    /// nothing to do or that the target is unreachable.
    pub fn step(&self, way: usize) -> TrickleStep {
        let number = way;
        let way = &self.ways[number];
        let mut trickle = way.trickle.lock();
        let RouteProgress { cursor, kept } = &mut *trickle;
        if cursor.is_none() {
            *cursor = self.next_segment(number, kept).map(|segment| self.begin(segment));
        }
        let Some(open) = cursor else { return TrickleStep::Idle };
        let step = match self.send(way, open) {
            Ok(Some(step)) => step,
            Ok(None) => {
                let segment = Arc::clone(&open.segment);
                let held = open.held;
                match self.end(way, open, kept) {
                    Ok(()) => {
                        *cursor = None;
                        if held > 0 {
                            tracing::error!(
                                blocks = held,
                                slot = segment.slot,
                                "blocks cannot be sent on: they stay in the write buffer, and are tried again"
                            );
                        }
                        drop(segment);
                        self.segments.write().clear_gone(&self.folder);
                        self.ways.iter().for_each(|way| *way.full_since.lock() = None);
                        self.room.1.notify_all();
                        TrickleStep::Ended
                    }
                    Err(reason) => TrickleStep::Away { reason },
                }
            }
            Err(reason) => TrickleStep::Away { reason },
        };
        *way.trouble.lock() = match &step {
            TrickleStep::Away { reason } => Some(reason.clone()),
            _ => {
                *way.full_since.lock() = None;
                None
            }
        };
        step
    }

    /// The next segment of a route to send. If there is none, and the blocks in the open segment
    /// have waited long enough, closes and returns that one.
    fn next_segment(&self, way: usize, kept: &BTreeMap<u64, Timestamp>) -> Option<Arc<BufferSegment>> {
        let now = self.world.clock.now();
        let due = |segment: &Arc<BufferSegment>| match kept.get(&segment.number) {
            // If the clock was set back, a segment must not wait for ever.
            Some(until) => now >= *until || until.since(now) > HELD_PAUSE,
            None => true,
        };
        let (found, is_open_due) = {
            let segments = self.segments.read();
            let closed = || segments.closed.iter().filter(|segment| segment.way == way);
            let fresh = closed().find(|segment| !kept.contains_key(&segment.number)).cloned();
            let is_open_due = segments.open[way].as_ref().is_some_and(|open| {
                let first = *open.first_put.lock();
                first.is_some_and(|first| now < first || now.since(first) >= self.settings.linger)
            });
            let again = || closed().find(|segment| due(segment)).cloned();
            (fresh.or_else(|| if is_open_due { None } else { again() }), is_open_due)
        };
        if found.is_some() || !is_open_due {
            return found;
        }
        // A failure sets the buffer's fault, which writers then get.
        self.sync_open(way).ok()?;
        let mut segments = self.segments.write();
        self.close_open(&mut segments, way).ok()?;
        segments.closed.iter().rfind(|segment| segment.way == way).cloned()
    }

    fn begin(&self, segment: Arc<BufferSegment>) -> TrickleCursor {
        let through = segment.through.load(Ordering::SeqCst);
        let mut cursor = TrickleCursor {
            segment,
            arenas: VecDeque::new(),
            names: VecDeque::new(),
            skip: through,
            done: 0,
            gapless: 0,
            held: 0,
            unsynced_bytes: 0,
        };
        match cursor.segment.store.arenas() {
            Ok(arenas) => cursor.arenas = arenas.into(),
            Err(error) => cursor.note_unreadable(&error),
        }
        cursor
    }

    /// Sends the next blocks. Returns `None` at the end of the segment.
    fn send(&self, way: &BufferRoute, cursor: &mut TrickleCursor) -> Result<Option<TrickleStep>, String> {
        cursor.fill();
        if cursor.names.is_empty() {
            return Ok(None);
        }
        if cursor.unsynced_bytes >= SYNC_BYTES {
            self.mark(way, cursor)?;
        }
        let names: Vec<BlockName> = cursor.names.iter().take(STEP_BLOCKS).copied().collect();
        let mut sent_bytes = 0;
        let mut read = Vec::with_capacity(names.len());
        for (name, found) in names.iter().zip(cursor.segment.store.get_batch(&names)) {
            if let Ok(block) = &found {
                sent_bytes += block.len();
            }
            read.push((*name, found));
            if sent_bytes >= STEP_BYTES {
                break;
            }
        }
        let blocks: Vec<Block<'_>> =
            read.iter().filter_map(|(name, found)| Some(block(name, found.as_ref().ok()?))).collect();
        let is_sent = blocks.len() == read.len() && way.target.put_batch(&blocks).is_ok();
        let mut bytes = 0;
        if is_sent {
            self.note_sent(cursor, read.len(), sent_bytes);
            return Ok(Some(TrickleStep::Sent { bytes: sent_bytes as u64 }));
        }
        // Send the blocks one by one, to find those that fail.
        for (name, found) in &read {
            let sent = match found {
                Ok(found) => match put_one(way, block(name, found)) {
                    Ok(()) => Ok(found.len()),
                    Err(NotSent::Away(reason)) => return Err(reason),
                    Err(NotSent::Refused(reason)) => Err(reason),
                },
                Err(error) => Err(with_causes(error)),
            };
            match sent {
                Ok(sent) => {
                    self.note_sent(cursor, 1, sent);
                    bytes += sent as u64;
                }
                Err(reason) => {
                    tracing::error!(block = %name, reason, "a block cannot be sent on");
                    cursor.names.pop_front();
                    cursor.hold(1);
                }
            }
        }
        Ok(Some(TrickleStep::Sent { bytes }))
    }

    fn note_sent(&self, cursor: &mut TrickleCursor, count: usize, bytes: usize) {
        cursor.names.drain(..count);
        cursor.note_done(count as u64);
        cursor.unsynced_bytes += bytes as u64;
        self.counters.sent_blocks.fetch_add(count as u64, Ordering::Relaxed);
        self.counters.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Syncs the target, and marks the sent blocks as delivered.
    fn mark(&self, way: &BufferRoute, cursor: &mut TrickleCursor) -> Result<(), String> {
        way.target.sync().map_err(|error| with_causes(&error))?;
        cursor.unsynced_bytes = 0;
        cursor.segment.through.fetch_max(cursor.gapless, Ordering::SeqCst);
        // If marking fails, the blocks are only sent again.
        let _alone = self.list.lock();
        let segments = self.segments.read();
        if let Err(error) = self.folder.note(&segments.entries()) {
            tracing::warn!(%error, "delivered blocks could not be marked");
        }
        Ok(())
    }

    /// Handles the end of a segment: removes it if all of it has been delivered.
    fn end(
        &self,
        way: &BufferRoute,
        cursor: &mut TrickleCursor,
        kept: &mut BTreeMap<u64, Timestamp>,
    ) -> Result<(), String> {
        let number = cursor.segment.number;
        if cursor.held > 0 {
            self.mark(way, cursor)?;
            let again = self.world.clock.now().plus(HELD_PAUSE);
            if kept.insert(number, again).is_none() {
                self.counters.held_blocks.fetch_add(cursor.held, Ordering::Relaxed);
            }
            return Ok(());
        }
        way.target.sync().map_err(|error| with_causes(&error))?;
        let mut segments = self.segments.write();
        let mut entries = segments.entries();
        entries.retain(|entry| entry.number != number);
        self.folder
            .note(&entries)
            .map_err(|error| format!("delivered blocks cannot be marked: {}", with_causes(&error)))?;
        kept.remove(&number);
        if let Some(place) = segments.closed.iter().position(|segment| segment.number == number) {
            let gone = segments.closed.remove(place);
            segments.gone.push(gone);
        }
        Ok(())
    }
}

/// Sends one block. Distinguishes a target that refuses it from one that is unreachable.
fn put_one(way: &BufferRoute, block: Block<'_>) -> Result<(), NotSent> {
    let mut refusals = 0;
    loop {
        let error = match way.target.put(block) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let reason = with_causes(&error);
        match error {
            PutError::Collision { .. } | PutError::TooLarge { .. } => {
                return Err(NotSent::Refused(reason));
            }
            // The target may become writable again.
            PutError::ReadOnly { .. } => return Err(NotSent::Away(reason)),
            PutError::Failed { .. } if way.target.sync().is_err() => return Err(NotSent::Away(reason)),
            // A target that can sync is reachable. It may have come back only now, so try again.
            PutError::Failed { .. } => refusals += 1,
        }
        if refusals == REFUSALS {
            return Err(NotSent::Refused(reason));
        }
    }
}

fn block<'a>(name: &BlockName, bytes: &'a Bytes) -> Block<'a> {
    Block { block_type: name.block_type, bytes }
}

enum NotSent {
    Away(String),
    Refused(String),
}
