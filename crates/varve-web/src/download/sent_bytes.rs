//! Bytes on their way from a thread that reads to a client.

use std::io::{self, Write};
use std::ops::Range;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use varve_block::{to_usize, with_causes};
use varve_content::{Files, Node};

/// Bytes that are sent at a time.
const PIECE_BYTES: usize = 128 << 10;
/// Pieces that wait for the client. The thread waits when there are more.
const PIECES_MAX: usize = 4;
/// Bytes of a hole that are sent at a time.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// The sending end. Each write waits for the client.
pub(crate) struct SentBytes {
    pieces: Sender<io::Result<Bytes>>,
    piece: BytesMut,
}

impl SentBytes {
    /// The sending end, and the body that a client receives.
    pub(crate) fn channel() -> (Self, Body) {
        let (pieces, received) = channel(PIECES_MAX);
        let next = |mut received: Receiver<io::Result<Bytes>>| async move {
            received.recv().await.map(|piece| (piece, received))
        };
        let body = Body::from_stream(stream::unfold(received, next));
        (Self { pieces, piece: BytesMut::with_capacity(PIECE_BYTES) }, body)
    }

    /// Reports whether the client is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.pieces.is_closed()
    }

    /// Sends the last bytes.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.send_piece().map_err(|error| error.to_string())
    }

    /// Ends the connection, so that the client notices that bytes are missing.
    pub(crate) fn fail(&self, error: &str) {
        let _ = self.pieces.blocking_send(Err(io::Error::other(error.to_owned())));
    }

    fn send_piece(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = self.piece.split().freeze();
        self.piece.reserve(PIECE_BYTES);
        self.pieces.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Sends a part of a file. Its holes become zeros.
    pub(crate) fn send_range(
        &mut self,
        files: &dyn Files,
        node: &Node,
        range: Range<u64>,
    ) -> Result<(), String> {
        let mut place = range.start;
        let read = files.read(node, range.clone(), &mut |offset, bytes| {
            self.send_zeros(offset.saturating_sub(place))?;
            place = offset.saturating_add(bytes.len() as u64);
            self.write_all(bytes)
        });
        read.map_err(|error| with_causes(&error))?;
        self.send_zeros(range.end.saturating_sub(place)).map_err(|error| error.to_string())
    }

    /// Sends this many zeros.
    pub(crate) fn send_zeros(&mut self, count: u64) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            let length = left.min(ZEROS.len() as u64);
            self.write_all(&ZEROS[..to_usize(length)])?;
            left -= length;
        }
        Ok(())
    }
}

impl Write for SentBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES.saturating_sub(self.piece.len());
        let length = room.min(bytes.len());
        self.piece.extend_from_slice(&bytes[..length]);
        if self.piece.len() >= PIECE_BYTES {
            self.send_piece()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
