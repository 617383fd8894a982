//! Venti's protocol, in both roles. The input is everything that the peer sends.

use varve_venti::{
    ClientConnection, ClientHello, Hello, ReceivedMessage, ServerConnection, VentiAnswer, VentiReply,
    VentiRequest, Version, WireType,
};

/// The size of the largest block that may be written.
const BLOCK_BYTES_MAX: usize = 1000;
/// The number of bytes that the client reads.
const COUNT: u32 = 1000;
const SCORE: [u8; 20] = [7; 20];

/// The bytes of a hostile client, from its first line on. Every request that decodes is encoded
/// again, and decodes to the same request.
pub fn venti_server(bytes: &[u8]) {
    let mut server = ServerConnection::new(BLOCK_BYTES_MAX);
    if server.receive(bytes).is_err() {
        return;
    }
    while let Ok(Some(received)) = server.next_received() {
        let tag = match received {
            ReceivedMessage::Refused { tag, .. } => tag,
            ReceivedMessage::Request { tag, request } => {
                let mut encoded = Vec::new();
                request.encode(server.version(), tag, &mut encoded).expect("it has come in this version");
                let body = encoded.split_off(server.version().length_bytes() + 2);
                let kind = encoded[server.version().length_bytes()];
                assert_eq!(VentiRequest::decode(kind, body.into()).as_ref(), Ok(&request));
                tag
            }
        };
        // Every second request is answered, so that some tags stay in use.
        if tag % 2 == 0 {
            server.answered(tag);
        }
    }
    assert!(server.unanswered() <= 128);
}

/// A client that reads, writes and syncs, in both versions.
#[must_use]
pub fn venti_server_seeds() -> Vec<Vec<u8>> {
    let session = |line: &str, version| {
        let mut bytes = line.as_bytes().to_vec();
        let requests = [
            VentiRequest::Hello(ClientHello::anonymous(version)),
            VentiRequest::Write { wire_type: WireType::DATA, data: vec![7; 100].into() },
            VentiRequest::Write { wire_type: WireType::DATA, data: vec![7; 5000].into() },
            VentiRequest::read(SCORE, WireType::DATA, 8192),
            VentiRequest::read(SCORE, WireType::ROOT, 1 << 20),
            VentiRequest::Sync,
            VentiRequest::Ping,
            VentiRequest::Goodbye,
        ];
        for (tag, request) in (0..).zip(requests) {
            request.encode(version, tag, &mut bytes).expect("all are short");
        }
        bytes
    };
    vec![session("venti-04:02-libventi\n", Version::V04), session("venti-02\n", Version::V02)]
}

/// The bytes of a hostile server, from its first line on.
pub fn venti_client(bytes: &[u8]) {
    let mut client = ClientConnection::new(BLOCK_BYTES_MAX);
    if client.receive(bytes).is_err() {
        return;
    }
    // The first call takes the hello.
    if !client.is_ready() && client.next_answer().is_err() || !client.is_ready() {
        return;
    }
    let read = VentiRequest::read(SCORE, WireType::DATA, COUNT);
    let write = VentiRequest::Write { wire_type: WireType::DATA, data: vec![7; 100].into() };
    for request in [read, write, VentiRequest::Sync, VentiRequest::Ping] {
        client.ask(&request).expect("there are tags");
    }
    let mut answered = [false; 4];
    while let Ok(Some(VentiAnswer { tag, reply })) = client.next_answer() {
        let tag = usize::from(tag);
        assert!(!std::mem::replace(&mut answered[tag], true), "answered twice");
        match (tag, reply) {
            (_, Err(_))
            | (1, Ok(VentiReply::Write(_)))
            | (2, Ok(VentiReply::Sync))
            | (3, Ok(VentiReply::Ping)) => {}
            (0, Ok(VentiReply::Read(block))) => assert!(block.len() <= COUNT as usize, "too many bytes"),
            (tag, Ok(reply)) => panic!("tag {tag} is answered with {reply:?}"),
        }
    }
}

/// Servers that answer every request.
#[must_use]
pub fn venti_client_seeds() -> Vec<Vec<u8>> {
    let session = |line: &str, version| {
        let mut bytes = line.as_bytes().to_vec();
        let replies = [
            (0, VentiReply::Hello(Hello::anonymous())),
            (2, VentiReply::Sync),
            (0, VentiReply::Read(vec![7; 500].into())),
            (1, VentiReply::Write(SCORE)),
            (3, VentiReply::Error("unknown request".into())),
        ];
        for (tag, reply) in replies {
            reply.encode(version, tag, &mut bytes).expect("all are short");
        }
        bytes
    };
    vec![session("venti-04:02-libventi\n", Version::V04), session("venti-02-x\n", Version::V02)]
}
