//! The Venti server on a socket: recorded sessions of real programs, and clients that request too
//! much, stall, or disconnect.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use varve_block::{Block, BlockName, BlockStore, BlockType, from_hex};
use varve_serve::venti::{ListenAccess, VentiServer, VentiSettings};
use varve_venti::{MessageDecoder, VentiMessage, VentiReply, VentiRequest, Version, VersionLine, WireType};

use crate::venti_clients::{Blocks, Client, connect, read, score, serve};

/// The messages of one direction of a recording, and its first line.
fn recorded(connection: &Value, direction: &str) -> (Vec<u8>, Vec<(u8, u8, Bytes)>) {
    let events = connection["events"].as_array().unwrap().iter();
    let hex: String =
        events.filter(|event| event["dir"] == direction).filter_map(|event| event["hex"].as_str()).collect();
    let bytes = from_hex(&hex).unwrap();
    let (line, _) = VersionLine::default().receive(&bytes).unwrap();
    let version = Version::from_name(connection["version"].as_str().unwrap().as_bytes()).unwrap();
    let mut messages = MessageDecoder::new(version, 1 << 20, BytesMut::from(&bytes[line..]));
    let mut found = Vec::new();
    while let Some(VentiMessage::Whole { kind, tag, body }) = messages.next_message().unwrap() {
        found.push((kind, tag, body));
    }
    (bytes[..line].to_vec(), found)
}

/// The intended differences between our replies and the recorded ones.
fn is_ours(kind: u8, request: &VentiRequest, reply: &(u8, Bytes)) -> bool {
    match request {
        // Our server replies to a ping.
        VentiRequest::Ping => reply.0 == 3,
        // Our server can read the block without bytes.
        VentiRequest::Read { score: asked, .. } => {
            *asked == score(&[]).as_bytes() && reply.0 == 13 && reply.1.is_empty()
        }
        VentiRequest::Hello(_) => kind == 4 && reply.0 == 5,
        _ => false,
    }
}

/// Replays one connection, request by request. Returns the number of replies equal to the recorded
/// ones.
fn replay(name: &str, connection: &Value) -> usize {
    let (line, requests) = recorded(connection, "c2s");
    let (_, mut replies) = recorded(connection, "s2c");
    let version = Version::from_name(connection["version"].as_str().unwrap().as_bytes()).unwrap();
    let blocks = Arc::new(Blocks::default());
    let mut same = 0;
    let server = serve(&blocks, ListenAccess::ReadWrite, VentiSettings::default());
    let mut socket = connect(&server);
    socket.write_all(&line).unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        received.extend_from_slice(&byte);
    }
    assert_eq!(received, Version::line());
    let mut messages = MessageDecoder::new(version, 1 << 20, BytesMut::new());
    for (kind, tag, body) in requests {
        let request = VentiRequest::decode(kind, body).unwrap();
        let expected = replies.iter().position(|reply| reply.1 == tag);
        let expected = expected.map(|place| replies.remove(place));
        // A block that is read but was not written before is put first. A score of all zeros names
        // no block.
        if let (VentiRequest::Read { score: asked, wire_type, .. }, Some((13, _, block))) =
            (&request, &expected)
            && score(block).as_bytes() == asked
        {
            let block_type = wire_type.block_types().next().unwrap();
            blocks.put(Block { block_type, bytes: block }).unwrap();
        }
        let mut bytes = Vec::new();
        request.encode(version, tag, &mut bytes).unwrap();
        socket.write_all(&bytes).unwrap();
        let Some((expected_kind, _, expected)) = expected else {
            assert_eq!(request, VentiRequest::Goodbye, "{name}");
            assert_eq!(socket.read(&mut [0]).unwrap(), 0, "it hangs up without a word");
            return same;
        };
        let reply = loop {
            if let Some(message) = messages.next_message().unwrap() {
                let VentiMessage::Whole { kind, tag: answered, body } = message else {
                    panic!("{message:?}")
                };
                assert_eq!(answered, tag, "{name}");
                break (kind, body);
            }
            let mut bytes = [0; 4096];
            let count = socket.read(&mut bytes).unwrap();
            assert!(count > 0, "{name}: the server has hung up");
            messages.inbox().extend_from_slice(&bytes[..count]);
        };
        let nobody = matches!(&request, VentiRequest::Read { score: [0, ..], .. });
        if is_ours(kind, &request, &reply) || nobody {
            continue;
        }
        assert_eq!(reply, (expected_kind, expected), "{name}: {request:?}");
        same += 1;
    }
    same
}

