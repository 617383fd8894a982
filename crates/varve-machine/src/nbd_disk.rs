//! A disk behind an NBD server, read over a few connections with many requests in flight on each.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use varve_block::to_usize;
use varve_content::image::{ContentRun, ImageSink, ReadRequest, ReadRequestError, RunContent, ServedImage};
use varve_nbd::{
    BASE_ALLOCATION, BLOCK_ZERO, ClientNegotiation, CommandFlags, ConnectedExport, ExportRequest, NbdCommand,
    NbdReply, Replies, ReplyChunk, StatusExtent,
};

/// The bytes of one read request. A piece of an image is read with sixteen requests in flight.
const REQUEST_BYTES: u32 = 64 << 10;
/// The bytes of one write request.
const WRITE_BYTES: usize = 1 << 20;
/// The bytes of one block-status request.
const STATUS_BYTES: u32 = 1 << 30;
/// The flag for changed data in a context made of a dirty bitmap.
const DIRTY: u32 = 1;

/// A disk whose state at one moment a server exports.
pub struct NbdDisk {
    connections: Mutex<NbdConnections>,
    returned: Condvar,
    size: u64,
    request_bytes: u32,
    alignment: u32,
    has_changes: bool,
    statuses: Mutex<StatusRuns>,
}

struct NbdConnections {
    idle: Vec<NbdConnection>,
    open_count: usize,
}

struct NbdConnection {
    socket: UnixStream,
    replies: Replies,
    allocation: Option<u32>,
    changes: Option<u32>,
}

/// The last block status: runs in order, the first of which begins at `start`.
#[derive(Default)]
struct StatusRuns {
    start: u64,
    runs: Vec<ContentRun>,
}

/// The export to connect to, and the dirty bitmap to query.
#[derive(Debug, Clone, Default)]
pub struct NbdDiskOptions {
    pub export: String,
    /// The context with the changes, such as `qemu:dirty-bitmap:b0`. A server without it is
    /// refused.
    pub changes: Option<String>,
    pub connection_count: usize,
    /// The time limit for an answer.
    pub patience: Duration,
}

impl NbdDisk {
    /// Connects to a server on a Unix socket.
    ///
    /// # Errors
    /// [`io::Error`] with the server's mistake.
    pub fn connect(socket: &Path, options: &NbdDiskOptions) -> io::Result<Self> {
        let (first, info) = NbdConnection::open(socket, options)?;
        let mut idle = vec![first];
        while idle.len() < options.connection_count {
            let (more, again) = NbdConnection::open(socket, options)?;
            if again.size != info.size {
                return Err(io::Error::other("the size of the disk differs between connections"));
            }
            idle.push(more);
        }
        let alignment = info.block_sizes.minimum.max(1);
        if !alignment.is_power_of_two() || alignment > REQUEST_BYTES {
            let said = format!("the server has an impossible minimum block size of {alignment} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        let request_bytes = REQUEST_BYTES.min(info.block_sizes.maximum) / alignment * alignment;
        Ok(Self {
            connections: Mutex::new(NbdConnections { open_count: idle.len(), idle }),
            returned: Condvar::new(),
            size: info.size,
            request_bytes: request_bytes.max(alignment),
            alignment,
            has_changes: options.changes.is_some(),
            statuses: Mutex::default(),
        })
    }

    /// Calls `work` with a connection for its exclusive use. A connection that has failed is not
    /// used again.
    fn with_connection<T>(&self, work: impl FnOnce(&mut NbdConnection) -> io::Result<T>) -> io::Result<T> {
        let mut connection = {
            let mut connections = self.connections.lock();
            loop {
                if let Some(idle) = connections.idle.pop() {
                    break idle;
                }
                if connections.open_count == 0 {
                    return Err(io::Error::new(io::ErrorKind::NotConnected, "every connection has failed"));
                }
                self.returned.wait(&mut connections);
            }
        };
        let done = work(&mut connection);
        let mut connections = self.connections.lock();
        if done.is_ok() {
            connections.idle.push(connection);
        } else {
            connections.open_count -= 1;
        }
        drop(connections);
        self.returned.notify_all();
        done
    }
}

impl ServedImage for NbdDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
        let mut statuses = self.statuses.lock();
        if offset < statuses.start || statuses.runs.last().is_none_or(|run| run.end <= offset) {
            let start = offset / u64::from(self.alignment) * u64::from(self.alignment);
            let has_changes = self.has_changes;
            let length = u32::try_from(self.size - start).map_or(STATUS_BYTES, |left| left.min(STATUS_BYTES));
            let runs = self.with_connection(|connection| connection.status(start, length, has_changes))?;
            *statuses = StatusRuns { start, runs };
        }
        let place = statuses.runs.partition_point(|run| run.end <= offset);
        let run = statuses
            .runs
            .get(place)
            .ok_or_else(|| wrong("the server reports no status for a part of the disk"))?;
        // The last run may extend past the end.
        Ok(ContentRun { end: run.end.min(self.size), ..*run })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let alignment = u64::from(self.alignment);
        let end = offset + into.len() as u64;
        if end > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (start, stop) = (offset / alignment * alignment, end.next_multiple_of(alignment).min(self.size));
        if (start, stop) == (offset, end) {
            return self.ask_for(&mut [ReadRequest { offset, into }]).map_err(|error| error.source);
        }
        let mut wider = vec![0; to_usize(stop - start)];
        self.ask_for(&mut [ReadRequest { offset: start, into: &mut wider }]).map_err(|error| error.source)?;
        let skipped = to_usize(offset - start);
        into.copy_from_slice(&wider[skipped..skipped + into.len()]);
        Ok(())
    }

