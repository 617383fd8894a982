//! The client of Venti's protocol, with our own server, and with servers that lie, vanish and
//! restart.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sha1::{Digest as _, Sha1};
use varve_block::{
    Block, BlockName, BlockStore, BlockType, GetError, PutError, Score, contract, with_causes,
};
use varve_remote::{VentiOptions, VentiStore};
use varve_serve::venti::{InheritedSockets, ListenAccess, ListenAddress, VentiServer, VentiSettings};
use varve_store::{Encryption, PassphraseCost, ScoreAlgorithm, Store, StoreAccess, StoreConfig};
use varve_venti::{
    Address, Hello, MessageDecoder, VentiMessage, VentiReply, VentiRequest, Version, VersionLine,
};
use varve_world::{MemoryStorage, World};

/// A store of SHA-1 scores in memory.
fn store() -> Arc<dyn BlockStore> {
    let world = &World::deterministic(Arc::new(MemoryStorage::new()), 7);
    let mut config = StoreConfig::new([7; 16]);
    config.score = ScoreAlgorithm::Sha1;
    config.encryption = Encryption::None;
    Store::create(world, &config, None, PassphraseCost::default()).unwrap();
    let access = StoreAccess::Write { holder: "a test" };
    Arc::new(Store::open(world.clone(), None, access, &mut |_| {}).unwrap())
}

fn serve(blocks: Arc<dyn BlockStore>, access: ListenAccess) -> VentiServer {
    let wanted = [ListenAddress { at: "tcp!127.0.0.1!0".parse().unwrap(), access }];
    let settings = VentiSettings { block_bytes_max: 1 << 20, ..VentiSettings::default() };
    VentiServer::start(&wanted, false, &mut InheritedSockets::none(), blocks, settings).unwrap()
}

fn quick() -> VentiOptions {
    VentiOptions { pause: Duration::ZERO, breach_pause: Duration::ZERO, ..VentiOptions::default() }
}

fn data(bytes: &[u8]) -> Block<'_> {
    Block { block_type: BlockType::DATA, bytes }
}

fn name(score: Score) -> BlockName {
    BlockName { score, block_type: BlockType::DATA }
}

#[test]
fn a_server_is_a_block_store_like_any_other() {
    let mut servers = Vec::new();
    contract::check(&mut || {
        let server = serve(store(), ListenAccess::ReadWrite);
        let client = VentiStore::connect(server.addresses()[0].0.clone(), quick()).unwrap();
        servers.push(server);
        client
    });
    assert!(servers.iter().all(|server| !server.counts().is_degraded));
}

#[test]
fn what_a_server_does_not_take_is_told_as_a_store_would() {
    let server = serve(store(), ListenAccess::ReadOnly);
    let client = VentiStore::connect(server.addresses()[0].0.clone(), quick()).unwrap();
    assert!(matches!(client.put(data(b"a block")), Err(PutError::ReadOnly { .. })));
    client.sync().unwrap();
    let deep = BlockType::at_depth(varve_block::BlockKind::Data, 8).unwrap();
    assert!(matches!(client.put(Block { block_type: deep, bytes: b"deep" }), Err(PutError::Failed { .. })));
}

#[test]
fn a_server_that_is_not_there_is_an_error_that_names_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let refused = VentiStore::connect(Address::Tcp("127.0.0.1".into(), port), quick()).map(drop).unwrap_err();
    assert!(refused.to_string().contains(&port.to_string()), "{refused}");
}

/// Each reply with an offset that is added to the request's tag. `None` closes the connection.
type Replies = Option<Vec<(u8, VentiReply)>>;

/// A server made of a function from requests to replies. It counts its requests.
struct Liar {
    address: Address,
    asked: Arc<AtomicUsize>,
}

impl Liar {
    fn start(answer: impl Fn(usize, &VentiRequest) -> Replies + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp("127.0.0.1".into(), listener.local_addr().unwrap().port());
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let run = move || {
            for socket in listener.incoming() {
                talk(socket.unwrap(), &counted, &answer);
            }
        };
        std::thread::Builder::new().spawn(run).unwrap();
        Self { address, asked }
    }

