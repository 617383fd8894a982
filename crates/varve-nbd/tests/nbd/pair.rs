//! A client and a server connected by bytes that are cut anywhere, and a client whose server lies.

use proptest::collection::vec;
use proptest::prelude::*;
use varve_nbd::{
    BASE_ALLOCATION, BLOCK_HOLE, BLOCK_ZERO, BlockSizes, ClientNegotiation, CommandFlags, ConnectError,
    ConnectedExport, ErrorCode, ExportInfo, ExportRequest, Exports, ListedExport, NbdCommand, NbdReply,
    NegotiatedExport, NegotiationError, NegotiationStep, OPTION_COUNT_MAX, OptionReply, OptionRequest,
    Refusal, RefusalKind, Replies, ReplyChunk, ReplyError, ServerNegotiation, StatusExtent, TlsPolicy,
    TransmissionFlags, encode_chunk, encode_data_chunk, encode_simple, encode_simple_data,
};

struct OneDisk;

fn info() -> ExportInfo {
    ExportInfo {
        canonical_name: Some("web@2026-05-01".into()),
        description: Some("a disk".into()),
        size: 1 << 20,
        flags: TransmissionFlags::HAS_FLAGS | TransmissionFlags::READ_ONLY,
        block_sizes: BlockSizes::default(),
        contexts: vec![BASE_ALLOCATION.into(), "varve:age".into()],
    }
}

impl Exports for OneDisk {
    type Export = u8;

    fn list(&self) -> Vec<ListedExport> {
        vec![ListedExport { name: "web".into(), description: "a disk".into() }]
    }

    fn find(&self, name: &str) -> Result<(ExportInfo, u8), Refusal> {
        match name {
            "web" => Ok((info(), 7)),
            _ => Err(Refusal::new(RefusalKind::UnknownExport, format!("no {name}"))),
        }
    }
}

fn wanted(export: &str, contexts: &[&str]) -> ExportRequest {
    ExportRequest {
        export: export.into(),
        contexts: contexts.iter().map(|&context| context.into()).collect(),
    }
}

/// Lets both sides talk until the client has its answer. Each receives the bytes of the other in
/// pieces of `cut` bytes.
fn negotiate(
    wanted: ExportRequest,
    cut: usize,
) -> (Result<ConnectedExport, ConnectError>, Option<NegotiatedExport<u8>>) {
    let mut client = ClientNegotiation::new(wanted);
    let mut server = ServerNegotiation::new(TlsPolicy::Never);
    let mut agreed = None;
    loop {
        for piece in server.take_unsent().chunks(cut) {
            client.receive(piece);
            match client.step() {
                Ok(None) => {}
                Ok(Some(connected)) => return (Ok(connected), agreed),
                Err(error) => return (Err(error), agreed),
            }
        }
        let sent = client.take_unsent();
        assert!(!sent.is_empty(), "both wait for each other");
        for piece in sent.chunks(cut) {
            server.receive(piece);
            match server.step(&OneDisk) {
                Ok(Some(NegotiationStep::Ready(now))) => agreed = Some(now),
                other => assert!(matches!(other, Ok(None)), "{other:?}"),
            }
        }
    }
}

#[test]
fn a_client_gets_an_export_and_its_contexts() {
    for cut in [1, 2, 7, 1000] {
        let (connected, agreed) = negotiate(wanted("web", &[BASE_ALLOCATION, "other:thing"]), cut);
        let (connected, agreed) = (connected.unwrap(), agreed.unwrap());
        assert_eq!(connected.info, ExportInfo { contexts: Vec::new(), ..info() });
        assert_eq!(connected.contexts, [(1, BASE_ALLOCATION.to_owned())]);
        assert_eq!((agreed.export, agreed.structured), (7, true));
        assert_eq!(agreed.contexts, connected.contexts);
        assert_eq!(agreed.info, info());
    }
}

#[test]
fn a_client_hears_that_there_is_no_such_export() {
    let (connected, agreed) = negotiate(wanted("wbe", &[BASE_ALLOCATION]), 5);
    assert!(agreed.is_none());
    let error = connected.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server refuses the export \"wbe\": there is no such export: \"no wbe\""
    );
}

/// The result of a server that has received `options`, and its replies after the greeting.
fn after(
    tls: TlsPolicy,
    options: &[OptionRequest],
) -> (Result<Option<NegotiationStep<u8>>, NegotiationError>, Vec<OptionReply>) {
    let mut server = ServerNegotiation::new(tls);
    drop(server.take_unsent());
    server.receive(&3_u32.to_be_bytes());
    let mut bytes = Vec::new();
    options.iter().for_each(|option| option.encode(&mut bytes));
    server.receive(&bytes);
    let step = server.step(&OneDisk);
    let sent = server.take_unsent();
    let mut unread = sent.as_slice();
    let mut replies = Vec::new();
    while let Ok(Some((_, reply, length))) = OptionReply::decode(unread) {
        replies.push(reply);
        unread = &unread[length..];
    }
    (step, replies)
}