    fn read_all(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        let alignment = u64::from(self.alignment);
        let is_whole = |place: &ReadRequest<'_>| {
            let end = place.offset + place.into.len() as u64;
            let ends_well = end.is_multiple_of(alignment) || end == self.size;
            place.offset.is_multiple_of(alignment) && ends_well && end <= self.size
        };
        if places.iter().all(is_whole) {
            return self.ask_for(places);
        }
        places.iter_mut().try_for_each(|ReadRequest { offset, into }| {
            self.read_at(*offset, into).map_err(|source| ReadRequestError { offset: *offset, source })
        })
    }
}

impl NbdDisk {
    /// Fills places that are aligned to the server's block size, over one connection.
    fn ask_for(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        let mut failed_at = places.first().map_or(0, |place| place.offset);
        let read =
            self.with_connection(|connection| connection.read(places, self.request_bytes, &mut failed_at));
        read.map_err(|source| ReadRequestError { offset: failed_at, source })
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// The server's error.
    pub fn flush(&self) -> io::Result<()> {
        self.with_connection(NbdConnection::flush)
    }
}

impl ImageSink for NbdDisk {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with_connection(|connection| connection.write(offset, bytes))
    }
}

impl NbdConnection {
    fn open(socket: &Path, options: &NbdDiskOptions) -> io::Result<(Self, varve_nbd::ExportInfo)> {
        let mut socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(options.patience))?;
        socket.set_write_timeout(Some(options.patience))?;
        let contexts = [BASE_ALLOCATION.to_owned()].into_iter().chain(options.changes.clone()).collect();
        let wanted = ExportRequest { export: options.export.clone(), contexts };
        let mut negotiation = ClientNegotiation::new(wanted);
        let connected = loop {
            let step = negotiation.step().map_err(io::Error::other)?;
            let unsent = negotiation.take_unsent();
            socket.write_all(&unsent).map_err(late)?;
            match step {
                Some(connected) => break connected,
                None => negotiation.receive(&some(&mut socket)?),
            }
        };
        let ConnectedExport { info, contexts, replies } = connected;
        let context = |name: &str| contexts.iter().find(|(_, own)| own == name).map(|(id, _)| *id);
        let changes = options.changes.as_deref().map(|name| {
            let said = || wrong(&format!("the server does not report the changes: it has no {name}"));
            context(name).ok_or_else(said)
        });
        let allocation = context(BASE_ALLOCATION);
        Ok((Self { socket, replies, allocation, changes: changes.transpose()? }, info))
    }

    /// Fills places in ascending order, with a bounded number of requests in flight. `failed_at` is
    /// the offset of the failed one, if any.
    fn read(
        &mut self,
        places: &mut [ReadRequest<'_>],
        request_bytes: u32,
        failed_at: &mut u64,
    ) -> io::Result<()> {
        const UNDER_WAY_MAX: usize = 32;
        let mut unasked = SplitRequests::of(places, request_bytes);
        // The offsets of the requests in flight.
        let mut asked = BTreeMap::new();
        let mut requests = Vec::new();
        loop {
            while self.replies.unanswered_count() < UNDER_WAY_MAX
                && let Some((offset, length)) = unasked.next()
            {
                let command = NbdCommand::Read { offset, length };
                let cookie = self.replies.ask(command, CommandFlags::default(), &mut requests);
                asked.insert(cookie, offset);
            }
            if let Some(offset) = asked.values().next() {
                *failed_at = *offset;
            }
            self.socket.write_all(&requests).map_err(late)?;
            requests.clear();
            if self.replies.unanswered_count() == 0 {
                return Ok(());
            }
            self.answer(&mut |NbdReply { cookie, done, chunk }| {
                let offset = if done { asked.remove(&cookie) } else { asked.get(&cookie).copied() };
                let taken = match chunk {
                    ReplyChunk::Data { offset, bytes } => {
                        target(places, offset, bytes.len()).map(|into| into.copy_from_slice(&bytes))
                    }
                    ReplyChunk::Hole { offset, length } => {
                        target(places, offset, length as usize).map(|into| into.fill(0))
                    }
                    other => refusal(&other),
                };
                if let (Err(_), Some(offset)) = (&taken, offset) {
                    *failed_at = offset;
                }
                taken
            })?;
        }
    }

    /// Writes all of `bytes`. There is one request at a time, because a server need not read while
    /// this side does not read its answers.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut place = offset;
        for data in bytes.chunks(WRITE_BYTES) {
            self.ask(NbdCommand::Write { offset: place, data: data.to_vec() })?;
            place += data.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ask(NbdCommand::Flush)
    }

    /// Sends a request and waits until it is done.
    fn ask(&mut self, command: NbdCommand) -> io::Result<()> {
        let mut request = Vec::new();
        self.replies.ask(command, CommandFlags::default(), &mut request);
        self.socket.write_all(&request).map_err(late)?;
        while self.replies.unanswered_count() > 0 {
            self.answer(&mut |reply| refusal(&reply.chunk))?;
        }
        Ok(())
    }

    /// Returns at least one run from `start` on.
    fn status(&mut self, start: u64, length: u32, has_changes: bool) -> io::Result<Vec<ContentRun>> {
        if self.allocation.is_none() && !has_changes {
            return Ok(vec![ContentRun { content: RunContent::Data, end: start + u64::from(length) }]);
        }
        let mut requests = Vec::new();
        self.replies.ask(
            NbdCommand::BlockStatus { offset: start, length },
            CommandFlags::default(),
            &mut requests,
        );
        self.socket.write_all(&requests).map_err(late)?;
        let (mut allocation, mut changes) = (Vec::new(), Vec::new());
        while self.replies.unanswered_count() > 0 {
            let (allocation_id, changes_id) = (self.allocation, self.changes);
            self.answer(&mut |NbdReply { chunk, .. }| {
                refusal(&chunk)?;
                if let ReplyChunk::Status { context, extents } = chunk {
                    if Some(context) == allocation_id {
                        allocation = extents;
                    } else if Some(context) == changes_id {
                        changes = extents;
                    }
                }
                Ok(())
            })?;
        }
        if has_changes && changes.is_empty() {
            return Err(wrong("the server does not report the changes"));
        }
        // Parts without a status must be read.
        let everything = |flags| vec![StatusExtent { length, flags }];
        let allocation = if allocation.is_empty() { everything(0) } else { allocation };
        let changes = if changes.is_empty() { everything(DIRTY) } else { changes };
        Ok(joined(start, &allocation, &changes))
    }

    /// Receives bytes, and passes on each reply that is complete.
    fn answer(&mut self, take: &mut dyn FnMut(NbdReply) -> io::Result<()>) -> io::Result<()> {
        let bytes = some(&mut self.socket)?;
        self.replies.receive(&bytes);
        while let Some(reply) = self.replies.next_reply().map_err(io::Error::other)? {
            take(reply)?;
        }
        Ok(())
    }
}

