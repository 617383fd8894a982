//! A guard in front of the NFS library: clients connect here, and only messages within bounds are
//! passed on.
//!
//! The protocol frames each message in records, each with its length in front. The library
//! allocates whatever length a client claims, works on any number of requests at once, and buffers
//! their answers until the client takes them. This guard therefore checks lengths before it passes
//! records on, and stops reading from a client that has too many answers outstanding.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use varve_block::to_usize;

use crate::client_slots::{ClientSlot, ClientSlots};
use crate::network::keep_alive;

/// The maximum number of clients. When another one connects, the client that has been idle longest
/// is dropped.
const CLIENTS_MAX: usize = 64;
/// The requests of a client that are executed concurrently.
const REQUESTS_MAX: usize = 32;
/// The longest message from a client. Readers send far less. A write must fit, so that the client
/// is told that it may not write.
const MESSAGE_BYTES_MAX: u64 = 2 << 20;
/// Time limit for a client to finish a message that it has begun. Otherwise it is dropped.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a client to take an answer. Otherwise it is dropped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes passed on at a time.
const PIECE_BYTES: usize = 64 << 10;
/// The bit in a record's length that marks the last record of its message.
const LAST: u32 = 1 << 31;

/// Passes requests on to the server at `inner`, and its answers back.
pub(super) async fn stand_before(inner: SocketAddr, listener: TcpListener) {
    let guard = move |client, address, place: ClientSlot| async move {
        match place.hold_while(pass(client, inner, &place)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(%address, %error, "an NFS client was disconnected"),
            None => tracing::debug!(%address, "an idle NFS client was disconnected to make room"),
        }
    };
    ClientSlots::serve_each(CLIENTS_MAX, listener, "NFS", guard).await;
}

async fn pass(client: TcpStream, inner: SocketAddr, place: &ClientSlot) -> io::Result<()> {
    let server = TcpStream::connect(inner).await?;
    keep_alive(&client)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
    let asking = pass_requests(from_client, to_server, Arc::clone(&requests), place);
    let answering = pass_answers(from_server, to_client, requests, place);
    // Both directions end when one does.
    tokio::select! { ended = asking => ended, ended = answering => ended }
}

/// The time left for a peer, over several waits.
struct TimeLeft(Duration);

impl TimeLeft {
    /// For the server behind the guard, where slow answers come from the archive.
    const ENDLESS: Self = Self(Duration::MAX);

    async fn wait<T>(&mut self, something: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let begun = Instant::now();
        let done = timeout(self.0, something).await??;
        self.0 = self.0.saturating_sub(begun.elapsed());
        Ok(done)
    }
}

/// One end of a connection, with the patience that is left for it.
struct TimedHalf<T> {
    half: T,
    patience: TimeLeft,
}

/// The mark in front of each record: its length, and the bit [`LAST`].
#[derive(Clone, Copy)]
struct RecordMark(u32);

impl RecordMark {
    fn length(self) -> u32 {
        self.0 & !LAST
    }

    /// Reports whether the record is the last one of its message.
    fn is_last(self) -> bool {
        self.0 & LAST != 0
    }