fn refusals(replies: &[OptionReply]) -> Vec<RefusalKind> {
    let kind = |reply: &OptionReply| match reply {
        OptionReply::Refused(refusal) => Some(refusal.kind),
        _ => None,
    };
    replies.iter().filter_map(kind).collect()
}

#[test]
fn what_a_server_answers_to_each_option() {
    let context = |name: &str| OptionReply::Context { id: 0, name: name.into() };
    let list = |queries: &[&str]| {
        OptionRequest::ListContexts("web".into(), queries.iter().map(|&query| query.into()).collect())
    };
    let (_, replies) = after(TlsPolicy::Never, &[OptionRequest::List]);
    let listed = ListedExport { name: "web".into(), description: "a disk".into() };
    assert_eq!(replies, [OptionReply::Server(listed), OptionReply::Ack]);

    let structured = OptionRequest::StructuredReply;
    let (_, replies) =
        after(TlsPolicy::Never, &[structured.clone(), list(&[]), list(&["base:"]), list(&["age"])]);
    let (base, age, ack) = (context(BASE_ALLOCATION), context("varve:age"), OptionReply::Ack);
    assert_eq!(replies, [ack.clone(), base.clone(), age, ack.clone(), base, ack.clone(), ack]);

    let (_, replies) = after(TlsPolicy::Never, &[list(&[])]);
    assert_eq!(refusals(&replies), [RefusalKind::Invalid], "contexts come with structured replies");

    let unknown =
        [OptionRequest::Unknown(11), OptionRequest::Info("wbe".into(), vec![]), OptionRequest::StartTls];
    let (_, replies) = after(TlsPolicy::Never, &unknown);
    let expected = [RefusalKind::Unsupported, RefusalKind::UnknownExport, RefusalKind::Policy];
    assert_eq!(refusals(&replies), expected);

    let (step, replies) = after(TlsPolicy::Never, &[OptionRequest::Abort]);
    assert!(matches!(step, Ok(Some(NegotiationStep::Ended))));
    assert_eq!(replies, [OptionReply::Ack]);
}

#[test]
fn contexts_of_another_export_are_not_kept() {
    let contexts = OptionRequest::SetContexts("wbe".into(), vec![BASE_ALLOCATION.into()]);
    let go = OptionRequest::Go("web".into(), vec![]);
    let (step, _) = after(TlsPolicy::Never, &[OptionRequest::StructuredReply, contexts, go]);
    assert!(matches!(step, Ok(Some(NegotiationStep::Ready(agreed))) if agreed.contexts.is_empty()));
}

#[test]
fn nothing_is_told_before_tls() {
    let before =
        [OptionRequest::List, OptionRequest::Go("web".into(), vec![]), OptionRequest::StructuredReply];
    let (step, replies) = after(TlsPolicy::Required, &before);
    assert!(matches!(step, Ok(None)));
    assert_eq!(refusals(&replies), [RefusalKind::TlsRequired; 3]);
    let (step, replies) = after(TlsPolicy::Required, &[OptionRequest::StartTls]);
    assert!(matches!(step, Ok(Some(NegotiationStep::StartTls))));
    assert_eq!(replies, [OptionReply::Ack]);
    let (step, _) = after(TlsPolicy::Required, &[OptionRequest::StartTls, OptionRequest::List]);
    assert!(
        matches!(step, Err(NegotiationError::BytesBeforeTls)),
        "somebody has put words into the client's mouth"
    );
    let (step, _) = after(TlsPolicy::Required, &[OptionRequest::ExportName("web".into())]);
    assert!(matches!(step, Err(NegotiationError::Refused { .. })));
}

#[test]
fn a_negotiation_ends() {
    let endless = vec![OptionRequest::List; OPTION_COUNT_MAX + 1];
    let (step, _) = after(TlsPolicy::Never, &endless);
    assert!(matches!(step, Err(NegotiationError::TooManyOptions)));
}

#[test]
fn the_old_way_to_ask_works_and_cannot_be_refused() {
    let (step, _) = after(TlsPolicy::Never, &[OptionRequest::ExportName("web".into())]);
    assert!(
        matches!(step, Ok(Some(NegotiationStep::Ready(agreed))) if agreed.export == 7 && !agreed.structured)
    );
    let (step, _) = after(TlsPolicy::Never, &[OptionRequest::ExportName("wbe".into())]);
    assert!(matches!(step, Err(NegotiationError::Refused { name, .. }) if name == "wbe"));
}

