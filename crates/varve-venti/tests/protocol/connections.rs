//! Both ends of a connection, with each other and with peers that misbehave.

use bytes::Bytes;
use proptest::prelude::{ProptestConfig, any, prop, proptest};
use varve_venti::{
    AskError, BLOCK_BYTES_MAX, ClientConnection, ClientError, ClientHello, Hello, ReceivedMessage,
    ServerConnection, ServerError, VentiReply, VentiRequest, Version, WireType,
};

const SCORE: [u8; 20] = [7; 20];

/// A server whose client has said hello, and a client that has received the reply.
fn pair() -> (ServerConnection, ClientConnection) {
    let (mut server, mut client) = (ServerConnection::new(BLOCK_BYTES_MAX), ClientConnection::new(65_535));
    for _ in 0..2 {
        server.receive(&client.take_unsent()).unwrap();
        assert_eq!(server.next_received().unwrap(), None);
        client.receive(&server.take_unsent()).unwrap();
        assert_eq!(client.next_answer().unwrap(), None);
    }
    assert!(server.is_ready() && client.is_ready());
    assert_eq!((server.version(), client.version()), (Version::V04, Version::V04));
    (server, client)
}

fn read() -> VentiRequest {
    VentiRequest::read(SCORE, WireType::DATA, 8192)
}

#[test]
fn answers_come_in_any_order() {
    let (mut server, mut client) = pair();
    let block = Bytes::from(vec![1; 8192]);
    let write = VentiRequest::Write { wire_type: WireType::ROOT, data: block.clone() };
    let requests = [read(), write, VentiRequest::Sync, VentiRequest::Ping];
    let tags: Vec<u8> = requests.iter().map(|request| client.ask(request).unwrap()).collect();
    assert_eq!(tags, [0, 1, 2, 3]);
    server.receive(&client.take_unsent()).unwrap();
    for (tag, expected) in (0..).zip(&requests) {
        let Some(ReceivedMessage::Request { tag: came, request }) = server.next_received().unwrap() else {
            panic!()
        };
        assert_eq!((came, &request), (tag, expected));
    }
    assert_eq!((server.unanswered(), client.unanswered()), (4, 4));
    let replies = [VentiReply::Read(block), VentiReply::Write(SCORE), VentiReply::Sync, VentiReply::Ping];
    let mut bytes = Vec::new();
    for tag in [2, 0, 3, 1] {
        replies[usize::from(tag)].encode(server.version(), tag, &mut bytes).unwrap();
        server.answered(tag);
    }
    client.receive(&bytes).unwrap();
    for tag in [2, 0, 3, 1] {
        let answer = client.next_answer().unwrap().unwrap();
        assert_eq!((answer.tag, answer.reply), (tag, Ok(replies[usize::from(tag)].clone())));
    }
    assert_eq!((server.unanswered(), client.unanswered()), (0, 0));
}

#[test]
fn all_tags_can_be_in_use_and_no_more() {
    let (mut server, mut client) = pair();
    for tag in 0..=255 {
        assert_eq!(client.ask(&read()), Ok(tag));
    }
    assert_eq!(client.ask(&read()), Err(AskError::NoTag));
    server.receive(&client.take_unsent()).unwrap();
    for _ in 0..=255 {
        server.next_received().unwrap().unwrap();
    }
    let mut again = Vec::new();
    read().encode(Version::V04, 9, &mut again).unwrap();
    server.receive(&again).unwrap();
    assert_eq!(server.next_received(), Err(ServerError::TagInUse { tag: 9 }));
}

