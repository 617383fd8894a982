//! The network block device protocol, in both roles. The input is everything that the peer sends.

use varve_nbd::{
    BASE_ALLOCATION, BlockSizes, ClientNegotiation, CommandFlags, ErrorCode, ExportInfo, ExportRequest,
    Exports, ListedExport, NbdCommand, NbdRequest, NegotiationStep, OptionReply, OptionRequest, Refusal,
    RefusalKind, ReplyChunk, ServerNegotiation, StatusExtent, TlsPolicy, TransmissionFlags, encode_chunk,
    encode_simple_data,
};

/// The size of the only export.
const SIZE: u64 = 1 << 20;
/// The offset at which the client reads, and the length of the read.
const READ: (u64, u32) = (5000, 1000);

struct OneDisk;

impl Exports for OneDisk {
    type Export = ();

    fn list(&self) -> Vec<ListedExport> {
        vec![ListedExport { name: "web".into(), description: "a disk".into() }]
    }

    fn find(&self, name: &str) -> Result<(ExportInfo, ()), Refusal> {
        let info = ExportInfo {
            canonical_name: None,
            description: None,
            size: SIZE,
            flags: TransmissionFlags::HAS_FLAGS | TransmissionFlags::WRITE_ZEROES,
            block_sizes: BlockSizes::default(),
            contexts: vec![BASE_ALLOCATION.into()],
        };
        if name == "web" { Ok((info, ())) } else { Err(Refusal::new(RefusalKind::UnknownExport, name)) }
    }
}

/// The bytes of a hostile client, from its flags on.
pub fn nbd_server(bytes: &[u8]) {
    let mut server = ServerNegotiation::new(TlsPolicy::Never);
    server.receive(bytes);
    let agreed = match server.step(&OneDisk) {
        Ok(Some(NegotiationStep::Ready(agreed))) => agreed,
        _ => return,
    };
    let mut requests = server.into_requests();
    while let Ok(Some(request)) = requests.next_request() {
        if request.check(&agreed.info).is_ok()
            && let NbdCommand::Read { offset, length } = request.command
        {
            assert!(offset + u64::from(length) <= SIZE);
        }
    }
}

/// A client that lists exports, asks for their properties, reads and writes.
#[must_use]
pub fn nbd_server_seeds() -> Vec<Vec<u8>> {
    let ask = |options: &[OptionRequest], commands: Vec<NbdCommand>| {
        let mut bytes = 3_u32.to_be_bytes().to_vec();
        options.iter().for_each(|option| option.encode(&mut bytes));
        for (cookie, command) in (1..).zip(commands) {
            NbdRequest { cookie, flags: CommandFlags::NONE, command }.encode(&mut bytes);
        }
        bytes
    };
    let contexts = vec![BASE_ALLOCATION.to_owned()];
    let go = OptionRequest::Go("web".into(), vec![1, 3]);
    let commands = || {
        let (offset, length) = READ;
        vec![
            NbdCommand::Read { offset, length },
            NbdCommand::Write { offset, data: vec![7; 100] },
            NbdCommand::WriteZeroes { offset, length },
            NbdCommand::BlockStatus { offset, length },
            NbdCommand::Flush,
            NbdCommand::Disconnect,
        ]
    };
    let full = [
        OptionRequest::List,
        OptionRequest::StructuredReply,
        OptionRequest::ListContexts("web".into(), vec!["base:".into()]),
        OptionRequest::SetContexts("web".into(), contexts),
        OptionRequest::Info("web".into(), vec![1]),
        go.clone(),
    ];
    vec![
        ask(&full, commands()),
        ask(&[go], commands()),
        ask(&[OptionRequest::ExportName("web".into())], commands()),
        ask(&[OptionRequest::StartTls, OptionRequest::Unknown(11), OptionRequest::Abort], vec![]),
    ]
}

/// The bytes of a hostile server, from its greeting on.
pub fn nbd_client(bytes: &[u8]) {
    let wanted = ExportRequest { export: "web".into(), contexts: vec![BASE_ALLOCATION.into()] };
    let mut client = ClientNegotiation::new(wanted);
    client.receive(bytes);
    let Ok(Some(mut connected)) = client.step() else { return };
    let (offset, length) = READ;
    let mut sent = Vec::new();
    for command in
        [NbdCommand::Read { offset, length }, NbdCommand::BlockStatus { offset, length }, NbdCommand::Flush]
    {
        connected.replies.ask(command, CommandFlags::NONE, &mut sent);
    }
    let mut has_failed = false;
    let mut byte_count = 0;
    while let Ok(Some(reply)) = connected.replies.next_reply() {
        if reply.cookie != 1 {
            continue;
        }
        match reply.chunk {
            ReplyChunk::Data { bytes, .. } => byte_count += bytes.len() as u64,
            ReplyChunk::Hole { length, .. } => byte_count += u64::from(length),
            ReplyChunk::Error { .. } => has_failed = true,
            ReplyChunk::None | ReplyChunk::Status { .. } => {}
        }
        assert!(
            !reply.done || has_failed || byte_count == u64::from(length),
            "a read lacks bytes or has too many"
        );
    }
}

/// A server with fixed newstyle negotiation and structured replies, and an old one without them.
#[must_use]
pub fn nbd_client_seeds() -> Vec<Vec<u8>> {
    let (offset, length) = READ;
    let mut modern = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
    OptionReply::Ack.encode(8, &mut modern);
    OptionReply::Context { id: 1, name: BASE_ALLOCATION.into() }.encode(10, &mut modern);
    OptionReply::Ack.encode(10, &mut modern);
    OptionReply::Export { size: SIZE, flags: TransmissionFlags::HAS_FLAGS }.encode(7, &mut modern);
    OptionReply::Description("a disk".into()).encode(7, &mut modern);
    OptionReply::BlockSize(BlockSizes::default()).encode(7, &mut modern);
    OptionReply::Ack.encode(7, &mut modern);
    let extents = vec![StatusExtent { length: 500, flags: 0 }, StatusExtent { length: 500, flags: 3 }];
    for (cookie, done, chunk) in [
        (1, false, ReplyChunk::Data { offset, bytes: vec![7; 400] }),
        (2, true, ReplyChunk::Status { context: 1, extents }),
        (1, true, ReplyChunk::Hole { offset: offset + 400, length: length - 400 }),
        (3, true, ReplyChunk::Error { code: ErrorCode::IO, message: "gone".into(), offset: Some(1) }),
    ] {
        encode_chunk(&mut modern, cookie, done, &chunk);
    }
    let mut old = b"NBDMAGICIHAVEOPT\x00\x02".to_vec();
    old.extend_from_slice(&SIZE.to_be_bytes());
    old.extend_from_slice(&1_u16.to_be_bytes());
    let place = encode_simple_data(&mut old, 1, 1000);
    old[place].fill(7);
    vec![modern, old]
}
