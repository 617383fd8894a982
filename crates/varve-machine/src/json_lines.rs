//! Lines of JSON over a socket, with limits on their length and time.

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;

use crate::edge::Deadline;

/// The longest accepted line. QEMU's answer for a machine with hundreds of disks is far shorter.
const LINE_BYTES_MAX: usize = 16 << 20;

/// A socket on which both sides write lines of JSON.
pub(crate) struct JsonLines {
    socket: UnixStream,
    path: PathBuf,
    read: Vec<u8>,
    /// The length of the prefix of `read` that is known to contain no line end.
    searched: usize,
}

/// The reason why a line was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The connection was refused.
    #[error("cannot connect to {path}", path = path.display())]
    Connect { path: PathBuf, source: io::Error },
    /// The connection broke.
    #[error("the connection to {path} broke", path = path.display())]
    Broken { path: PathBuf, source: io::Error },
    /// The connection was closed by the peer.
    #[error("the other end has closed {path}", path = path.display())]
    Closed { path: PathBuf },
    /// No line arrived in time.
    #[error("no answer from {path} within {seconds} s", path = path.display())]
    Late {
        path: PathBuf,
        /// The time limit.
        seconds: u64,
    },
    /// The received line is not JSON.
    #[error("{path} breaks the protocol: {problem}", path = path.display())]
    Nonsense { path: PathBuf, problem: String },
}

impl JsonLines {
    pub(crate) fn connect(path: &Path) -> Result<Self, LineError> {
        let socket =
            UnixStream::connect(path).map_err(|source| LineError::Connect { path: path.into(), source })?;
        Ok(Self { socket, path: path.into(), read: Vec::new(), searched: 0 })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sends lines, and passes an open file along with the first byte.
    pub(crate) fn send(
        &mut self,
        before: &[u8],
        lines: &[Value],
        file: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> Result<(), LineError> {
        let deadline = Deadline::after(patience);
        let mut bytes = before.to_vec();
        lines.iter().for_each(|line| bytes.extend_from_slice(format!("{line}\n").as_bytes()));
        let mut rest = bytes.as_slice();
        let mut files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        while !rest.is_empty() {
            let left = deadline.left().ok_or_else(|| self.late(patience))?;
            self.socket.set_write_timeout(Some(left)).map_err(|source| self.broken(source))?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() {
                ancillary.push(SendAncillaryMessage::ScmRights(&files));
            }
            match sendmsg(&self.socket, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    files.clear();
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Err(self.late(patience)),
                Err(error) => return Err(self.broken(error.into())),
            }
        }
        Ok(())
    }

    /// Receives the next line before the deadline.
    pub(crate) fn receive(&mut self, deadline: Deadline, patience: Duration) -> Result<Value, LineError> {
        loop {
            let fresh = self.read.get(self.searched..).unwrap_or_default();
            if let Some(found) = fresh.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + found;
                let line: Vec<u8> = self.read.drain(..=end).collect();
                self.searched = 0;
                // The guest agent prefixes the first answer to a new client with a byte that does
                // not occur in JSON.
                let line = line.trim_ascii();
                let line = line.strip_prefix(b"\xff").unwrap_or(line);
                if line.is_empty() {
                    continue;
                }
                return serde_json::from_slice(line)
                    .map_err(|error| self.nonsense(format!("a line is not JSON: {error}")));
            }
            self.searched = self.read.len();
            if self.searched > LINE_BYTES_MAX {
                return Err(self.nonsense(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
            }
            let left = deadline.left().ok_or_else(|| self.late(patience))?;
            self.socket.set_read_timeout(Some(left)).map_err(|source| self.broken(source))?;
            let mut chunk = [0; 1 << 14];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(LineError::Closed { path: self.path.clone() }),
                Ok(count) => self.read.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(self.late(patience)),
                Err(source) => return Err(self.broken(source)),
            }
        }
    }

    pub(crate) fn nonsense(&self, problem: String) -> LineError {
        LineError::Nonsense { path: self.path.clone(), problem }
    }

    fn broken(&self, source: io::Error) -> LineError {
        LineError::Broken { path: self.path.clone(), source }
    }

    fn late(&self, patience: Duration) -> LineError {
        LineError::Late { path: self.path.clone(), seconds: patience.as_secs() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    /// Returns the lines of a connection, and the other end of it.
    fn connected(folder: &Path) -> (JsonLines, UnixStream) {
        let path = folder.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let lines = JsonLines::connect(&path).unwrap();
        (lines, listener.accept().unwrap().0)
    }

    fn receive(lines: &mut JsonLines) -> Result<Value, LineError> {
        lines.receive(Deadline::after(PATIENCE), PATIENCE)
    }

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let (mut lines, mut other) = connected(folder.path());
        other.write_all(b"\xff{\"a\": 1}\r\n\n{\"b\"").unwrap();
        assert_eq!(receive(&mut lines).unwrap(), json!({ "a": 1 }));
        assert!(matches!(receive(&mut lines), Err(LineError::Late { .. })), "the second is not complete");
        other.write_all(b": 2}\n").unwrap();
        assert_eq!(receive(&mut lines).unwrap(), json!({ "b": 2 }));
        other.write_all(b"not JSON\n").unwrap();
        assert!(matches!(receive(&mut lines), Err(LineError::Nonsense { .. })));
        drop(other);
        assert!(matches!(receive(&mut lines), Err(LineError::Closed { .. })));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the other end needs a thread")]
    fn a_line_without_an_end_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (mut lines, mut other) = connected(folder.path());
        let flood = std::thread::spawn(move || {
            let piece = vec![b' '; 1 << 20];
            while other.write_all(&piece).is_ok() {}
        });
        let patience = Duration::from_secs(60);
        let refused = lines.receive(Deadline::after(patience), patience).unwrap_err();
        assert!(refused.to_string().contains("a line is longer than 16777216 bytes"), "{refused}");
        drop(lines);
        flood.join().unwrap();
    }

    #[test]
    fn what_is_sent_is_a_line_of_json_each() {
        let folder = tempfile::tempdir().unwrap();
        let (mut lines, mut other) = connected(folder.path());
        lines.send(b"\xff", &[json!({ "a": "x\ny" }), json!(5)], None, PATIENCE).unwrap();
        drop(lines);
        let mut sent = Vec::new();
        other.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, b"\xff{\"a\":\"x\\ny\"}\n5\n");
    }
}