#[test]
fn a_server_answers_what_makes_no_sense() {
    let (mut server, _) = pair();
    let sent: [(&[u8], &str); 9] = [
        (&[0, 0, 0, 2, 0, 1], "unknown request"),
        (&[0, 0, 0, 2, 13, 1], "unknown request"),
        (&[0, 0, 0, 2, 20, 1], "unknown request"),
        (&[0, 0, 0, 3, 2, 1, 0], "malformed ping"),
        (&[0, 0, 0, 3, 16, 1, 0], "malformed sync"),
        (&[0, 0, 0, 5, 14, 1, 13, 0, 0], "malformed write"),
        (&[0, 0, 0, 4, 12, 1, 0, 0], "malformed read"),
        (&[0, 0, 0, 4, 4, 1, 0, 0], "malformed hello"),
        (&[0, 0, 0, 11, 4, 1, 0, 2, b'0', b'4', 0, 0, 0, 0, 0], "unknown request"),
    ];
    for (bytes, expected) in sent {
        server.receive(bytes).unwrap();
        let received = server.next_received().unwrap();
        assert_eq!(received, Some(ReceivedMessage::Refused { tag: 1, reason: expected.into() }), "{bytes:?}");
        server.answered(1);
    }
    // A block that is too long is skipped, and the following request is received.
    let mut bytes = Vec::new();
    for length in [BLOCK_BYTES_MAX, BLOCK_BYTES_MAX + 1, 1 << 20] {
        let data = Bytes::from(vec![3; length]);
        VentiRequest::Write { wire_type: WireType::DATA, data }.encode(Version::V04, 5, &mut bytes).unwrap();
    }
    read().encode(Version::V04, 6, &mut bytes).unwrap();
    let mut answers = Vec::new();
    for slice in bytes.chunks(1000) {
        server.receive(slice).unwrap();
        while let Some(received) = server.next_received().unwrap() {
            let (ReceivedMessage::Request { tag, .. } | ReceivedMessage::Refused { tag, .. }) = received;
            server.answered(tag);
            answers.push(received);
        }
    }
    let too_large = ReceivedMessage::Refused { tag: 5, reason: "lump too large".into() };
    assert!(
        matches!(&answers[0], ReceivedMessage::Request { tag: 5, request: VentiRequest::Write { data, .. } } if data.len() == 57_344)
    );
    assert_eq!(
        answers[1..],
        [too_large.clone(), too_large, ReceivedMessage::Request { tag: 6, request: read() }]
    );
}

#[test]
fn a_server_hangs_up_on_who_does_not_begin_rightly() {
    let hello = |version: &str| {
        let mut hello = ClientHello::anonymous(Version::V04);
        hello.version = version.into();
        VentiRequest::Hello(hello)
    };
    let first = |request: &VentiRequest, tag: u8| {
        let mut bytes = b"venti-04-x\n".to_vec();
        request.encode(Version::V04, tag, &mut bytes).unwrap();
        let mut server = ServerConnection::new(BLOCK_BYTES_MAX);
        server.receive(&bytes).unwrap();
        server.next_received()
    };
    assert_eq!(first(&hello("04"), 0), Ok(None));
    assert_eq!(first(&hello("04"), 5), Err(ServerError::NoHello));
    assert_eq!(first(&hello("02"), 0), Err(ServerError::NoHello));
    assert_eq!(first(&VentiRequest::Ping, 0), Err(ServerError::NoHello));
    let mut server = ServerConnection::new(BLOCK_BYTES_MAX);
    assert!(matches!(server.receive(b"GET"), Err(ServerError::Version(_))));
    let (mut server, _) = pair();
    server.receive(&[0, 0, 0, 1, 2]).unwrap();
    assert_eq!(server.next_received(), Err(ServerError::NoTag { length: 1 }));
    let (mut server, _) = pair();
    server.receive(&[0xff; 4]).unwrap();
    assert!(matches!(server.next_received(), Err(ServerError::Frame(_))));
}