#[test]
fn recorded_sessions_of_real_clients_are_answered_as_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/venti/transcripts");
    let mut same = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "refused" {
            continue;
        }
        let recording: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let connections = recording["connections"].as_array().unwrap();
        same += connections.iter().map(|connection| replay(&name, connection)).sum::<usize>();
    }
    assert!(same > 200, "{same} answers");
}

#[test]
fn who_was_refused_then_is_refused_now() {
    let server = serve(&Arc::default(), ListenAccess::ReadWrite, VentiSettings::default());
    let hello = from_hex("00140405000230320009616e6f6e796d6f7573000000").unwrap();
    for bytes in [&b"venti-03-scripted\n"[..], b"hello\n", &[b"venti-02-x\n", hello.as_slice()].concat()] {
        let mut socket = connect(&server);
        socket.write_all(bytes).unwrap();
        let mut received = Vec::new();
        // The connection may be reset, because the server has not read everything.
        drop(socket.read_to_end(&mut received));
        assert!(Version::line().starts_with(&received), "{received:?}");
    }
    Client::new(&server).write(b"others are served").unwrap();
}

#[test]
fn every_tag_can_be_in_flight_and_none_waits_for_another() {
    let blocks = Arc::new(Blocks::default());
    let server = serve(&blocks, ListenAccess::ReadWrite, VentiSettings::default());
    let mut client = Client::new(&server);
    let bytes: Vec<Vec<u8>> = (0..256).map(|number| format!("block {number}").into_bytes()).collect();
    for bytes in &bytes {
        client.connection.ask_write(WireType::DATA, bytes).unwrap();
    }
    let mut tags: Vec<u8> = bytes.iter().map(|_| client.next().0).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..=255).collect::<Vec<u8>>());
    // The first read waits for its disk. All others are answered meanwhile.
    let slow = BlockName { score: score(&bytes[0]), block_type: BlockType::DATA };
    *blocks.held.lock() = Some(slow);
    for bytes in &bytes {
        client.connection.ask(&read(bytes)).unwrap();
    }
    // A second read waits, too: the same thread has taken it.
    for _ in 0..254 {
        let (tag, reply) = client.next();
        assert_eq!(reply, Ok(VentiReply::Read(bytes[usize::from(tag)].clone().into())));
        assert!(tag > 1, "it could not be read yet");
    }
    *blocks.held.lock() = None;
    blocks.let_go.notify_all();
    for _ in 0..2 {
        let (tag, reply) = client.next();
        assert_eq!(reply, Ok(VentiReply::Read(bytes[usize::from(tag)].clone().into())));
    }
}

#[test]
fn a_half_closed_connection_gets_its_answers() {
    let server = serve(&Arc::default(), ListenAccess::ReadWrite, VentiSettings::default());
    let mut client = Client::new(&server);
    for number in 0..100_u8 {
        client.connection.ask_write(WireType::DATA, &[number; 8192]).unwrap();
    }
    client.connection.ask(&VentiRequest::Sync).unwrap();
    client.socket.write_all(&client.connection.take_unsent()).unwrap();
    client.socket.shutdown(Shutdown::Write).unwrap();
    for _ in 0..101 {
        client.next().1.unwrap();
    }
    assert_eq!(client.socket.read(&mut [0]).unwrap(), 0);
}

