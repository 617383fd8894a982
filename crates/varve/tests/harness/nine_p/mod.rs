//! A client for a file server that speaks 9P on its standard input and output (9P2000; plan9port's
//! intro(9p)). It can only read.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The largest message that the client requests.
const MESSAGE_BYTES: u32 = 8192;
/// The bytes of a message besides the bytes that are read.
const HEAD_BYTES: u32 = 24;
const ROOT: u32 = 0;
const OPEN: u32 = 1;
/// The bit of a folder in the mode of a file.
const FOLDER: u32 = 0x8000_0000;

/// The metadata of a file, as its folder lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub is_folder: bool,
    pub mode: u32,
    pub length: u64,
    pub modified: u32,
}

/// A server, which is killed on drop.
pub struct Files {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

/// Reads the fields of a message from its front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn number(&mut self, bytes: usize) -> u64 {
        let (own, rest) = self.0.split_at(bytes);
        self.0 = rest;
        own.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    fn short(&mut self, bytes: usize) -> u32 {
        u32::try_from(self.number(bytes)).unwrap()
    }

    fn text(&mut self) -> String {
        let length = usize::try_from(self.number(2)).unwrap();
        let (own, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8(own.to_vec()).unwrap()
    }
}

fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    [&length.to_le_bytes()[..], text.as_bytes()].concat()
}

impl Files {
    /// Starts a server, and agrees on the version. Returns `None` if the server ends before it
    /// answers.
    pub fn start(mut command: Command) -> Option<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut files = Self { child, input, output };
        let hello = [&MESSAGE_BYTES.to_le_bytes()[..], &text("9P2000")].concat();
        let answer = files.ask(100, u16::MAX, &hello)?;
        let mut fields = Fields(&answer);
        assert!(fields.short(4) <= MESSAGE_BYTES && fields.text() == "9P2000");
        let attach = [&ROOT.to_le_bytes()[..], &[0xff; 4], &text("somebody"), &text("")].concat();
        files.must(104, &attach);
        Some(files)
    }

    /// Sends a request. Returns the answer, or `None` if none comes.
    fn ask(&mut self, kind: u8, tag: u16, body: &[u8]) -> Option<Vec<u8>> {
        let length = u32::try_from(7 + body.len()).unwrap();
        let message = [&length.to_le_bytes()[..], &[kind], &tag.to_le_bytes(), body].concat();
        self.input.write_all(&message).ok()?;
        let mut head = [0; 7];
        self.output.read_exact(&mut head).ok()?;
        let length = Fields(&head).short(4);
        let mut answer = vec![0; usize::try_from(length).unwrap() - head.len()];
        self.output.read_exact(&mut answer).ok()?;
        assert_eq!(head[5..], tag.to_le_bytes());
        assert_eq!(head[4], kind + 1, "{kind}: {}", String::from_utf8_lossy(&answer));
        Some(answer)
    }

    fn must(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
        self.ask(kind, 1, body).expect("the server has ended")
    }

    /// Returns all bytes of a file; those of a folder describe the files in it.
    fn bytes(&mut self, path: &str) -> Vec<u8> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let count = u16::try_from(names.len()).unwrap();
        let walk = [&ROOT.to_le_bytes()[..], &OPEN.to_le_bytes(), &count.to_le_bytes()].concat();
        let names: Vec<u8> = names.into_iter().flat_map(text).collect();
        let found = self.must(110, &[walk, names].concat());
        assert_eq!(Fields(&found).number(2), u64::from(count), "{path} is not there");
        self.must(112, &[&OPEN.to_le_bytes()[..], &[0]].concat());
        let mut bytes: Vec<u8> = Vec::new();
        loop {
            let (offset, count) = (bytes.len() as u64, MESSAGE_BYTES - HEAD_BYTES);
            let read = [&OPEN.to_le_bytes()[..], &offset.to_le_bytes(), &count.to_le_bytes()].concat();
            let answer = self.must(116, &read);
            if answer.len() == 4 {
                break;
            }
            bytes.extend_from_slice(&answer[4..]);
        }
        self.must(120, &OPEN.to_le_bytes());
        bytes
    }

    /// Returns the bytes of a file.
    pub fn read(&mut self, path: &str) -> Vec<u8> {
        self.bytes(path)
    }

    /// Returns the metadata of all files in a folder.
    pub fn list(&mut self, path: &str) -> Vec<Listed> {
        let bytes = self.bytes(path);
        let mut fields = Fields(&bytes);
        let mut listed = Vec::new();
        while !fields.0.is_empty() {
            // The length, the kind and number of the server, and the identity of the file.
            fields.number(2);
            fields.number(6);
            fields.number(5);
            fields.number(8);
            let (mode, _read, modified) = (fields.short(4), fields.short(4), fields.short(4));
            let length = fields.number(8);
            let name = fields.text();
            let _owners = [fields.text(), fields.text(), fields.text()];
            listed.push(Listed { name, is_folder: mode & FOLDER != 0, mode, length, modified });
        }
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        listed
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