#[test]
fn a_client_believes_no_answer_to_something_else() {
    let answered = |reply: &VentiReply, tag: u8| {
        let (_, mut client) = pair();
        client.ask(&read()).unwrap();
        let mut bytes = Vec::new();
        reply.encode(Version::V04, tag, &mut bytes).unwrap();
        client.receive(&bytes).unwrap();
        client.next_answer().map(|answer| answer.map(|answer| answer.reply))
    };
    assert_eq!(answered(&VentiReply::Error("no".into()), 0), Ok(Some(Err("no".into()))));
    assert_eq!(answered(&VentiReply::Sync, 0), Err(ClientError::WrongKind { tag: 0, asked: "a read" }));
    assert_eq!(
        answered(&VentiReply::Hello(Hello::anonymous()), 0),
        Err(ClientError::WrongKind { tag: 0, asked: "a read" })
    );
    assert_eq!(answered(&VentiReply::Sync, 1), Err(ClientError::NotAsked { tag: 1 }));
    let long = VentiReply::Read(vec![0; 8193].into());
    assert_eq!(answered(&long, 0), Err(ClientError::TooMuch { tag: 0, asked: 8192, bytes: 8193 }));
    let too_long = VentiReply::Read(vec![0; 100_000].into());
    assert_eq!(answered(&too_long, 0), Err(ClientError::NotAReply { length: 100_002 }));

    let (_, mut client) = pair();
    client.ask(&VentiRequest::Sync).unwrap();
    let mut twice = Vec::new();
    VentiReply::Sync.encode(Version::V04, 0, &mut twice).unwrap();
    twice.extend_from_within(..);
    client.receive(&twice).unwrap();
    assert_eq!(client.next_answer().unwrap().unwrap().reply, Ok(VentiReply::Sync));
    assert_eq!(client.next_answer(), Err(ClientError::NotAsked { tag: 0 }), "an answer that comes twice");

    // The second answer is refused even if another request was sent before it.
    let (_, mut client) = pair();
    assert_eq!(client.ask(&VentiRequest::Sync), Ok(0));
    client.receive(&twice[..twice.len() / 2]).unwrap();
    assert_eq!(client.next_answer().unwrap().unwrap().reply, Ok(VentiReply::Sync));
    assert_eq!(client.ask(&VentiRequest::Sync), Ok(1));
    client.receive(&twice[..twice.len() / 2]).unwrap();
    assert_eq!(client.next_answer(), Err(ClientError::NotAsked { tag: 0 }), "an answer that comes late");
}

#[test]
fn a_client_takes_no_for_an_answer() {
    let mut client = ClientConnection::new(65_535);
    client.receive(b"venti-02-old\n").unwrap();
    assert_eq!(client.ask(&VentiRequest::Ping), Err(AskError::NotReady));
    let mut bytes = Vec::new();
    VentiReply::Error("go away".into()).encode(Version::V02, 0, &mut bytes).unwrap();
    client.receive(&bytes).unwrap();
    assert_eq!(client.next_answer(), Err(ClientError::Refused { reason: "go away".into() }));
}

#[test]
fn version_02_has_room_for_65529_bytes_of_a_write_and_65533_of_an_answer() {
    let write = |length: usize| {
        let data = Bytes::from(vec![0; length]);
        let mut bytes = Vec::new();
        (
            VentiRequest::Write { wire_type: WireType::DATA, data }.encode(Version::V02, 1, &mut bytes),
            bytes.len(),
        )
    };
    assert_eq!(write(65_529), (Ok(()), 65_537));
    assert!(matches!(write(65_530), (Err(_), 0)));
    let answer = |length: usize| {
        let mut bytes = Vec::new();
        (VentiReply::Read(vec![0; length].into()).encode(Version::V02, 1, &mut bytes), bytes.len())
    };
    assert_eq!(answer(65_533), (Ok(()), 65_537));
    assert!(matches!(answer(65_534), (Err(_), 0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), slice in 1..50_usize) {
        let (mut server, mut client) = pair();
        client.ask(&read()).unwrap();
        for bytes in bytes.chunks(slice) {
            server.receive(bytes).unwrap();
            while let Ok(Some(received)) = server.next_received() {
                let (ReceivedMessage::Request { tag, .. } | ReceivedMessage::Refused { tag, .. }) = received;
                server.answered(tag);
            }
            client.receive(bytes).unwrap();
            while let Ok(Some(_)) = client.next_answer() {}
        }
    }
}