#[test]
fn after_a_fault_of_the_disk_reads_go_on_and_writers_are_told() {
    let blocks = Arc::new(Blocks::default());
    let server = serve(&blocks, ListenAccess::ReadWrite, VentiSettings::default());
    let mut client = Client::new(&server);
    client.write(b"before").unwrap();
    blocks.cannot_write.store(true, Ordering::Relaxed);
    assert!(client.write(b"now").unwrap_err().contains("the disk is gone"));
    // The server does not try again: the uncertain state of the disk stays uncertain.
    blocks.cannot_write.store(false, Ordering::Relaxed);
    for refused in
        [client.write(b"later"), Client::new(&server).write(b"others"), client.ask(&VentiRequest::Sync)]
    {
        let text = refused.unwrap_err();
        assert!(text.starts_with("read only") && text.contains("the disk is gone"), "{text}");
    }
    assert_eq!(client.ask(&read(b"before")), Ok(VentiReply::Read(Bytes::from_static(b"before"))));
    assert!(server.counts().is_degraded);
}

#[test]
fn a_block_whose_score_is_taken_is_refused() {
    let blocks = Arc::new(Blocks { colliding: Some(b"forged"), ..Blocks::default() });
    let server = serve(&blocks, ListenAccess::ReadWrite, VentiSettings::default());
    let mut client = Client::new(&server);
    for bytes in [&b"good"[..], b"forged", b"better"] {
        client.connection.ask_write(WireType::DATA, bytes).unwrap();
    }
    let mut answers = BTreeMap::from([client.next(), client.next(), client.next()]);
    assert!(answers.remove(&1).unwrap().unwrap_err().starts_with("score collision"));
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    assert_eq!((server.counts().collisions, server.counts().is_degraded), (1, false));
}

#[test]
fn where_only_reading_is_allowed_nothing_is_written() {
    let blocks = Arc::new(Blocks::default());
    let server = serve(&blocks, ListenAccess::ReadOnly, VentiSettings::default());
    let mut client = Client::new(&server);
    assert_eq!(client.write(b"a block"), Err("read only".into()));
    assert_eq!(client.ask(&VentiRequest::Sync), Ok(VentiReply::Sync));
    blocks.put(Block { block_type: BlockType::DATA, bytes: b"a block" }).unwrap();
    assert!(client.ask(&read(b"a block")).is_ok());
    assert_eq!(blocks.blocks.lock().len(), 1);
}

#[test]
fn pointers_are_found_whatever_they_were_stored_as() {
    let blocks = Arc::new(Blocks::default());
    let pointer = BlockType::at_depth(varve_block::BlockKind::Directory, 3).unwrap();
    blocks.put(Block { block_type: pointer, bytes: b"pointers" }).unwrap();
    let server = serve(&blocks, ListenAccess::ReadOnly, VentiSettings::default());
    let name = score(b"pointers").as_bytes().try_into().unwrap();
    let found =
        |wire: u8| Client::new(&server).ask(&VentiRequest::read(name, WireType::from_byte(wire), 300));
    assert_eq!(found(5), Ok(VentiReply::Read(Bytes::from_static(b"pointers"))));
    assert!(found(6).unwrap_err().starts_with("no block with score"));
    assert!(found(11).unwrap_err().ends_with("/255 exists"));
}

#[test]
fn slow_and_silent_clients_do_not_stay() {
    let patience = Duration::from_millis(100);
    let settings = VentiSettings {
        hello_timeout: patience,
        partial_timeout: patience,
        idle_timeout: Some(patience),
        send_timeout: patience,
        ..VentiSettings::default()
    };
    let server = serve(&Arc::default(), ListenAccess::ReadWrite, settings);
    let ends = |mut socket: TcpStream| drop(socket.read_to_end(&mut Vec::new()));
    ends(connect(&server));
    let mut half = connect(&server);
    half.write_all(b"venti-0").unwrap();
    ends(half);
    ends(Client::new(&server).socket);
    let mut half = Client::new(&server).socket;
    half.write_all(&[0, 0, 0]).unwrap();
    ends(half);
}

