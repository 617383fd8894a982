//! The NBD server on a socket, with clients that request too much, stall, or disconnect.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use varve_nbd::{
    BASE_ALLOCATION, ClientNegotiation, CommandFlags, ConnectedExport, ErrorCode, ExportRequest, NbdCommand,
    NbdReply, ReplyChunk,
};
use varve_serve::nbd::{
    DiskExtent, Endpoint, FindDiskError, FoundDisk, ListedDisk, NbdServer, NbdSettings, OneDisk, Overlay,
    ServedDisk, ServedDisks,
};

const SIZE: usize = 8 << 20;
/// The range of an unreadable block.
const DAMAGED: Range<usize> = 3 << 20..(3 << 20) + 4096;
/// The range of a hole.
const HOLE: Range<usize> = 6 << 20..7 << 20;

struct Sample(Vec<u8>);

impl Sample {
    fn new() -> Arc<Self> {
        let byte = |place: usize| if HOLE.contains(&place) { 0 } else { u8::try_from(place % 253).unwrap() };
        Arc::new(Self((0..SIZE).map(byte).collect()))
    }
}

impl ServedDisk for Sample {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        let end = start + into.len();
        if start < DAMAGED.end && end > DAMAGED.start {
            return Err(io::Error::other("a block is damaged"));
        }
        into.copy_from_slice(&self.0[start..end]);
        Ok(())
    }

    fn map(&self, range: Range<u64>) -> io::Result<Vec<DiskExtent>> {
        let bounds = [0, HOLE.start as u64, HOLE.end as u64, SIZE as u64];
        let parts = bounds.windows(2).enumerate().map(|(number, part)| {
            let length = range.end.min(part[1]).saturating_sub(range.start.max(part[0]));
            DiskExtent { length, is_hole: number == 1 }
        });
        Ok(parts.filter(|stretch| stretch.length > 0).collect())
    }
}

struct Sandbox {
    folder: TempDir,
    server: NbdServer,
}

fn serve(disk: Arc<dyn ServedDisk>, settings: NbdSettings) -> Sandbox {
    let folder = tempfile::tempdir().unwrap();
    let disks = OneDisk::new(vec!["disk".into()], "a disk".into(), disk);
    let endpoint = Endpoint::Unix(folder.path().join("nbd"));
    let server = NbdServer::start(&endpoint, Arc::new(disks), settings).unwrap();
    Sandbox { folder, server }
}

impl Sandbox {
    fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd")
    }

    fn connect(&self) -> UnixStream {
        let socket = UnixStream::connect(self.socket()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    }

    fn client(&self) -> Client {
        let mut socket = self.connect();
        let wanted = ExportRequest { export: "disk".into(), contexts: vec![BASE_ALLOCATION.into()] };
        let mut negotiation = ClientNegotiation::new(wanted);
        let mut bytes = [0; 4096];
        let connected = loop {
            let count = socket.read(&mut bytes).unwrap();
            assert!(count > 0, "the server has gone");
            negotiation.receive(&bytes[..count]);
            let connected = negotiation.step().unwrap();
            socket.write_all(&negotiation.take_unsent()).unwrap();
            if let Some(connected) = connected {
                break connected;
            }
        };
        Client { socket, connected }
    }
}

struct Client {
    socket: UnixStream,
    connected: ConnectedExport,
}

impl Client {
    /// Sends all requests at once, and collects the replies in the order of the requests.
    fn ask(&mut self, commands: Vec<NbdCommand>) -> Vec<Vec<ReplyChunk>> {
        let replies = &mut self.connected.replies;
        let mut sent = Vec::new();
        let cookies: Vec<u64> =
            commands.into_iter().map(|command| replies.ask(command, CommandFlags::NONE, &mut sent)).collect();
        self.socket.write_all(&sent).unwrap();
        let mut said = vec![Vec::new(); cookies.len()];
        let mut bytes = vec![0; 1 << 20];
        while replies.unanswered_count() > 0 {
            let count = self.socket.read(&mut bytes).unwrap();
            assert!(count > 0, "the server has gone");
            replies.receive(&bytes[..count]);
            while let Some(NbdReply { cookie, chunk, .. }) = replies.next_reply().unwrap() {
                said[cookies.iter().position(|known| *known == cookie).unwrap()].push(chunk);
            }
        }
        said
    }

    fn read(&mut self, range: Range<usize>) -> Vec<u8> {
        let said = self.ask(vec![read(&range)]).remove(0);
        put_together(&range, &said)
    }
}

fn read(range: &Range<usize>) -> NbdCommand {
    NbdCommand::Read { offset: range.start as u64, length: u32::try_from(range.len()).unwrap() }
}

fn put_together(range: &Range<usize>, chunks: &[ReplyChunk]) -> Vec<u8> {
    let mut bytes = vec![0xee; range.len()];
    let at = |offset: u64| usize::try_from(offset).unwrap() - range.start;
    for chunk in chunks {
        match chunk {
            ReplyChunk::Data { offset, bytes: data } => {
                bytes[at(*offset)..][..data.len()].copy_from_slice(data)
            }
            ReplyChunk::Hole { offset, length } => bytes[at(*offset)..][..*length as usize].fill(0),
            other => panic!("{other:?}"),
        }
    }
    bytes
}

