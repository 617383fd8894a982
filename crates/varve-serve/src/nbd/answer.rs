//! Turns a request into the bytes of its answer. It knows the disk, and nothing of sockets.

use std::io;

use varve_block::{to_usize, with_causes};
use varve_nbd::{
    BASE_ALLOCATION, BLOCK_HOLE, BLOCK_ZERO, CommandFlags, ErrorCode, NbdCommand, NbdRequest,
    NegotiatedExport, ReplyChunk, StatusExtent, TransmissionFlags, encode_chunk, encode_data_chunk,
    encode_simple, encode_simple_data,
};

use super::disk::{DiskExtent, ServedDisk, WritableDisk};
use crate::collected::is_collected;

/// Data is read and sent in parts of this size. It bounds the memory of one request.
pub(super) const PIECE_BYTES: usize = 512 << 10;
/// Shorter reads are answered without looking for holes.
const HOLES_FROM_BYTES: u32 = 64 << 10;
/// Shorter holes are sent as zeros.
const HOLE_BYTES_MIN: u64 = 4 << 10;
/// The maximum number of extents in an answer about block status.
const EXTENT_COUNT_MAX: usize = 4096;

/// Why a connection cannot continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    /// The client does not take its answer.
    #[error("an answer could not be sent")]
    Send(#[source] io::Error),
    /// The answer has been sent in part, so the error cannot be reported to the client any more.
    #[error("a read failed after a part of it was sent")]
    Midway(#[source] io::Error),
}

/// The destination of answers. Some answers are sent in several parts that nothing may interrupt.
pub(super) trait AnswerSink {
    /// Sends the contents of the buffer, and empties it.
    fn send(&mut self, buffer: &mut Vec<u8>) -> io::Result<()>;
    /// Prevents others from sending until this answer is complete.
    fn hold(&mut self);
}

/// Answers the requests of one connection.
pub(super) struct NbdResponder<'a> {
    disk: &'a dyn ServedDisk,
    agreed: &'a NegotiatedExport<()>,
    allocation: Option<u32>,
}

impl<'a> NbdResponder<'a> {
    pub(super) fn new(disk: &'a dyn ServedDisk, agreed: &'a NegotiatedExport<()>) -> Self {
        let allocation = agreed.contexts.iter().find(|(_, name)| name == BASE_ALLOCATION).map(|(id, _)| *id);
        Self { disk, agreed, allocation }
    }

    /// Executes a request and appends the answer to `buffer`; a large answer is sent in parts.
    pub(super) fn answer(
        &self,
        request: &NbdRequest,
        buffer: &mut Vec<u8>,
        outlet: &mut dyn AnswerSink,
    ) -> Result<(), AnswerError> {
        let cookie = request.cookie;
        if let Err(code) = request.check(&self.agreed.info) {
            self.fail(cookie, code, String::new(), None, buffer);
            return Ok(());
        }
        match &request.command {
            NbdCommand::Read { offset, length } => {
                return self.read(request, *offset, *length, buffer, outlet);
            }
            NbdCommand::BlockStatus { offset, length } => {
                self.block_status(request, *offset, *length, buffer);
                return Ok(());
            }
            _ => {}
        }
        match self.change(request) {
            // A command that returns no data may get a simple reply, even if structured replies
            // were agreed on.
            Ok(()) => encode_simple(buffer, cookie, None),
            Err(error) => {
                let code = code_of(&error);
                tracing::warn!(%error, "a request to write failed");
                self.fail(cookie, code, error.to_string(), None, buffer);
            }
        }
        Ok(())
    }