#[test]
fn who_takes_no_answers_is_left_alone_and_costs_no_more_than_its_room() {
    let settings = VentiSettings { send_timeout: Duration::from_millis(500), ..VentiSettings::default() };
    let server = serve(&Arc::default(), ListenAccess::ReadWrite, settings);
    let mut greedy = Client::new(&server);
    let block = vec![7; 50_000];
    greedy.write(&block).unwrap();
    let name = score(&block).as_bytes().try_into().unwrap();
    let mut asked = Vec::new();
    for tag in 0..=255 {
        VentiRequest::read(name, WireType::DATA, 65_535).encode(Version::V04, tag, &mut asked).unwrap();
    }
    greedy.socket.write_all(&asked).unwrap();
    // The client has requested 12 MB and reads nothing. Other clients are served.
    Client::new(&server).write(b"another").unwrap();
    let is_left = |server: &VentiServer| {
        std::thread::park_timeout(Duration::from_millis(20));
        server.counts().clients == 0
    };
    while !is_left(&server) {}
}

#[test]
fn who_takes_nothing_gives_way_when_it_holds_all_room() {
    let settings = VentiSettings { all_clients_bytes: 4 << 20, ..VentiSettings::default() };
    let server = serve(&Arc::default(), ListenAccess::ReadWrite, settings);
    let block = vec![7; 56 << 10];
    let name = score(&block).as_bytes().try_into().unwrap();
    let mut asked = Vec::new();
    for tag in 0..=255 {
        VentiRequest::read(name, WireType::DATA, 56 << 10).encode(Version::V04, tag, &mut asked).unwrap();
    }
    let mut first = Client::new(&server);
    first.write(&block).unwrap();
    let greedy: Vec<Client> = (0..3)
        .map(|_| {
            let mut greedy = Client::new(&server);
            greedy.socket.write_all(&asked).unwrap();
            greedy
        })
        .collect();
    std::thread::park_timeout(Duration::from_millis(300));
    // Requests without a block are answered at once. Requests for blocks are answered when the
    // stalled clients are dropped, long before their time-out.
    let begun = tokio::time::Instant::now();
    let mut other = Client::new(&server);
    assert_eq!(other.ask(&VentiRequest::Ping), Ok(VentiReply::Ping));
    other.ask(&VentiRequest::Sync).unwrap();
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    let read = VentiRequest::read(name, WireType::DATA, 56 << 10);
    assert_eq!(other.ask(&read), Ok(VentiReply::Read(block.clone().into())));
    assert_eq!(first.ask(&read), Ok(VentiReply::Read(block.clone().into())));
    other.write(b"another").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(server.counts().clients < 5, "somebody has given way");
    drop(greedy);
}

#[test]
fn a_score_of_zeros_is_a_block_without_bytes() {
    let server = serve(&Arc::default(), ListenAccess::ReadWrite, VentiSettings::default());
    let mut client = Client::new(&server);
    let answer = client.ask(&VentiRequest::read([0; 20], WireType::DATA, 8192));
    assert_eq!(answer, Ok(VentiReply::Read(Bytes::new())));
}

#[test]
fn too_many_clients_are_sent_away() {
    let settings = VentiSettings { clients_max: 2, ..VentiSettings::default() };
    let server = serve(&Arc::default(), ListenAccess::ReadWrite, settings);
    let (mut one, _two) = (Client::new(&server), Client::new(&server));
    let mut third = connect(&server);
    drop(third.read_to_end(&mut Vec::new()));
    one.write(b"served").unwrap();
    assert_eq!(server.counts().clients_refused, 1);
}

#[test]
fn a_server_that_ends_answers_what_was_asked() {
    let blocks = Arc::new(Blocks::default());
    let server = serve(&blocks, ListenAccess::ReadWrite, VentiSettings::default());
    let mut client = Client::new(&server);
    client.write(b"first").unwrap();
    let slow = BlockName { score: score(b"first"), block_type: BlockType::DATA };
    *blocks.held.lock() = Some(slow);
    client.connection.ask(&read(b"first")).unwrap();
    client.connection.ask(&VentiRequest::Ping).unwrap();
    client.socket.write_all(&client.connection.take_unsent()).unwrap();
    assert_eq!(client.next(), (2, Ok(VentiReply::Ping)));
    let release = Arc::clone(&blocks);
    let ending = std::thread::Builder::new().spawn(move || server.drain()).unwrap();
    *release.held.lock() = None;
    release.let_go.notify_all();
    assert_eq!(client.next().1, Ok(VentiReply::Read(Bytes::from_static(b"first"))));
    assert_eq!(client.socket.read(&mut [0]).unwrap(), 0);
    ending.join().unwrap();
}

