//! Turns requests into the bytes of their answers. It knows the blocks, and nothing of sockets.

use bytes::Bytes;
use varve_block::{Block, BlockName, GetError, PutError, Score, with_causes};
use varve_venti::{
    COLLISION_TEXT, LUMP_TOO_LARGE_TEXT, READ_ONLY_TEXT, SCORE_BYTES, VentiReply, Version, WireType, missing,
    read_too_small,
};

use super::answers::ReplyQueue;
use super::client_access::ClientAccess;
use super::state::VentiServerState;

/// The answer to a read of a block that an administrator has set aside.
const SET_ASIDE_TEXT: &str = "the administrator has set this block aside";

/// A pending read.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingRead {
    pub(super) tag: u8,
    pub(super) score: [u8; SCORE_BYTES],
    pub(super) wire_type: WireType,
    pub(super) count: u32,
}

/// A pending write.
#[derive(Debug)]
pub(super) struct PendingWrite {
    pub(super) tag: u8,
    pub(super) wire_type: WireType,
    pub(super) data: Bytes,
}

/// Reads blocks, and appends the answers.
pub(super) fn read(state: &VentiServerState, version: Version, reads: &[PendingRead], into: &mut ReplyQueue) {
    let empty = state.blocks.empty_score();
    let mut answers: Vec<Option<VentiReply>> = vec![None; reads.len()];
    // A pointer block can be stored as a pointer to data or to directories: try one after the
    // other.
    for attempt in 0..2 {
        let mut names = Vec::with_capacity(reads.len());
        let mut asked = Vec::with_capacity(reads.len());
        for (number, read) in reads.iter().enumerate() {
            if answers[number].is_some() {
                continue;
            }
            let Some(block_type) = read.wire_type.block_types().nth(attempt) else { continue };
            let Ok(score) = Score::try_from(read.score.as_slice()) else { continue };
            // The empty block is never stored. Its score stands for zeros, and so does the score of
            // zeros that Plan 9's servers use.
            if score == empty || read.score == [0; SCORE_BYTES] {
                answers[number] = Some(VentiReply::Read(Bytes::new()));
                continue;
            }
            let name = BlockName { score, block_type };
            if state.refuses(&name) {
                state.counters.errors.add(1);
                answers[number] = Some(VentiReply::Error(SET_ASIDE_TEXT.into()));
                continue;
            }
            names.push(name);
            asked.push(number);
        }
        if names.is_empty() {
            break;
        }
        for ((number, name), found) in asked.into_iter().zip(&names).zip(state.blocks.get_batch(&names)) {
            let found = found.map(|block| state.recent.keep(*name, &block));
            answers[number] = answer_read(state, &reads[number], found);
        }
    }
    for (read, answer) in reads.iter().zip(answers) {
        let reply = answer.unwrap_or_else(|| {
            state.counters.misses.add(1);
            VentiReply::Error(missing(&read.score, read.wire_type))
        });
        into.put(version, read.tag, reply);
    }
}

/// Builds the answer to a read; `None` if the block does not exist.
fn answer_read(
    state: &VentiServerState,
    read: &PendingRead,
    found: Result<Bytes, GetError>,
) -> Option<VentiReply> {
    let refused = |text: String| {
        state.counters.errors.add(1);
        Some(VentiReply::Error(text))
    };
    match found {
        Ok(block) if u32::try_from(block.len()).map_or(true, |size| size > read.count) => {
            refused(read_too_small(read.count, block.len()))
        }
        Ok(block) => {
            state.count_read(block.len());
            Some(VentiReply::Read(block))
        }
        Err(GetError::NotFound { .. }) => None,
        Err(error) => {
            let text = with_causes(&error);
            tracing::error!(error = text, "a block could not be read");
            refused(text)
        }
    }
}

