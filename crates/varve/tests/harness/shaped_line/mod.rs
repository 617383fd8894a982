//! A slow line to a server on this machine: a relay with a bit rate and a delay.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The bytes that are carried at a time.
const PIECE_BYTES: usize = 8 << 10;
/// The pieces that are on their way in one direction of a connection.
const PIECES_MAX: usize = 128;

/// The rate and the delay of a line, the same in both directions.
#[derive(Debug, Clone, Copy)]
pub struct LineShape {
    pub bits_per_second: f64,
    pub round_trip: Duration,
}

/// A port that leads to a server over the line. All connections share its rate. A new connection
/// costs one round trip more, for its handshake.
pub struct ShapedLine {
    pub port: u16,
    server_port: Arc<AtomicU16>,
    received_bytes: Arc<AtomicU64>,
}

impl ShapedLine {
    pub fn to(server_port: u16, shape: LineShape) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (server_port, received_bytes) = (Arc::new(AtomicU16::new(server_port)), Arc::default());
        let line = Self { port, server_port, received_bytes };
        let (to, received) = (Arc::clone(&line.server_port), Arc::clone(&line.received_bytes));
        let directions = [(); 2].map(|()| Arc::new(Mutex::new(Instant::now())));
        // The thread ends with the process. Nothing else listens on this port.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to.load(Ordering::Relaxed))) else {
                    continue;
                };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                }
                let opened = Instant::now() + shape.round_trip;
                let copy = |stream: &TcpStream| stream.try_clone().unwrap();
                carry(copy(&client), copy(&server), shape, &directions[0], opened, Arc::default());
                carry(server, client, shape, &directions[1], opened, Arc::clone(&received));
            }
        });
        line
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, server_port: u16) {
        self.server_port.store(server_port, Ordering::Relaxed);
    }

    /// The bytes that servers have sent.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }
}

/// Carries the bytes of one direction of a connection. `is_free` is the time at which the line has
/// sent all earlier bytes of this direction.
fn carry(
    mut from: TcpStream,
    to: TcpStream,
    shape: LineShape,
    is_free: &Arc<Mutex<Instant>>,
    opened: Instant,
    bytes: Arc<AtomicU64>,
) {
    let (sent, arriving) = sync_channel(PIECES_MAX);
    std::thread::spawn(move || deliver(&arriving, to));
    let is_free = Arc::clone(is_free);
    std::thread::spawn(move || {
        let mut piece = [0; PIECE_BYTES];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            bytes.fetch_add(count as u64, Ordering::Relaxed);
            let takes = Duration::from_secs_f64(count as f64 * 8.0 / shape.bits_per_second);
            let leaves = {
                let mut is_free = is_free.lock();
                *is_free = (*is_free).max(opened).max(Instant::now()) + takes;
                *is_free
            };
            if sent.send((leaves + shape.round_trip / 2, piece[..count].to_vec())).is_err() {
                break;
            }
        }
        drop(from.shutdown(Shutdown::Read));
    });
}

fn deliver(arriving: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    while let Ok((at, piece)) = arriving.recv() {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}