/// Streams that no client sends, each on a connection of its own. Only that connection ends.
#[test]
fn streams_that_are_none_end_their_own_connection_and_no_other() {
    let settings = VentiSettings {
        hello_timeout: Duration::from_secs(2),
        partial_timeout: Duration::from_secs(2),
        send_timeout: Duration::from_secs(2),
        ..VentiSettings::default()
    };
    let blocks = Arc::new(Blocks::default());
    let server = serve(&blocks, ListenAccess::ReadWrite, settings);
    let mut good = Client::new(&server);
    good.write(b"before").unwrap();
    let after_hello = |bytes: &[u8]| {
        let mut stream = b"venti-04-garbage\n".to_vec();
        let hello = varve_venti::ClientHello::anonymous(Version::V04);
        VentiRequest::Hello(hello).encode(Version::V04, 0, &mut stream).unwrap();
        stream.extend_from_slice(bytes);
        stream
    };
    let mut write = Vec::new();
    let data = Bytes::from_static(&[5; 3000]);
    VentiRequest::Write { wire_type: WireType::DATA, data }.encode(Version::V04, 1, &mut write).unwrap();
    let mut same_tag = Vec::new();
    for _ in 0..200 {
        // Of two hundred requests with one tag, some arrive before the first is answered.
        read(b"before").encode(Version::V04, 7, &mut same_tag).unwrap();
    }
    let mut noise = Vec::new();
    let mut state = 1_u64;
    for _ in 0..100_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.extend_from_slice(&state.to_le_bytes()[4..]);
    }
    let pings: Vec<u8> =
        (0..1_000_000_u32).flat_map(|number| [0, 0, 0, 2, 2, number.to_le_bytes()[0]]).collect();
    let streams: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec()),
        ("an unknown version", b"venti-77-x\n".to_vec()),
        ("a line that does not end", vec![b'v'; 1 << 20]),
        ("a version line of noise", noise.clone()),
        ("no hello", [&b"venti-04-x\n"[..], &write].concat()),
        ("a hello that is cut off", b"venti-04-x\n\0\0\0\x20\x04\0\0\x02".to_vec()),
        ("a message that is cut off", after_hello(&write[..write.len() - 1])),
        ("a length that is cut off", after_hello(&[0, 0])),
        ("the largest length", after_hello(&[0xff; 64])),
        ("a message without a tag", after_hello(&[0, 0, 0, 1, 2])),
        ("one tag twice", after_hello(&same_tag)),
        ("noise", after_hello(&noise)),
        ("a flood of pings", after_hello(&pings)),
    ];
    for (what, stream) in streams {
        let mut socket = connect(&server);
        // The server may close the connection in the middle, or accept no more before its replies
        // are read.
        let mut taken = socket.try_clone().unwrap();
        let taking = std::thread::Builder::new().spawn(move || {
            let mut answers = Vec::new();
            drop(taken.read_to_end(&mut answers));
            answers.len()
        });
        drop(socket.write_all(&stream).and_then(|()| socket.shutdown(Shutdown::Write)));
        let answered = taking.unwrap().join().unwrap();
        assert!(answered <= 6 * 1_000_000 + (1 << 16), "{what}: {answered} bytes are answered");
        assert_eq!(good.ask(&read(b"before")), Ok(VentiReply::Read(Bytes::from_static(b"before"))), "{what}");
    }
    // A client that sends a flood and reads no replies has to wait, and is dropped in the end.
    let mut flood = connect(&server);
    flood.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let flooded = flood.write_all(&after_hello(&pings.repeat(20)));
    assert!(flooded.is_err(), "120 MB of requests were taken, and no answer");
    good.write(b"after").unwrap();
    while server.counts().clients > 1 {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(blocks.blocks.lock().len(), 2, "and nothing else was stored");
}
