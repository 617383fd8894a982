//! Each side reads the messages that the other writes, in any slicing of the stream. No bytes make
//! either side panic.

use proptest::collection::vec;
use proptest::prelude::*;
use varve_nbd::{
    BlockSizes, CommandFlags, ErrorCode, ExportInfo, ListedExport, NbdCommand, NbdRequest, OptionReply,
    OptionRequest, PAYLOAD_BYTES_MAX, Refusal, RefusalKind, RequestDecoder, RequestError, TransmissionFlags,
};

fn name() -> impl Strategy<Value = String> {
    "[a-zé@:0-9-]{0,40}"
}

fn option() -> impl Strategy<Value = OptionRequest> {
    prop_oneof![
        name().prop_map(OptionRequest::ExportName),
        Just(OptionRequest::Abort),
        Just(OptionRequest::List),
        Just(OptionRequest::StartTls),
        (name(), vec(any::<u16>(), 0..5)).prop_map(|(name, wanted)| OptionRequest::Info(name, wanted)),
        (name(), vec(any::<u16>(), 0..5)).prop_map(|(name, wanted)| OptionRequest::Go(name, wanted)),
        Just(OptionRequest::StructuredReply),
        (name(), vec(name(), 0..5)).prop_map(|(name, queries)| OptionRequest::ListContexts(name, queries)),
        (name(), vec(name(), 0..5)).prop_map(|(name, queries)| OptionRequest::SetContexts(name, queries)),
        (12..u32::MAX).prop_map(OptionRequest::Unknown),
    ]
}

fn option_reply() -> impl Strategy<Value = OptionReply> {
    let kinds = prop_oneof![
        Just(RefusalKind::Unsupported),
        Just(RefusalKind::Policy),
        Just(RefusalKind::Invalid),
        Just(RefusalKind::Platform),
        Just(RefusalKind::TlsRequired),
        Just(RefusalKind::UnknownExport),
        Just(RefusalKind::Shutdown),
        Just(RefusalKind::BlockSizeRequired),
        Just(RefusalKind::TooBig),
        (20..1000_u32).prop_map(RefusalKind::Other),
    ];
    prop_oneof![
        Just(OptionReply::Ack),
        (name(), name())
            .prop_map(|(name, description)| OptionReply::Server(ListedExport { name, description })),
        (any::<u64>(), any::<u16>())
            .prop_map(|(size, flags)| OptionReply::Export { size, flags: TransmissionFlags(flags) }),
        name().prop_map(OptionReply::Name),
        name().prop_map(OptionReply::Description),
        any::<[u32; 3]>().prop_map(|[minimum, preferred, maximum]| {
            OptionReply::BlockSize(BlockSizes { minimum, preferred, maximum })
        }),
        (any::<u32>(), name()).prop_map(|(id, name)| OptionReply::Context { id, name }),
        (kinds, name()).prop_map(|(kind, message)| OptionReply::Refused(Refusal { kind, message })),
        (5..1000_u32).prop_map(OptionReply::Unknown),
    ]
}

fn command() -> impl Strategy<Value = NbdCommand> {
    let place = || (any::<u64>(), any::<u32>());
    prop_oneof![
        place().prop_map(|(offset, length)| NbdCommand::Read { offset, length }),
        (any::<u64>(), vec(any::<u8>(), 0..300))
            .prop_map(|(offset, data)| NbdCommand::Write { offset, data }),
        Just(NbdCommand::Disconnect),
        Just(NbdCommand::Flush),
        place().prop_map(|(offset, length)| NbdCommand::Trim { offset, length }),
        place().prop_map(|(offset, length)| NbdCommand::Cache { offset, length }),
        place().prop_map(|(offset, length)| NbdCommand::WriteZeroes { offset, length }),
        place().prop_map(|(offset, length)| NbdCommand::BlockStatus { offset, length }),
        (8..u16::MAX).prop_map(|kind| NbdCommand::Unknown { kind }),
    ]
}

fn request() -> impl Strategy<Value = NbdRequest> {
    (any::<u64>(), any::<u16>(), command()).prop_map(|(cookie, flags, command)| NbdRequest {
        cookie,
        flags: CommandFlags(flags),
        command,
    })
}