#[test]
fn silent_clients_give_way_to_new_ones() {
    let settings = || NbdSettings { connections_max: 2, ..NbdSettings::default() };
    let read = || vec![NbdCommand::Read { offset: 0, length: 512 }];
    let is_closed = |mut socket: UnixStream| {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.read_to_end(&mut Vec::new()).is_ok()
    };
    let sandbox = serve(Sample::new(), settings());
    // One says nothing at all, and one nothing after the negotiation.
    let (mute, quiet) = (sandbox.connect(), sandbox.client());
    let (mut first, mut second) = (sandbox.client(), sandbox.client());
    assert_eq!((first.ask(read()).len(), second.ask(read()).len()), (1, 1));
    assert!(is_closed(mute) && is_closed(quiet.socket));
    // Clients that have asked something stay: they may be guests that sleep.
    assert!(is_closed(sandbox.connect()), "a third one is refused");
    assert_eq!((first.ask(read()).len(), second.ask(read()).len()), (1, 1));
    // After a long silence they give way, the one with the longest first.
    let sandbox = serve(Sample::new(), NbdSettings { silence_max: Duration::ZERO, ..settings() });
    let (mut first, mut second) = (sandbox.client(), sandbox.client());
    assert_eq!((first.ask(read()).len(), second.ask(read()).len()), (1, 1));
    assert_eq!(first.ask(read()).len(), 1);
    assert_eq!(sandbox.client().ask(read()).len(), 1);
    assert!(is_closed(second.socket));
    assert_eq!(first.ask(read()).len(), 1);
}

#[test]
fn many_requests_at_once_are_each_answered_right() {
    let sample = Sample::new();
    let sandbox = serve(sample.clone(), NbdSettings::default());
    let mut client = sandbox.client();
    let ranges: Vec<Range<usize>> = (0..300)
        .map(|number: usize| {
            let start = number * 7919 * 13 % (DAMAGED.start - 300_000);
            start..start + [1, 4096, 70_000, 300_000][number % 4]
        })
        .collect();
    let said = client.ask(ranges.iter().map(read).collect());
    for (range, chunks) in ranges.iter().zip(&said) {
        assert!(put_together(range, chunks) == sample.0[range.clone()], "{range:?}");
    }
}

#[test]
fn holes_are_told_as_holes() {
    let sample = Sample::new();
    let sandbox = serve(sample.clone(), NbdSettings::default());
    let mut client = sandbox.client();
    let range = HOLE.start - 100_000..HOLE.end + 100_000;
    let said = client.ask(vec![read(&range)]).remove(0);
    assert!(said.contains(&ReplyChunk::Hole { offset: HOLE.start as u64, length: 1 << 20 }));
    assert!(put_together(&range, &said) == sample.0[range]);
    let status = NbdCommand::BlockStatus { offset: 0, length: u32::try_from(SIZE).unwrap() };
    let ReplyChunk::Status { extents, .. } = client.ask(vec![status]).remove(0).remove(0) else {
        panic!("no status")
    };
    let extents: Vec<_> = extents.iter().map(|extent| (extent.length >> 20, extent.flags)).collect();
    assert_eq!(extents, [(6, 0), (1, 3), (1, 0)]);
}

#[test]
fn damage_is_an_error_of_that_read_alone() {
    let sample = Sample::new();
    let sandbox = serve(sample.clone(), NbdSettings::default());
    let mut client = sandbox.client();
    let (good, bad) = (0..4096, DAMAGED.start..DAMAGED.start + 100);
    let large = DAMAGED.start - (2 << 20)..DAMAGED.end + (1 << 20);
    let said = client.ask(vec![read(&good), read(&bad), read(&large), read(&good)]);
    let code = |chunks: &[ReplyChunk]| match chunks.last() {
        Some(ReplyChunk::Error { code, message, .. }) => Some((*code, message.clone())),
        _ => None,
    };
    let failed = Some((ErrorCode::IO, "a block is damaged".to_owned()));
    assert_eq!(
        [code(&said[0]), code(&said[1]), code(&said[2]), code(&said[3])],
        [None, failed.clone(), failed, None]
    );
    assert!(put_together(&good, &said[3]) == sample.0[good]);
}

#[test]
fn writes_are_seen_by_every_client_and_refused_where_nothing_is_written() {
    let overlay = Overlay::throw_away(Sample::new(), tempfile::tempfile().unwrap()).unwrap();
    let sandbox = serve(Arc::new(overlay), NbdSettings::default());
    let (mut one, mut other) = (sandbox.client(), sandbox.client());
    let data = vec![0x55; 3 << 20];
    assert_eq!(one.ask(vec![NbdCommand::Write { offset: 12_345, data: data.clone() }]), [[ReplyChunk::None]]);
    assert!(other.read(12_345..12_345 + (3 << 20)) == data);

    let read_only = serve(Sample::new(), NbdSettings::default());
    let mut client = read_only.client();
    let said = client.ask(vec![NbdCommand::Write { offset: 0, data: vec![1; 512] }, read(&(0..10))]);
    assert!(
        matches!(&said[0][..], [ReplyChunk::Error { code: ErrorCode::NOT_PERMITTED, .. }]),
        "{:?}",
        said[0]
    );
    assert_eq!(put_together(&(0..10), &said[1]), Sample::new().0[..10]);
}