    /// A server that replies to any request with these bytes, and closes the connection.
    fn start_raw(said: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp("127.0.0.1".into(), listener.local_addr().unwrap().port());
        let run = move || {
            for socket in listener.incoming() {
                let socket = socket.unwrap();
                let mut raw = socket.try_clone().unwrap();
                // The server answers hello as usual. The bytes follow the first request after it.
                talk(socket, &AtomicUsize::new(0), &|_, _| None);
                let _ = raw.write_all(said);
            }
        };
        std::thread::Builder::new().spawn(run).unwrap();
        Self { address, asked: Arc::default() }
    }

    fn client(&self) -> VentiStore {
        VentiStore::connect(self.address.clone(), quick()).unwrap()
    }
}

fn score_of(bytes: &[u8]) -> Score {
    Score::try_from(score_bytes(bytes).as_slice()).unwrap()
}

fn score_bytes(bytes: &[u8]) -> [u8; 20] {
    Sha1::digest(bytes).into()
}

fn talk(mut socket: TcpStream, asked: &AtomicUsize, answer: &dyn Fn(usize, &VentiRequest) -> Replies) {
    socket.write_all(Version::line()).unwrap();
    let mut line = VersionLine::default();
    let mut byte = [0];
    loop {
        let count = socket.read(&mut byte).unwrap_or(0);
        if count == 0 || !matches!(line.receive(&byte[..count]), Ok((_, None))) {
            break;
        }
    }
    let mut messages = MessageDecoder::new(Version::V04, 1 << 21, BytesMut::new());
    let mut bytes = [0; 65_536];
    loop {
        while let Ok(Some(VentiMessage::Whole { kind, tag, body })) = messages.next_message() {
            let request = VentiRequest::decode(kind, body).unwrap();
            let replies = match &request {
                VentiRequest::Hello(_) => Some(vec![(0, VentiReply::Hello(Hello::anonymous()))]),
                request => answer(asked.fetch_add(1, Ordering::SeqCst), request),
            };
            let Some(replies) = replies else { return };
            let mut out = Vec::new();
            for (more, reply) in replies {
                reply.encode(Version::V04, tag.wrapping_add(more), &mut out).unwrap();
            }
            if socket.write_all(&out).is_err() {
                return;
            }
        }
        match socket.read(&mut bytes) {
            Ok(count @ 1..) => messages.inbox().extend_from_slice(&bytes[..count]),
            _ => return,
        }
    }
}

fn one(reply: VentiReply) -> Replies {
    Some(vec![(0, reply)])
}

#[test]
fn wrong_bytes_are_never_taken_for_right_ones() {
    let liar = Liar::start(|_, request| match request {
        VentiRequest::Read { .. } => one(VentiReply::Read(Bytes::from_static(b"something else"))),
        VentiRequest::Write { .. } => one(VentiReply::Write([9; 20])),
        _ => one(VentiReply::Sync),
    });
    let client = liar.client();
    let wanted = name(Score::try_from([5; 20].as_slice()).unwrap());
    let is_named = |error: &dyn std::error::Error| {
        let text = with_causes(error);
        assert!(text.contains(&liar.address.to_string()) && text.contains("breaks the protocol"), "{text}");
    };
    let refused = client.get(&wanted).unwrap_err();
    assert!(matches!(refused, GetError::Damaged { .. }));
    is_named(&refused);
    let refused = client.put(data(b"a block")).unwrap_err();
    assert!(matches!(refused, PutError::Failed { .. }));
    is_named(&refused);
    // A probe that is answered with more bytes than requested proves nothing.
    let refused = client.has_batch(&[wanted]).unwrap_err();
    assert!(matches!(refused, GetError::Failed { .. }));
    is_named(&refused);
    assert_eq!(liar.asked.load(Ordering::SeqCst), 3, "none of them is asked for twice");
}