/// Cuts a stream into pieces of the given lengths, used in a cycle.
fn pieces<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at((*length).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

proptest! {
    #[test]
    fn options_survive_the_round_trip(option in option(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        option.encode(&mut bytes);
        let length = bytes.len();
        prop_assert_eq!(OptionRequest::decode(&bytes[..cut.index(length)]), Ok(None), "it is not whole");
        bytes.extend_from_slice(b"what follows");
        prop_assert_eq!(OptionRequest::decode(&bytes), Ok(Some((option, length))));
    }

    #[test]
    fn replies_to_options_survive_the_round_trip(reply in option_reply(), option in any::<u32>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        reply.encode(option, &mut bytes);
        let length = bytes.len();
        prop_assert_eq!(OptionReply::decode(&bytes[..cut.index(length)]), Ok(None), "it is not whole");
        bytes.extend_from_slice(b"what follows");
        prop_assert_eq!(OptionReply::decode(&bytes), Ok(Some((option, reply, length))));
    }

    #[test]
    fn requests_survive_any_slicing(requests in vec(request(), 0..20), lengths in vec(1_usize..200, 1..5)) {
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| request.encode(&mut bytes));
        let mut decoder = RequestDecoder::default();
        let mut decoded = Vec::new();
        for piece in pieces(&bytes, &lengths) {
            decoder.receive(piece);
            while let Some(request) = decoder.next_request().unwrap() {
                decoded.push(request);
            }
        }
        prop_assert!(!decoder.is_partial());
        prop_assert_eq!(decoded, requests);
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200), magic in 0..4_usize) {
        let mut stream = Vec::new();
        match magic {
            0 => OptionRequest::List.encode(&mut stream),
            1 => OptionReply::Ack.encode(3, &mut stream),
            2 => NbdRequest { cookie: 1, flags: CommandFlags::NONE, command: NbdCommand::Flush }.encode(&mut stream),
            _ => {}
        }
        // The magic is kept, and random bytes follow it.
        stream.truncate(8);
        stream.extend_from_slice(&bytes);
        drop(OptionRequest::decode(&stream));
        drop(OptionReply::decode(&stream));
        let mut decoder = RequestDecoder::default();
        decoder.receive(&stream);
        while let Ok(Some(_)) = decoder.next_request() {}
    }
}

#[test]
fn a_write_that_is_too_long_is_refused_before_it_comes() {
    let mut bytes = Vec::new();
    let command = NbdCommand::Write { offset: 0, data: Vec::new() };
    NbdRequest { cookie: 1, flags: CommandFlags::NONE, command }.encode(&mut bytes);
    let claimed = PAYLOAD_BYTES_MAX + 1;
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&claimed.to_be_bytes());
    let mut decoder = RequestDecoder::default();
    decoder.receive(&bytes);
    assert_eq!(decoder.next_request(), Err(RequestError::TooLong { claimed, allowed: PAYLOAD_BYTES_MAX }));
}

#[test]
fn what_an_export_cannot_do_is_known_without_trying() {
    let read_only = ExportInfo {
        canonical_name: None,
        description: None,
        size: 1000,
        flags: TransmissionFlags::HAS_FLAGS | TransmissionFlags::READ_ONLY | TransmissionFlags::FLUSH,
        block_sizes: BlockSizes::default(),
        contexts: Vec::new(),
    };
    let writable = ExportInfo {
        flags: TransmissionFlags::HAS_FLAGS | TransmissionFlags::WRITE_ZEROES | TransmissionFlags::FUA,
        ..read_only.clone()
    };
    let write = |offset, length| NbdCommand::Write { offset, data: vec![0; length] };
    let read = |offset, length| NbdCommand::Read { offset, length };
    let (none, fua) = (CommandFlags::NONE, CommandFlags::FUA);
    for (export, command, flags, expected) in [
        (&read_only, read(0, 1000), none, Ok(())),
        (&read_only, read(1000, 0), CommandFlags::DONT_FRAGMENT, Ok(())),
        (&read_only, read(1, 1000), none, Err(ErrorCode::INVALID)),
        (&read_only, read(u64::MAX, 2), none, Err(ErrorCode::INVALID)),
        (&read_only, read(0, 1), fua, Err(ErrorCode::INVALID)),
        (&read_only, read(0, 1), CommandFlags(1 << 14), Err(ErrorCode::INVALID)),
        (&read_only, write(0, 1), none, Err(ErrorCode::NOT_PERMITTED)),
        (&read_only, NbdCommand::Flush, none, Ok(())),
        (&read_only, NbdCommand::Cache { offset: 0, length: 1 }, none, Err(ErrorCode::INVALID)),
        (&read_only, NbdCommand::BlockStatus { offset: 0, length: 0 }, none, Err(ErrorCode::INVALID)),
        (&read_only, NbdCommand::BlockStatus { offset: 9, length: 1 }, CommandFlags::ONE_EXTENT, Ok(())),
        (&read_only, NbdCommand::Unknown { kind: 77 }, none, Err(ErrorCode::INVALID)),
        (&writable, write(999, 1), fua, Ok(())),
        (&writable, write(999, 2), none, Err(ErrorCode::NO_SPACE)),
        (&writable, read(0, 1), fua, Ok(())),
        (&writable, NbdCommand::Flush, none, Err(ErrorCode::INVALID)),
        (&writable, NbdCommand::WriteZeroes { offset: 0, length: 1 }, CommandFlags::NO_HOLE | fua, Ok(())),
        (&writable, NbdCommand::Trim { offset: 0, length: 1 }, none, Err(ErrorCode::INVALID)),
    ] {
        let request = NbdRequest { cookie: 1, flags, command };
        assert_eq!(request.check(export), expected, "{request:?}");
    }
    let large = ExportInfo { size: 1 << 40, ..read_only };
    let request = NbdRequest { cookie: 1, flags: none, command: read(0, PAYLOAD_BYTES_MAX + 1) };
    assert_eq!(request.check(&large), Err(ErrorCode::INVALID));
}