    /// Reads the next mark. Returns `None` at the end of the stream.
    async fn read(from: &mut TimedHalf<OwnedReadHalf>) -> io::Result<Option<Self>> {
        let mut mark = [0; 4];
        match from.patience.wait(from.half.read_exact(&mut mark)).await {
            Ok(_) => Ok(Some(Self(u32::from_be_bytes(mark)))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

async fn pass_record(
    from: &mut TimedHalf<OwnedReadHalf>,
    to: &mut TimedHalf<OwnedWriteHalf>,
    mark: RecordMark,
    piece: &mut [u8],
) -> io::Result<()> {
    to.patience.wait(to.half.write_all(&mark.0.to_be_bytes())).await?;
    let mut left = to_usize(mark.length());
    while left > 0 {
        let room = left.min(piece.len());
        let read = from.patience.wait(from.half.read(&mut piece[..room])).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.patience.wait(to.half.write_all(&piece[..read])).await?;
        left -= read;
    }
    Ok(())
}

async fn pass_requests(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    requests: Arc<Semaphore>,
    place: &ClientSlot,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut from = TimedHalf { half: from, patience: TimeLeft(MESSAGE_TIMEOUT) };
    let mut to = TimedHalf { half: to, patience: TimeLeft::ENDLESS };
    // An idle client may wait without limit.
    while from.half.peek(&mut [0]).await? > 0 {
        from.patience = TimeLeft(MESSAGE_TIMEOUT);
        let (mut message_bytes, mut is_last) = (0u64, false);
        while !is_last {
            let Some(mark) = RecordMark::read(&mut from).await? else { return Ok(()) };
            // Count the mark as well, so that a message of endless empty records hits the limit.
            message_bytes += u64::from(mark.length()) + 4;
            if message_bytes > MESSAGE_BYTES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a message that is longer than any request",
                ));
            }
            pass_record(&mut from, &mut to, mark, &mut piece).await?;
            is_last = mark.is_last();
        }
        place.note_activity();
        // `pass_answers` returns the permit when the answer has been sent.
        let Ok(asked) = requests.acquire().await else { return Ok(()) };
        asked.forget();
    }
    Ok(())
}

async fn pass_answers(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    requests: Arc<Semaphore>,
    place: &ClientSlot,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut from = TimedHalf { half: from, patience: TimeLeft::ENDLESS };
    let mut to = TimedHalf { half: to, patience: TimeLeft(ANSWER_TIMEOUT) };
    while let Some(mark) = RecordMark::read(&mut from).await? {
        place.note_activity();
        to.patience = TimeLeft(ANSWER_TIMEOUT);
        pass_record(&mut from, &mut to, mark, &mut piece).await?;
        place.note_activity();
        if mark.is_last() {
            requests.add_permits(1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// Starts a server behind a guard. It answers each message with the message itself.
    fn echo() -> (tokio::runtime::Runtime, SocketAddr) {
        let threads =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let address = threads.block_on(async {
            let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let outer = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (inside, address) = (inner.local_addr().unwrap(), outer.local_addr().unwrap());
            tokio::spawn(async move {
                while let Ok((socket, _)) = inner.accept().await {
                    tokio::spawn(async move {
                        let (mut from, mut to) = socket.into_split();
                        drop(tokio::io::copy(&mut from, &mut to).await);
                    });
                }
            });
            tokio::spawn(stand_before(inside, outer));
            address
        });
        (threads, address)
    }

    #[test]
    fn messages_go_through_in_order_and_more_than_are_worked_on_at_once() {
        let (_threads, address) = echo();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let message = |number: u32| {
            let first = [&4u32.to_be_bytes()[..], &number.to_be_bytes()].concat();
            [first, (LAST | 3).to_be_bytes().to_vec(), b"end".to_vec()].concat()
        };
        let all: Vec<u8> = (0..500).flat_map(message).collect();
        let mut writer = client.try_clone().unwrap();
        let sent = all.clone();
        #[expect(clippy::disallowed_methods, reason = "a client that writes while it reads")]
        let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
        let mut back = vec![0; all.len()];
        client.read_exact(&mut back).unwrap();
        writing.join().unwrap();
        assert!(back == all);
    }

    #[test]
    fn who_begins_a_message_and_does_not_end_it_keeps_nobody_away() {
        let (_threads, address) = echo();
        let silent: Vec<_> = (0..CLIENTS_MAX + 6)
            .map(|_| {
                let mut client = std::net::TcpStream::connect(address).unwrap();
                client.write_all(&[0x80, 0]).unwrap();
                client
            })
            .collect();
        let begun = Instant::now();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let message = [&(LAST | 3).to_be_bytes()[..], b"end"].concat();
        let mut back = vec![0; message.len()];
        for _ in 0..2 {
            client.write_all(&message).unwrap();
            client.read_exact(&mut back).unwrap();
            assert!(back == message);
        }
        assert!(begun.elapsed() < MESSAGE_TIMEOUT / 2, "{:?}", begun.elapsed());
        drop(silent);
    }

    #[test]
    fn the_time_for_a_message_is_that_for_all_of_it() {
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        threads.block_on(async {
            let mut patience = TimeLeft(Duration::from_millis(200));
            let pause = || async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(())
            };
            patience.wait(pause()).await.unwrap();
            let failed = loop {
                if let Err(error) = patience.wait(pause()).await {
                    break error;
                }
            };
            assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
            let mut endless = TimeLeft::ENDLESS;
            endless.wait(pause()).await.unwrap();
        });
    }

    #[test]
    fn who_claims_too_much_is_left_alone() {
        let (_threads, address) = echo();
        for claim in [LAST | 0x7fff_ffff, 3 << 20] {
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.write_all(&claim.to_be_bytes()).unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap_or_default();
            assert!(answer.is_empty());
        }
    }
}