#[test]
fn answers_to_something_else_and_second_answers_end_the_connection() {
    let wanted = name(Score::try_from([5; 20].as_slice()).unwrap());
    for replies in [
        vec![(0, VentiReply::Sync)],
        vec![(1, VentiReply::Sync)],
        vec![(0, VentiReply::Write([9; 20]))],
        vec![(0, VentiReply::Read(vec![0; 70_000].into()))],
    ] {
        let liar = Liar::start(move |_, _| Some(replies.clone()));
        // The pause outlasts the test, so none of the requests below may reach the server.
        let options = VentiOptions { breach_pause: Duration::from_secs(3600), ..VentiOptions::default() };
        let client = VentiStore::connect(liar.address.clone(), options).unwrap();
        let refused = client.get(&wanted).unwrap_err();
        let text = with_causes(&refused);
        assert!(text.contains(&liar.address.to_string()) && text.contains("breaks the protocol"), "{text}");
        for refused in [client.get(&wanted).unwrap_err(), client.has_batch(&[wanted]).unwrap_err()] {
            assert_eq!(with_causes(&refused), text, "the error stays the same");
        }
        assert!(client.put(data(b"a block")).is_err() && client.sync().is_err());
        assert_eq!(liar.asked.load(Ordering::SeqCst), 1, "a breach ends the work at once");
    }
    // The first answer is right. The second belongs to no request, so the client trusts nothing
    // after it on that connection.
    let liar = Liar::start(|_, request| match request {
        VentiRequest::Write { .. } => {
            let missing = VentiReply::Error("no block with score x exists".into());
            Some(vec![(0, missing.clone()), (0, missing)])
        }
        _ => one(VentiReply::Error("no block with score x exists".into())),
    });
    let client = liar.client();
    assert!(client.put(data(b"a block")).is_err());
    // The next request may meet the second answer. The one after that has a new connection.
    let next = [client.get(&wanted), client.get(&wanted)];
    assert!(next.iter().all(Result::is_err));
    assert!(matches!(next[1], Err(GetError::NotFound { .. })), "{next:?}");
}

#[test]
fn a_server_that_breaks_the_protocol_is_asked_again_after_a_while() {
    let there = Bytes::from_static(b"it is there");
    let (found, wanted) = (there.clone(), name(score_of(&there)));
    let liar = Liar::start(move |number, _| match number {
        0 => one(VentiReply::Sync),
        _ => one(VentiReply::Read(found.clone())),
    });
    let client = liar.client();
    assert!(matches!(client.get(&wanted), Err(GetError::Failed { .. })));
    assert_eq!(client.get(&wanted).unwrap(), there);
}

#[test]
fn what_is_missing_is_told_from_what_failed_whatever_the_server_calls_it() {
    let wanted = name(score_of(b"a block"));
    for (text, is_missing) in [
        ("no block with score 5/0 exists", true),
        ("no such block", true),
        ("no such score/type", true),
        ("i/o error", false),
        ("no such file: arenas0", false),
    ] {
        let liar = Liar::start(move |_, _| one(VentiReply::Error(text.into())));
        let client = liar.client();
        let found = client.get(&wanted).unwrap_err();
        assert_eq!(matches!(found, GetError::NotFound { .. }), is_missing, "{text}: {found}");
        if !is_missing {
            let said = with_causes(&found);
            assert!(said.contains(text) && said.contains(&liar.address.to_string()), "{said}");
        }
        // The server did answer, but without saying which of the two cases it is. This is an error
        // other than an unreachable server.
        match client.has_batch(&[wanted]) {
            Ok(there) => assert!(is_missing && there == [false]),
            Err(error) => assert!(!is_missing && matches!(error, GetError::Damaged { .. }), "{error}"),
        }
    }
}