/// Returns true if the server ends the connection, false if the test's own time-out does.
fn is_ended(socket: &mut UnixStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn nobody_is_waited_for_for_ever() {
    let short = Duration::from_millis(300);
    let settings = NbdSettings {
        handshake_timeout: short,
        partial_timeout: short,
        send_timeout: short,
        ..NbdSettings::default()
    };
    let sandbox = serve(Sample::new(), settings);
    assert!(is_ended(&mut sandbox.connect()), "who says nothing");

    let mut slow = sandbox.client();
    // Only the head of a write request is sent.
    let mut begun = Vec::new();
    let write = NbdCommand::Write { offset: 0, data: vec![1; 100] };
    slow.connected.replies.ask(write, CommandFlags::NONE, &mut begun);
    slow.socket.write_all(&begun[..50]).unwrap();
    assert!(is_ended(&mut slow.socket), "who stops in the middle of a request");

    let mut deaf = sandbox.client();
    let mut sent = Vec::new();
    for _ in 0..64 {
        deaf.connected.replies.ask(read(&(0..2 << 20)), CommandFlags::NONE, &mut sent);
    }
    deaf.socket.write_all(&sent).unwrap();
    // The client reads nothing until the server has given up. Afterwards it can read only the bytes
    // sent so far.
    let mut idle = sandbox.client();
    sandbox.server.drain();
    assert!(is_ended(&mut deaf.socket), "who takes no answers");
    assert!(is_ended(&mut idle.socket), "who is there when the server ends");
}

#[test]
fn a_server_that_ends_answers_what_has_come() {
    let sample = Sample::new();
    let sandbox = serve(sample.clone(), NbdSettings::default());
    let mut client = sandbox.client();
    let mut sent = Vec::new();
    let count = 50;
    for _ in 0..count {
        client.connected.replies.ask(read(&(0..100_000)), CommandFlags::NONE, &mut sent);
    }
    client.socket.write_all(&sent).unwrap();
    let mut bytes = vec![0; 1 << 20];
    // Once the first reply has arrived, the server has received the requests.
    let first = client.socket.read(&mut bytes).unwrap();
    client.connected.replies.receive(&bytes[..first]);
    let socket = sandbox.socket();
    #[allow(clippy::disallowed_methods, reason = "the server ends while the client reads")]
    let ending = std::thread::spawn(move || {
        sandbox.server.drain();
        sandbox.folder
    });
    loop {
        while client.connected.replies.next_reply().unwrap().is_some() {}
        match client.socket.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(more) => client.connected.replies.receive(&bytes[..more]),
        }
    }
    assert_eq!(client.connected.replies.unanswered_count(), 0);
    let _folder = ending.join().unwrap();
    assert!(!socket.exists());
}

/// Disks whose listing fails.
struct Broken;

impl ServedDisks for Broken {
    fn list(&self) -> Vec<ListedDisk> {
        Vec::new()
    }

    fn find(&self, _: &str) -> Result<FoundDisk, FindDiskError> {
        Err(FindDiskError::Failed("the store has gone".into()))
    }
}

#[test]
fn a_client_is_told_why_there_is_no_disk() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::Unix(folder.path().join("nbd"));
    let _server = NbdServer::start(&endpoint, Arc::new(Broken), NbdSettings::default()).unwrap();
    let mut socket = UnixStream::connect(folder.path().join("nbd")).unwrap();
    let mut negotiation =
        ClientNegotiation::new(ExportRequest { export: "disk".into(), contexts: Vec::new() });
    let mut bytes = [0; 4096];
    let refused = loop {
        let count = socket.read(&mut bytes).unwrap();
        assert!(count > 0, "the server has gone");
        negotiation.receive(&bytes[..count]);
        match negotiation.step() {
            Ok(_) => socket.write_all(&negotiation.take_unsent()).unwrap(),
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("the snapshots cannot be read"), "{refused}");
}

#[test]
fn a_socket_that_somebody_was_killed_at_is_taken_over_and_one_in_use_is_not() {
    let sandbox = serve(Sample::new(), NbdSettings::default());
    let disks = || Arc::new(OneDisk::new(vec!["disk".into()], String::new(), Sample::new()));
    let endpoint = Endpoint::Unix(sandbox.socket());
    assert!(NbdServer::start(&endpoint, disks(), NbdSettings::default()).is_err(), "somebody listens there");
    let dead = sandbox.folder.path().join("dead");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    drop(NbdServer::start(&Endpoint::Unix(dead), disks(), NbdSettings::default()).unwrap());
}