/// Returns the error of an error reply.
fn refusal(chunk: &ReplyChunk) -> io::Result<()> {
    let ReplyChunk::Error { code, message, offset } = chunk else { return Ok(()) };
    let place = offset.map_or_else(String::new, |offset| format!(" at {offset}"));
    Err(io::Error::other(format!("the server answers with {code}{place} {message}")))
}

/// The requests that are necessary to read places, in order.
struct SplitRequests {
    /// The part of each place that was not requested yet, in reverse order.
    left: Vec<Range<u64>>,
    request_bytes: u32,
}

impl SplitRequests {
    fn of(places: &[ReadRequest<'_>], request_bytes: u32) -> Self {
        let range = |place: &ReadRequest<'_>| place.offset..place.offset + place.into.len() as u64;
        Self { left: places.iter().rev().map(range).collect(), request_bytes }
    }
}

impl Iterator for SplitRequests {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<Self::Item> {
        while self.left.pop_if(|range| range.is_empty()).is_some() {}
        let range = self.left.last_mut()?;
        let offset = range.start;
        let length =
            u32::try_from(range.end - offset).map_or(self.request_bytes, |left| left.min(self.request_bytes));
        range.start += u64::from(length);
        Some((offset, length))
    }
}

/// Combines the statuses of two contexts for the bytes that both cover.
fn joined(start: u64, allocation: &[StatusExtent], changes: &[StatusExtent]) -> Vec<ContentRun> {
    let mut runs: Vec<ContentRun> = Vec::new();
    let (mut first, mut second) = (allocation.iter().copied(), changes.iter().copied());
    let (mut one, mut other) = (first.next(), second.next());
    let mut end = start;
    while let (Some(mut stored), Some(mut changed)) = (one, other) {
        let length = stored.length.min(changed.length);
        let statuses = match (changed.flags & DIRTY != 0, stored.flags & BLOCK_ZERO != 0) {
            (false, _) => RunContent::Unchanged,
            (true, true) => RunContent::Zeros,
            (true, false) => RunContent::Data,
        };
        end += u64::from(length);
        match runs.last_mut() {
            Some(run) if run.content == statuses => run.end = end,
            _ => runs.push(ContentRun { content: statuses, end }),
        }
        stored.length -= length;
        changed.length -= length;
        one = if stored.length > 0 { Some(stored) } else { first.next() };
        other = if changed.length > 0 { Some(changed) } else { second.next() };
    }
    runs
}

/// Returns the part of a place that belongs to the bytes at an offset of the disk.
fn target<'a>(places: &'a mut [ReadRequest<'_>], offset: u64, length: usize) -> io::Result<&'a mut [u8]> {
    let number = places.partition_point(|place| place.offset <= offset).checked_sub(1);
    let place = number.and_then(|number| places.get_mut(number));
    let part = place.and_then(|place| {
        let from = to_usize(offset.checked_sub(place.offset)?);
        place.into.get_mut(from..from.checked_add(length)?)
    });
    part.ok_or_else(|| wrong("the server sends bytes that were not requested"))
}

/// Reads at least one byte.
fn some(socket: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 256 << 10];
    let count = loop {
        match socket.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read.map_err(late)?,
        }
    };
    if count == 0 {
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server has closed the connection"));
    }
    bytes.truncate(count);
    Ok(bytes)
}