#[test]
fn a_second_answer_to_one_tag_is_never_taken_for_the_first_to_another() {
    // The second sync receives only a second answer to the first sync.
    let syncs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&syncs);
    let liar = Liar::start(move |number, request| match request {
        VentiRequest::Sync if number == 1 => one(VentiReply::Sync),
        VentiRequest::Sync if number == 2 => Some(vec![(255, VentiReply::Sync)]),
        VentiRequest::Sync => {
            counted.fetch_add(1, Ordering::SeqCst);
            one(VentiReply::Sync)
        }
        VentiRequest::Write { data, .. } => one(VentiReply::Write(score_bytes(data))),
        _ => one(VentiReply::Error("no block with score x exists".into())),
    });
    let client = liar.client();
    client.put(data(b"first")).unwrap();
    client.sync().unwrap();
    assert_eq!(syncs.load(Ordering::SeqCst), 0);
    // Only an answer to this very sync proves that all is durable. The other answer is a breach of
    // the protocol.
    assert!(client.sync().is_err());
    assert_eq!(syncs.load(Ordering::SeqCst), 0);
    client.sync().unwrap();
    assert_eq!(syncs.load(Ordering::SeqCst), 1);

    // The server answers "not there" twice, and then returns the block. The second answer must
    // not be taken for one about another block.
    let there = Bytes::from_static(b"it is there");
    let (found, wanted) = (there.clone(), name(Score::try_from(score_bytes(&there).as_slice()).unwrap()));
    let liar = Liar::start(move |number, request| match request {
        VentiRequest::Read { score, .. } if *score == score_bytes(&found) && number > 1 => {
            one(VentiReply::Read(found.clone()))
        }
        _ => Some(vec![(
            if number == 1 { 255 } else { 0 },
            VentiReply::Error("no block with score x exists".into()),
        )]),
    });
    let client = liar.client();
    let absent = name(Score::try_from([5; 20].as_slice()).unwrap());
    assert!(matches!(client.get(&absent), Err(GetError::NotFound { .. })));
    assert!(matches!(client.get(&wanted), Err(GetError::Failed { .. })), "a second answer is a breach");
    assert_eq!(client.get(&wanted).unwrap(), there);
    assert_eq!(client.has_batch(&[absent]).unwrap(), [false]);
}

/// A call of the client. Returns true if the client believed a lie.
type Try = fn(&VentiStore) -> bool;

#[test]
fn every_kind_of_answer_to_every_kind_of_request_is_right_or_an_error() {
    let block = b"a block".as_slice();
    let own = score_bytes(block);
    let tries: [(&str, Try); 4] = [
        ("read", |client| {
            client.get(&name(score_of(b"a block"))).is_ok_and(|found| found.as_ref() != b"a block")
        }),
        ("write", |client| client.put(data(b"a block")).is_ok_and(|score| score != score_of(b"a block"))),
        // A client cannot distinguish a sync that was done from one that was not.
        ("sync", |_| false),
        ("has", |client| client.has_batch(&[name(score_of(b"a block"))]).is_ok_and(|there| there == [true])),
    ];
    let replies = [
        VentiReply::Ping,
        VentiReply::Hello(Hello::anonymous()),
        VentiReply::Read(Bytes::new()),
        // Shorter, longer and other bytes than those of the score.
        VentiReply::Read(Bytes::from_static(b"a bloc")),
        VentiReply::Read(Bytes::from_static(b"a block\0")),
        VentiReply::Read(Bytes::from_static(b"A block")),
        VentiReply::Write([0; 20]),
        VentiReply::Write([9; 20]),
        VentiReply::Sync,
        VentiReply::Error(String::new()),
        VentiReply::Error("no".into()),
    ];
    for reply in replies {
        let said = reply.clone();
        let liar = Liar::start(move |_, _| one(said.clone()));
        for (what, is_lied_to) in tries {
            assert!(!is_lied_to(&liar.client()), "{what} is answered with {reply:?}");
        }
        let is_sync = reply == VentiReply::Sync;
        assert_eq!(liar.client().sync().is_ok(), is_sync, "a sync is answered with {reply:?}");
    }
    // All calls succeed with a server that tells the truth.
    let truth = Liar::start(move |_, request| match request {
        VentiRequest::Read { count: 0, .. } => {
            one(VentiReply::Error("read too small: asked for 0 need at least 7".into()))
        }
        VentiRequest::Read { .. } => one(VentiReply::Read(Bytes::from_static(b"a block"))),
        VentiRequest::Write { .. } => one(VentiReply::Write(own)),
        _ => one(VentiReply::Sync),
    });
    let client = truth.client();
    assert_eq!(client.put(data(block)).unwrap(), score_of(block));
    assert_eq!(client.get(&name(score_of(block))).unwrap(), block);
    assert_eq!(client.has_batch(&[name(score_of(block))]).unwrap(), [true]);
    client.sync().unwrap();
}