/// A client that has requested 1000 bytes from 5000 and the status of everything, with the cookies
/// of the two requests.
fn asked() -> (Replies, u64, u64) {
    let mut replies = negotiate(wanted("web", &[BASE_ALLOCATION]), 1000).0.unwrap().replies;
    let mut sent = Vec::new();
    let read = replies.ask(NbdCommand::Read { offset: 5000, length: 1000 }, CommandFlags::NONE, &mut sent);
    let status = NbdCommand::BlockStatus { offset: 0, length: 1 << 20 };
    let status = replies.ask(status, CommandFlags::NONE, &mut sent);
    (replies, read, status)
}

fn hears(replies: &mut Replies, bytes: &[u8]) -> Result<Vec<NbdReply>, ReplyError> {
    replies.receive(bytes);
    let mut heard = Vec::new();
    while let Some(reply) = replies.next_reply()? {
        heard.push(reply);
    }
    Ok(heard)
}

fn data(offset: u64, length: usize) -> ReplyChunk {
    ReplyChunk::Data { offset, bytes: vec![9; length] }
}

proptest! {
    #[test]
    fn chunks_survive_any_slicing(cut in 1_usize..50, pieces in vec(1_u64..200, 1..20), holes in any::<u32>()) {
        let (mut replies, read, status) = asked();
        let mut sent = Vec::new();
        let mut expected = Vec::new();
        let mut place = 5000;
        for (number, length) in pieces.iter().chain([&1000]).enumerate() {
            let length = (*length).min(6000 - place);
            if length == 0 {
                break;
            }
            let chunk = if holes & (1 << number) == 0 {
                data(place, usize::try_from(length).unwrap())
            } else {
                ReplyChunk::Hole { offset: place, length: u32::try_from(length).unwrap() }
            };
            place += length;
            expected.push(NbdReply { cookie: read, done: place == 6000, chunk });
        }
        let extents = vec![StatusExtent { length: 4096, flags: 0 }, StatusExtent { length: 1 << 20, flags: BLOCK_HOLE | BLOCK_ZERO }];
        expected.push(NbdReply { cookie: status, done: false, chunk: ReplyChunk::Status { context: 1, extents } });
        let error = ReplyChunk::Error { code: ErrorCode::IO, message: "gone".into(), offset: Some(77) };
        expected.push(NbdReply { cookie: status, done: true, chunk: error });
        for reply in &expected {
            encode_chunk(&mut sent, reply.cookie, reply.done, &reply.chunk);
        }
        let mut heard = Vec::new();
        for piece in sent.chunks(cut) {
            heard.extend(hears(&mut replies, piece).unwrap());
        }
        prop_assert_eq!(heard, expected);
        prop_assert_eq!(replies.unanswered_count(), 0);
    }

    #[test]
    fn no_answer_panics(bytes in vec(any::<u8>(), 0..200), structured in any::<bool>(), cookie in 1_u64..4) {
        let (mut replies, ..) = asked();
        let mut sent = Vec::new();
        if structured {
            encode_chunk(&mut sent, cookie, true, &ReplyChunk::None);
            sent.truncate(6);
        } else {
            encode_simple(&mut sent, cookie, None);
            sent.truncate(4);
        }
        sent.extend_from_slice(&bytes);
        drop(hears(&mut replies, &sent));
    }
}

#[test]
fn a_filled_chunk_is_the_same_as_an_encoded_one() {
    let mut filled = Vec::new();
    let place = encode_data_chunk(&mut filled, 3, true, 77, 5, 5);
    filled[place].fill(9);
    let mut encoded = Vec::new();
    encode_chunk(&mut encoded, 3, true, &data(77, 5));
    assert_eq!(filled, encoded);
}

#[test]
fn simple_answers_are_understood_where_nothing_else_was_agreed_on() {
    // A server that knows only the oldest of the options.
    let mut client = ClientNegotiation::new(wanted("web", &[BASE_ALLOCATION]));
    let mut greeting = b"NBDMAGICIHAVEOPT".to_vec();
    greeting.extend_from_slice(&1_u16.to_be_bytes());
    client.receive(&greeting);
    assert!(client.step().unwrap().is_none());
    for number in [8, 7] {
        let mut reply = Vec::new();
        let refusal = Refusal::new(RefusalKind::Unsupported, "");
        OptionReply::Refused(refusal).encode(number, &mut reply);
        client.receive(&reply);
        assert!(client.step().unwrap().is_none());
    }
    let mut answer = 4096_u64.to_be_bytes().to_vec();
    answer.extend_from_slice(&1_u16.to_be_bytes());
    answer.extend_from_slice(&[0; 123]);
    client.receive(&answer);
    assert!(client.step().unwrap().is_none(), "one zero is missing");
    client.receive(&[0]);
    let ConnectedExport { info, contexts, mut replies } = client.step().unwrap().unwrap();
    assert_eq!((info.size, contexts), (4096, vec![]));

    let mut sent = Vec::new();
    let read = replies.ask(NbdCommand::Read { offset: 0, length: 3 }, CommandFlags::NONE, &mut sent);
    let flush = replies.ask(NbdCommand::Flush, CommandFlags::NONE, &mut sent);
    let broken = replies.ask(NbdCommand::Read { offset: 0, length: 3 }, CommandFlags::NONE, &mut sent);
    let mut answers = Vec::new();
    encode_simple(&mut answers, flush, None);
    let place = encode_simple_data(&mut answers, read, 3);
    answers[place].copy_from_slice(b"abc");
    encode_simple(&mut answers, broken, Some(ErrorCode::IO));
    let error = ReplyChunk::Error { code: ErrorCode::IO, message: String::new(), offset: None };
    let expected = [
        NbdReply { cookie: flush, done: true, chunk: ReplyChunk::None },
        NbdReply { cookie: read, done: true, chunk: ReplyChunk::Data { offset: 0, bytes: b"abc".to_vec() } },
        NbdReply { cookie: broken, done: true, chunk: error },
    ];
    assert_eq!(hears(&mut replies, &answers).unwrap(), expected);
}