fn late(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return io::Error::new(io::ErrorKind::TimedOut, "the server does not answer");
    }
    error
}

fn wrong(said: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(of: &[(u32, u32)]) -> Vec<StatusExtent> {
        of.iter().map(|(length, flags)| StatusExtent { length: *length, flags: *flags }).collect()
    }

    #[test]
    fn what_two_contexts_say_is_one_story() {
        let allocation = extents(&[(100, 3), (50, 0), (150, 3)]);
        let changes = extents(&[(20, 0), (100, 1), (80, 0), (10, 1)]);
        let runs = joined(1000, &allocation, &changes);
        let expected = [
            (RunContent::Unchanged, 1020),
            (RunContent::Zeros, 1100),
            (RunContent::Data, 1120),
            (RunContent::Unchanged, 1200),
            (RunContent::Zeros, 1210),
        ];
        assert_eq!(runs.iter().map(|run| (run.content, run.end)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_server_cannot_write_elsewhere() {
        let mut bytes = [[0; 10], [0; 10]];
        let [first, second] = &mut bytes;
        let mut places =
            [ReadRequest { offset: 100, into: first }, ReadRequest { offset: 200, into: second }];
        for (offset, value) in [(105, 1), (200, 2)] {
            target(&mut places, offset, 5).unwrap().fill(value);
        }
        for (offset, length) in [(99, 1), (105, 6), (u64::MAX, 1), (100, usize::MAX), (111, 1), (199, 2)] {
            assert!(target(&mut places, offset, length).is_err(), "{offset}");
        }
        assert_eq!(bytes, [[0, 0, 0, 0, 0, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 0, 0, 0, 0, 0]]);
        assert!(target(&mut [], 0, 0).is_err());
    }

    #[test]
    fn places_are_asked_for_in_pieces() {
        let (mut long, mut none, mut short) = ([0; 25], [0; 0], [0; 3]);
        let places = [
            ReadRequest { offset: 100, into: &mut long },
            ReadRequest { offset: 130, into: &mut none },
            ReadRequest { offset: 200, into: &mut short },
        ];
        let requests: Vec<_> = SplitRequests::of(&places, 10).collect();
        assert_eq!(requests, [(100, 10), (110, 10), (120, 5), (200, 3)]);
    }
}