#[test]
fn what_is_no_message_ends_the_connection_and_what_is_cut_off_is_an_error() {
    let wanted = name(score_of(b"a block"));
    for bytes in [
        // A reply of an unknown type; one without a tag; a score that is too short; an error whose
        // text is shorter than its declared length.
        &[0, 0, 0, 2, 19, 0][..],
        &[0, 0, 0, 1, 13],
        &[0, 0, 0, 5, 15, 0, 1, 2, 3],
        &[0, 0, 0, 4, 1, 0, 0, 9],
        // A block that is announced and never sent; one that is larger than any block may be; a
        // flood.
        &[0, 0, 0, 100, 13, 0, b'a', b' '],
        &[0, 0x20, 0, 0, 13, 0],
        &[0xff; 64],
        // The beginning of a length.
        &[0, 0],
    ] {
        let liar = Liar::start_raw(bytes);
        let options = VentiOptions { attempts: 2, ..quick() };
        let client = VentiStore::connect(liar.address.clone(), options).unwrap();
        assert!(matches!(client.get(&wanted), Err(GetError::Failed { .. })), "{bytes:?}");
        assert!(client.put(data(b"a block")).is_err(), "{bytes:?}");
        assert!(client.sync().is_err(), "{bytes:?}");
    }
}

#[test]
fn a_server_that_hangs_up_in_the_middle_is_asked_again_for_the_rest() {
    let memory = store();
    let behind = Arc::clone(&memory);
    // Every seventh request ends its connection without a reply.
    let liar = Liar::start(move |number, request| {
        if number % 7 == 6 {
            return None;
        }
        one(match request {
            VentiRequest::Write { data: bytes, .. } => {
                VentiReply::Write(behind.put(data(bytes)).unwrap().as_bytes().try_into().unwrap())
            }
            VentiRequest::Read { score, .. } => {
                VentiReply::Read(behind.get(&name(Score::try_from(score.as_slice()).unwrap())).unwrap())
            }
            _ => VentiReply::Sync,
        })
    });
    let options = VentiOptions { attempts: 1000, depth: 3, ..quick() };
    let client = VentiStore::connect(liar.address.clone(), options).unwrap();
    let bytes: Vec<Vec<u8>> = (0..100_u8).map(|number| vec![number; 500]).collect();
    let blocks: Vec<Block<'_>> = bytes.iter().map(|bytes| data(bytes)).collect();
    let names: Vec<BlockName> = client.put_batch(&blocks).unwrap().into_iter().map(name).collect();
    for (found, expected) in client.get_batch(&names).into_iter().zip(&bytes) {
        assert_eq!(found.unwrap(), *expected);
    }
}

#[test]
fn what_a_server_forgot_when_it_was_started_again_is_written_again_before_a_sync_returns() {
    // The server keeps acknowledged blocks in memory, and forgets everything when a connection
    // ends.
    let kept = Arc::new(AtomicUsize::new(0));
    let synced = Arc::new(AtomicUsize::new(0));
    let (keeps, syncs, memory) = (Arc::clone(&kept), Arc::clone(&synced), store());
    let liar = Liar::start(move |number, request| match request {
        VentiRequest::Write { data: bytes, .. } => {
            keeps.fetch_add(1, Ordering::SeqCst);
            one(VentiReply::Write(memory.put(data(bytes)).unwrap().as_bytes().try_into().unwrap()))
        }
        // At the first sync, the server is gone.
        VentiRequest::Sync if number == 10 => {
            keeps.store(0, Ordering::SeqCst);
            None
        }
        VentiRequest::Sync => {
            syncs.store(keeps.load(Ordering::SeqCst), Ordering::SeqCst);
            one(VentiReply::Sync)
        }
        _ => None,
    });
    let client = liar.client();
    for number in 0..10_u8 {
        client.put(data(&[number; 100])).unwrap();
    }
    client.sync().unwrap();
    assert_eq!(
        synced.load(Ordering::SeqCst),
        10,
        "all that was acknowledged is there when the sync is answered"
    );
    // The blocks are durable now, so the client can drop them.
    client.sync().unwrap();
    assert_eq!(synced.load(Ordering::SeqCst), 10);
}