    /// Executes a command that returns no data.
    fn change(&self, request: &NbdRequest) -> io::Result<()> {
        let writable =
            || self.disk.writable().ok_or_else(|| io::Error::from(io::ErrorKind::PermissionDenied));
        let done = |disk: &dyn WritableDisk| {
            if request.flags.has(CommandFlags::FUA) { disk.flush() } else { Ok(()) }
        };
        match &request.command {
            NbdCommand::Write { offset, data } => {
                let disk = writable()?;
                disk.write_at(*offset, data)?;
                done(disk)
            }
            NbdCommand::WriteZeroes { offset, length } => {
                let disk = writable()?;
                disk.write_zeros(*offset..*offset + u64::from(*length))?;
                done(disk)
            }
            NbdCommand::Trim { offset, length } => {
                let disk = writable()?;
                disk.trim(*offset..*offset + u64::from(*length))?;
                done(disk)
            }
            // A read-only disk is always durable.
            NbdCommand::Flush => self.disk.writable().map_or(Ok(()), WritableDisk::flush),
            NbdCommand::Cache { offset, length } => {
                let mut offset = *offset;
                let end = offset + u64::from(*length);
                let mut piece = Vec::new();
                while offset < end {
                    let length = (end - offset).min(PIECE_BYTES as u64);
                    piece.resize(to_usize(length), 0);
                    self.disk.read_at(offset, &mut piece)?;
                    offset += length;
                }
                Ok(())
            }
            NbdCommand::Read { .. }
            | NbdCommand::BlockStatus { .. }
            | NbdCommand::Disconnect
            | NbdCommand::Unknown { .. } => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn read(
        &self,
        request: &NbdRequest,
        offset: u64,
        length: u32,
        buffer: &mut Vec<u8>,
        outlet: &mut dyn AnswerSink,
    ) -> Result<(), AnswerError> {
        let cookie = request.cookie;
        let whole = to_usize(length);
        if self.agreed.structured
            && !request.flags.has(CommandFlags::DONT_FRAGMENT)
            && length >= HOLES_FROM_BYTES
        {
            return self.read_in_chunks(cookie, offset, u64::from(length), buffer, outlet);
        }
        let start = buffer.len();
        let first = whole.min(PIECE_BYTES);
        let place = if self.agreed.structured {
            if length == 0 {
                encode_chunk(buffer, cookie, true, &ReplyChunk::None);
                return Ok(());
            }
            encode_data_chunk(buffer, cookie, true, offset, whole, first)
        } else {
            encode_simple_data(buffer, cookie, first)
        };
        if let Err(error) = self.disk.read_at(offset, &mut buffer[place]) {
            buffer.truncate(start);
            self.read_failed(cookie, offset, &error, buffer);
            return Ok(());
        }
        if whole == first {
            return Ok(());
        }
        // Sends the rest without interruption.
        outlet.hold();
        let mut done = first;
        while done < whole {
            outlet.send(buffer).map_err(AnswerError::Send)?;
            let piece = (whole - done).min(PIECE_BYTES);
            buffer.resize(piece, 0);
            self.disk.read_at(offset + done as u64, buffer).map_err(AnswerError::Midway)?;
            done += piece;
        }
        outlet.send(buffer).map_err(AnswerError::Send)
    }

    fn read_in_chunks(
        &self,
        cookie: u64,
        offset: u64,
        length: u64,
        buffer: &mut Vec<u8>,
        outlet: &mut dyn AnswerSink,
    ) -> Result<(), AnswerError> {
        let end = offset + length;
        let mut place = offset;
        while place < end {
            let extents = match self.disk.map(place..end) {
                Ok(extents) if !extents.is_empty() => extents,
                Ok(_) => vec![DiskExtent { length: end - place, is_hole: false }],
                Err(error) => {
                    self.read_failed(cookie, place, &error, buffer);
                    return Ok(());
                }
            };
            for extent in merge_short_holes(extents) {
                let extent_end = (place + extent.length).min(end);
                if extent.is_hole {
                    let length = u32::try_from(extent_end - place).unwrap_or(u32::MAX);
                    encode_chunk(
                        buffer,
                        cookie,
                        extent_end == end,
                        &ReplyChunk::Hole { offset: place, length },
                    );
                    place = extent_end;
                    continue;
                }
                while place < extent_end {
                    if buffer.len() >= PIECE_BYTES {
                        outlet.send(buffer).map_err(AnswerError::Send)?;
                    }
                    let piece = to_usize(extent_end - place).min(PIECE_BYTES);
                    let start = buffer.len();
                    let next = place + piece as u64;
                    let into = encode_data_chunk(buffer, cookie, next == end, place, piece, piece);
                    if let Err(error) = self.disk.read_at(place, &mut buffer[into]) {
                        buffer.truncate(start);
                        self.read_failed(cookie, place, &error, buffer);
                        return Ok(());
                    }
                    place = next;
                }
            }
        }
        Ok(())
    }

    fn block_status(&self, request: &NbdRequest, offset: u64, length: u32, buffer: &mut Vec<u8>) {
        let cookie = request.cookie;
        let Some(context) = self.allocation else {
            let message = "no context of block status was agreed on";
            return self.fail(cookie, ErrorCode::INVALID, message.into(), None, buffer);
        };
        let on_disk = match self.disk.map(offset..offset + u64::from(length)) {
            Ok(extents) => extents,
            Err(error) => return self.read_failed(cookie, offset, &error, buffer),
        };
        let count = if request.flags.has(CommandFlags::ONE_EXTENT) { 1 } else { EXTENT_COUNT_MAX };
        let extent = |disk_extent: &DiskExtent| StatusExtent {
            length: u32::try_from(disk_extent.length).unwrap_or(u32::MAX),
            flags: if disk_extent.is_hole { BLOCK_HOLE | BLOCK_ZERO } else { 0 },
        };
        let mut extents: Vec<_> = on_disk.iter().take(count).map(extent).collect();
        if extents.is_empty() {
            extents.push(StatusExtent { length, flags: 0 });
        }
        encode_chunk(buffer, cookie, true, &ReplyChunk::Status { context, extents });
    }

    fn read_failed(&self, cookie: u64, offset: u64, error: &io::Error, buffer: &mut Vec<u8>) {
        let message = with_causes(error);
        // NBD has no code for a disk that is gone; the message says it.
        if !is_collected(error) {
            tracing::error!(offset, error = message, "a read failed");
        }
        self.fail(cookie, code_of(error), message, Some(offset), buffer);
    }

    fn fail(&self, cookie: u64, code: ErrorCode, message: String, offset: Option<u64>, buffer: &mut Vec<u8>) {
        if self.agreed.structured {
            encode_chunk(buffer, cookie, true, &ReplyChunk::Error { code, message, offset });
        } else {
            encode_simple(buffer, cookie, Some(code));
        }
    }
}

/// The transmission flags that a client gets for a disk.
pub(super) fn flags_of(disk: &dyn ServedDisk) -> TransmissionFlags {
    let always = TransmissionFlags::HAS_FLAGS
        | TransmissionFlags::FLUSH
        | TransmissionFlags::DONT_FRAGMENT
        | TransmissionFlags::MULTI_CONNECTION
        | TransmissionFlags::CACHE;
    match disk.writable() {
        None => always | TransmissionFlags::READ_ONLY,
        Some(_) => {
            always | TransmissionFlags::FUA | TransmissionFlags::TRIM | TransmissionFlags::WRITE_ZEROES
        }
    }
}

/// Turns holes that are too short for a message of their own into data.
fn merge_short_holes(extents: Vec<DiskExtent>) -> Vec<DiskExtent> {
    let mut merged = Vec::new();
    for extent in extents {
        let is_hole = extent.is_hole && extent.length >= HOLE_BYTES_MIN;
        super::disk::push(&mut merged, DiskExtent { is_hole, ..extent });
    }
    merged
}

fn code_of(error: &io::Error) -> ErrorCode {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorCode::NO_SPACE
        }
        io::ErrorKind::PermissionDenied => ErrorCode::NOT_PERMITTED,
        io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => ErrorCode::INVALID,
        io::ErrorKind::OutOfMemory => ErrorCode::NO_MEMORY,
        _ => ErrorCode::IO,
    }
}