/// Writes blocks, and appends the answers. Blocks that are too long or of an unknown type are
/// refused.
pub(super) fn write(
    state: &VentiServerState,
    version: Version,
    access: &ClientAccess,
    block_bytes_max: usize,
    writes: &[PendingWrite],
    into: &mut ReplyQueue,
) {
    let refusal = |write: &PendingWrite| {
        if matches!(access, ClientAccess::ReadOnly) {
            return Some(READ_ONLY_TEXT.to_owned());
        }
        if let Some(fault) = state.fault() {
            return Some(format!(
                "{READ_ONLY_TEXT}: a write failed, and the server does not try again: {fault}"
            ));
        }
        if write.data.len() > block_bytes_max {
            return Some(LUMP_TOO_LARGE_TEXT.to_owned());
        }
        write.wire_type.is_unknown().then(|| format!("unknown block type {}", write.wire_type.to_byte()))
    };
    let mut answers: Vec<VentiReply> = Vec::with_capacity(writes.len());
    let mut blocks = Vec::with_capacity(writes.len());
    for write in writes {
        match (refusal(write), write.wire_type.block_types().next()) {
            (None, Some(block_type)) => {
                blocks.push(Block { block_type, bytes: &write.data });
                answers.push(VentiReply::Sync);
            }
            (refusal, _) => {
                state.counters.errors.add(1);
                answers.push(VentiReply::Error(refusal.unwrap_or_default()));
            }
        }
    }
    let mut stored = put(state, access, &blocks).into_iter();
    for (write, answer) in writes.iter().zip(answers) {
        let reply = match answer {
            VentiReply::Sync => {
                stored.next().unwrap_or_else(|| VentiReply::Error("the block was not stored".into()))
            }
            refused => refused,
        };
        into.put(version, write.tag, reply);
    }
}

/// Stores blocks, in one batch if possible.
fn put(state: &VentiServerState, access: &ClientAccess, blocks: &[Block<'_>]) -> Vec<VentiReply> {
    let store = |blocks: &[Block<'_>]| match access {
        ClientAccess::ReadWrite(Some(session)) => session.put(blocks),
        _ => state.blocks.put_batch(blocks),
    };
    // The empty block stands for zeros, and is never stored.
    let stored: Vec<Block<'_>> = blocks.iter().filter(|block| !block.bytes.is_empty()).copied().collect();
    let mut together = match stored.as_slice() {
        [] | [_] => None,
        many => store(many).ok().map(Vec::into_iter),
    };
    let empty = state.blocks.empty_score();
    let answers = blocks.iter().map(|block| {
        if block.bytes.is_empty() {
            return written(state, block, empty);
        }
        if let Some(score) = together.as_mut().and_then(Iterator::next) {
            return written(state, block, score);
        }
        // After a failed batch, store the blocks one by one, so that each gets its own error.
        match store(std::slice::from_ref(block)).map(|scores| scores.first().copied()) {
            Ok(Some(score)) => written(state, block, score),
            Ok(None) => VentiReply::Error("the block was not stored".into()),
            Err(error) => refuse_write(state, &error),
        }
    });
    answers.collect()
}

fn written(state: &VentiServerState, block: &Block<'_>, score: Score) -> VentiReply {
    state.unsynced.acknowledge();
    state.counters.writes.add(1);
    state.counters.written_bytes.add(block.bytes.len() as u64);
    match score.as_bytes().try_into() {
        Ok(score) => VentiReply::Write(score),
        Err(_) => VentiReply::Error("the store's scores are not SHA-1".into()),
    }
}

fn refuse_write(state: &VentiServerState, error: &PutError) -> VentiReply {
    state.counters.errors.add(1);
    let text = with_causes(error);
    match error {
        PutError::Collision { name } => {
            state.counters.collisions.add(1);
            tracing::error!(block = %name, "a client wrote a block with the score of a stored block, but with other bytes: refused");
            VentiReply::Error(format!("{COLLISION_TEXT}: {text}"))
        }
        PutError::TooLarge { .. } => VentiReply::Error(LUMP_TOO_LARGE_TEXT.into()),
        PutError::ReadOnly { reason } => VentiReply::Error(format!("{READ_ONLY_TEXT}: {reason}")),
        PutError::Failed { .. } => {
            state.turn_read_only(text.clone());
            VentiReply::Error(text)
        }
    }
}

/// Makes everything durable, and appends the answer.
pub(super) fn sync(
    state: &VentiServerState,
    version: Version,
    is_read_only: bool,
    tag: u8,
    into: &mut ReplyQueue,
) {
    let reply = match state.fault() {
        // Blocks that were acknowledged before the fault may be lost. The client must know that.
        Some(fault) if !is_read_only => VentiReply::Error(format!(
            "{READ_ONLY_TEXT}: a write failed, so not everything is durable: {fault}"
        )),
        _ if is_read_only => VentiReply::Sync,
        _ => state.sync().map_or_else(|error| VentiReply::Error(with_causes(&error)), |()| VentiReply::Sync),
    };
    match &reply {
        VentiReply::Sync => state.counters.syncs.add(1),
        _ => state.counters.errors.add(1),
    }
    into.put(version, tag, reply);
}