#[test]
fn a_client_believes_no_lies() {
    let (_, read, status) = asked();
    let statuses = |lengths: &[u32]| ReplyChunk::Status {
        context: 1,
        extents: lengths.iter().map(|&length| StatusExtent { length, flags: 0 }).collect(),
    };
    let hole = |offset, length| ReplyChunk::Hole { offset, length };
    type Chunks = Vec<(u64, bool, ReplyChunk)>;
    let lies: Vec<(&str, Chunks)> = vec![
        ("an answer to nothing", vec![(99, true, ReplyChunk::None)]),
        ("an answer twice", vec![(read, true, data(5000, 1000)), (read, true, ReplyChunk::None)]),
        ("too few bytes", vec![(read, true, data(5000, 999))]),
        ("a gap", vec![(read, false, data(5000, 10)), (read, true, data(5020, 980))]),
        ("the same bytes twice", vec![(read, false, data(5000, 10)), (read, false, data(5009, 10))]),
        ("bytes before", vec![(read, false, data(4999, 10))]),
        ("bytes behind", vec![(read, false, data(5999, 2))]),
        ("more bytes than were asked for", vec![(read, false, data(5000, 9000))]),
        ("a hole of all the world", vec![(read, false, hole(5000, u32::MAX))]),
        ("a hole beyond all ends", vec![(read, false, hole(u64::MAX, 2))]),
        ("an empty hole", vec![(read, false, hole(5000, 0))]),
        ("bytes for a status", vec![(status, false, data(0, 1))]),
        ("a status for a read", vec![(read, false, statuses(&[1]))]),
        ("an empty extent", vec![(status, false, statuses(&[1, 0]))]),
        ("extents beyond what was asked", vec![(status, false, statuses(&[1 << 20, 1]))]),
        (
            "a context that was not agreed on",
            vec![(
                status,
                false,
                ReplyChunk::Status { context: 2, extents: vec![StatusExtent { length: 1, flags: 0 }] },
            )],
        ),
    ];
    for (lie, chunks) in lies {
        let (mut replies, ..) = asked();
        let mut sent = Vec::new();
        chunks.iter().for_each(|(cookie, done, chunk)| encode_chunk(&mut sent, *cookie, *done, chunk));
        assert!(hears(&mut replies, &sent).is_err(), "{lie}");
    }
    let (mut replies, ..) = asked();
    let mut simple = Vec::new();
    encode_simple_data(&mut simple, read, 1000);
    assert!(hears(&mut replies, &simple).is_err(), "a simple answer where structured ones were agreed on");
    let (mut replies, ..) = asked();
    assert!(matches!(hears(&mut replies, b"HTTP/1.1"), Err(ReplyError::Magic { .. })));
}

#[test]
fn a_read_may_fail_after_a_part_of_it() {
    let (mut replies, read, _) = asked();
    let mut sent = Vec::new();
    encode_chunk(&mut sent, read, false, &data(5000, 10));
    let error =
        ReplyChunk::Error { code: ErrorCode::IO, message: "a block is damaged".into(), offset: Some(5010) };
    encode_chunk(&mut sent, read, true, &error);
    let heard = hears(&mut replies, &sent).unwrap();
    assert_eq!(heard.last().unwrap().chunk, error);
    assert!(replies.has_room());
}

#[test]
fn a_client_knows_who_is_no_server() {
    let mut client = ClientNegotiation::new(wanted("web", &[]));
    client.receive(b"SSH-2.0-OpenSSH_9.2\r\n");
    assert!(matches!(client.step(), Err(ConnectError::Magic { .. })));
    let mut client = ClientNegotiation::new(wanted("web", &[]));
    client.receive(b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53");
    assert!(matches!(client.step(), Err(ConnectError::OldStyle)));
}
