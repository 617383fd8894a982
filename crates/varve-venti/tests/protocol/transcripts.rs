//! Recorded messages between real programs: each is decoded, and encoded again to the same bytes.

use std::fs;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use varve_block::from_hex;
use varve_venti::{MessageDecoder, VentiMessage, VentiReply, VentiRequest, Version, VersionLine};

/// One side of one recorded connection.
struct Side {
    file: String,
    from_client: bool,
    /// The version that was chosen. `None` if the sides had none in common.
    version: Option<Version>,
    bytes: Vec<u8>,
    /// The recorder's names of the messages, without the line and the end.
    message_names: Vec<String>,
}

fn sides() -> Vec<Side> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/venti/transcripts");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert_eq!(paths.len(), 14, "recordings");
    let mut sides = Vec::new();
    for path in paths {
        let recording: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for connection in recording["connections"].as_array().unwrap() {
            for direction in ["c2s", "s2c"] {
                let events = connection["events"].as_array().unwrap().iter();
                let events: Vec<&Value> = events.filter(|event| event["dir"] == direction).collect();
                let hex: String = events.iter().filter_map(|event| event["hex"].as_str()).collect();
                let names = events.iter().map(|event| event["msg"].as_str().unwrap().to_owned());
                sides.push(Side {
                    file: path.file_name().unwrap().to_string_lossy().into_owned(),
                    from_client: direction == "c2s",
                    version: connection["version"]
                        .as_str()
                        .and_then(|name| Version::from_name(name.as_bytes())),
                    bytes: from_hex(&hex).unwrap(),
                    message_names: names.filter(|name| name != "version" && name != "EOF").collect(),
                });
            }
        }
    }
    sides
}

fn name_of(request: &VentiRequest) -> &'static str {
    match request {
        VentiRequest::Ping => "Tping",
        VentiRequest::Hello(_) => "Thello",
        VentiRequest::Goodbye => "Tgoodbye",
        VentiRequest::Read { .. } => "Tread",
        VentiRequest::Write { .. } => "Twrite",
        VentiRequest::Sync => "Tsync",
    }
}

fn reply_name(reply: &VentiReply) -> &'static str {
    match reply {
        VentiReply::Error(_) => "Rerror",
        VentiReply::Ping => "Rping",
        VentiReply::Hello(_) => "Rhello",
        VentiReply::Read(_) => "Rread",
        VentiReply::Write(_) => "Rwrite",
        VentiReply::Sync => "Rsync",
    }
}

/// Decodes one message and encodes it again.
fn again(
    from_client: bool,
    version: Version,
    kind: u8,
    tag: u8,
    body: Bytes,
    into: &mut Vec<u8>,
) -> &'static str {
    if from_client {
        let request = VentiRequest::decode(kind, body).unwrap();
        request.encode(version, tag, into).unwrap();
        name_of(&request)
    } else {
        let reply = VentiReply::decode(kind, body).unwrap();
        reply.encode(version, tag, into).unwrap();
        reply_name(&reply)
    }
}

#[test]
fn every_recorded_message_comes_out_as_it_went_in() {
    let mut message_count = 0;
    for side in sides() {
        let Some(version) = side.version else { continue };
        let (line, _) = VersionLine::default().receive(&side.bytes).unwrap();
        for slice in [1, 7, 4096, usize::MAX] {
            let mut written = side.bytes[..line].to_vec();
            let mut messages = MessageDecoder::new(version, 65_536, BytesMut::new());
            let mut names = Vec::new();
            for bytes in side.bytes[line..].chunks(slice.min(side.bytes.len())) {
                messages.inbox().extend_from_slice(bytes);
                while let Some(message) = messages.next_message().unwrap() {
                    let VentiMessage::Whole { kind, tag, body } = message else {
                        panic!("{}: {message:?}", side.file)
                    };
                    names.push(again(side.from_client, version, kind, tag, body, &mut written));
                }
            }
            assert_eq!(names, side.message_names, "{}", side.file);
            assert!(written == side.bytes, "{}: other bytes came out", side.file);
            assert!(!messages.is_midway(), "{}: bytes are left", side.file);
            message_count += names.len();
        }
    }
    assert_eq!(message_count / 4, 597, "recorded messages");
}

#[test]
fn both_sides_choose_what_the_recorded_ones_chose() {
    for side in sides() {
        let chosen = VersionLine::default().receive(&side.bytes);
        match side.version {
            // The server's line has all of its versions. The chosen one is in both lines, and first
            // in the client's.
            Some(version) if side.from_client => {
                assert_eq!(chosen.unwrap().1, Some(version), "{}", side.file)
            }
            Some(_) => assert!(chosen.unwrap().1.is_some(), "{}", side.file),
            None if side.from_client => drop(chosen.unwrap_err()),
            None => assert_eq!(chosen.unwrap().1, Some(Version::V04), "{}", side.file),
        }
    }
}
