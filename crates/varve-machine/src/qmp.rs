//! QEMU's monitor protocol: commands to a running machine, one at a time, and their answers.
//!
//! Invariant: after an error other than [`QmpError::Refused`] nobody knows what the machine has done, and the connection is
//! not used again; [`Qmp::again`] makes a new one.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::edge::Deadline;
use crate::json_lines::{JsonLines, LineError};

/// The oldest QEMU that has all the commands that are used here.
const VERSION_MIN: (u64, u64) = (5, 2);

/// Why a command was not done, or not known to be done.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// Nothing sensible came back.
    #[error("{command}: no answer")]
    Line {
        /// The command.
        command: String,
        /// What went wrong below.
        source: LineError,
    },
    /// QEMU did not do it.
    #[error("QEMU refused {command}: {said}")]
    Refused {
        /// The command.
        command: String,
        /// What QEMU says.
        said: String,
    },
    /// There is no QEMU, or somebody else talks to it.
    #[error("{path} has no greeting of QEMU: is it a QMP socket, and does no other program hold it? A socket serves one at a time", path = path.display())]
    Greeting {
        /// The socket.
        path: std::path::PathBuf,
        /// What went wrong below.
        source: LineError,
    },
    /// Too old.
    #[error("QEMU {major}.{minor} cannot do this: it takes 5.2")]
    Version {
        /// As it says.
        major: u64,
        /// As it says.
        minor: u64,
    },
    /// An answer lacks what every such answer has.
    #[error("{command}: the answer has no {what}")]
    Lacks {
        /// The command.
        command: String,
        /// What is not there.
        what: &'static str,
    },
}

/// A connection to a machine's monitor.
pub struct Qmp {
    lines: JsonLines,
    version: (u64, u64, u64),
    patience: Duration,
    next_id: u64,
    is_lost: bool,
}

impl Qmp {
    /// Connects, and waits for each answer as long as `patience`.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, QmpError> {
        let no_greeting = |source| QmpError::Greeting { path: path.into(), source };
        let mut lines = JsonLines::connect(path)
            .map_err(|source| QmpError::Line { command: "qmp_capabilities".into(), source })?;
        let greeting = lines.receive(Deadline::after(patience), patience).map_err(no_greeting)?;
        let version = &greeting["QMP"]["version"]["qemu"];
        let (Some(major), Some(minor)) = (version["major"].as_u64(), version["minor"].as_u64()) else {
            return Err(no_greeting(lines.nonsense("the first line says no version".into())));
        };
        if (major, minor) < VERSION_MIN {
            return Err(QmpError::Version { major, minor });
        }
        let version = (major, minor, version["micro"].as_u64().unwrap_or(0));
        let mut qmp = Self { lines, version, patience, next_id: 0, is_lost: false };
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Where it is connected to.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.lines.path()
    }

    /// QEMU's version.
    #[must_use]
    pub fn version(&self) -> (u64, u64, u64) {
        self.version
    }

    /// Whether an answer is outstanding that will never be waited for.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// A new connection to the same machine, after this one was lost.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn again(&mut self) -> Result<(), QmpError> {
        *self = Self::connect(self.lines.path(), self.patience)?;
        Ok(())
    }

    /// Has a command done.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.execute_with(command, arguments, None)
    }

    /// Has a command done that takes an open file.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn execute_with(
        &mut self,
        command: &str,
        arguments: Value,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<Value, QmpError> {
        let answered = self.ask(command, arguments, file);
        match answered {
            Ok(mut answer) => {
                if let Some(error) = answer.get("error") {
                    let said = error["desc"].as_str().unwrap_or("it gives no reason").to_owned();
                    return Err(QmpError::Refused { command: command.into(), said });
                }
                Ok(answer["return"].take())
            }
            Err(source) => {
                self.is_lost = true;
                Err(QmpError::Line { command: command.into(), source })
            }
        }
    }

    fn ask(
        &mut self,
        command: &str,
        arguments: Value,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<Value, LineError> {
        if self.is_lost {
            return Err(LineError::Closed { path: self.lines.path().into() });
        }
        self.next_id += 1;
        let id = self.next_id;
        let line = json!({ "execute": command, "arguments": arguments, "id": id });
        self.lines.send(&[], &line, file, self.patience)?;
        let deadline = Deadline::after(self.patience);
        loop {
            let answer = self.lines.receive(deadline, self.patience)?;
            if answer.get("event").is_some() {
                continue;
            }
            let is_answer = answer.get("return").is_some() || answer.get("error").is_some();
            if !is_answer || answer["id"].as_u64() != Some(id) {
                return Err(self.lines.nonsense("an answer to a question that was not asked".into()));
            }
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    const GREETING: &str =
        r#"{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}}, "capabilities": []}}"#;

    /// A machine that greets, and then says each of `lines` after one more command; what the client makes of a command.
    #[allow(clippy::disallowed_methods, reason = "the other end needs a thread")]
    fn talk(greeting: &str, lines: Vec<String>) -> Result<Value, QmpError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let greeting = greeting.to_owned();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut commands = BufReader::new(socket.try_clone().unwrap()).lines();
            let _ = writeln!(socket, "{greeting}");
            for line in lines {
                if commands.next().is_none() {
                    return;
                }
                let _ = writeln!(socket, "{line}");
            }
            // Until the client has had enough.
            let _ = commands.count();
        });
        let patience = Duration::from_millis(300);
        let answer = Qmp::connect(&path, patience).and_then(|mut qmp| {
            let answer = qmp.execute("query-name", json!({}));
            let is_known = matches!(answer, Ok(_) | Err(QmpError::Refused { .. }));
            assert_eq!(qmp.is_lost(), !is_known);
            answer
        });
        server.join().unwrap();
        answer
    }

    fn agreed(line: &str) -> Vec<String> {
        vec![r#"{"return": {}, "id": 1}"#.into(), line.into()]
    }

    #[test]
    fn events_are_passed_over_and_answers_returned() {
        let answer =
            talk(GREETING, agreed("{\"event\": \"STOP\"}\n{\"return\": {\"name\": \"web\"}, \"id\": 2}"));
        assert_eq!(answer.unwrap()["name"], "web");
        let refused =
            talk(GREETING, agreed(r#"{"error": {"class": "GenericError", "desc": "No."}, "id": 2}"#));
        assert_eq!(refused.unwrap_err().to_string(), "QEMU refused query-name: No.");
    }

    #[test]
    fn a_machine_that_hangs_lies_or_goes_away_is_left() {
        let problem = |greeting: &str, lines| {
            let error = talk(greeting, lines).unwrap_err();
            let below = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error}; {below}")
        };
        assert!(problem("", Vec::new()).contains("no greeting"), "says nothing");
        assert!(problem("SSH-2.0", Vec::new()).contains("no line of JSON"), "is another protocol");
        assert!(problem("{}", Vec::new()).contains("says no version"), "another kind of JSON");
        let old = r#"{"QMP": {"version": {"qemu": {"minor": 12, "major": 2}}}}"#;
        assert!(problem(old, Vec::new()).contains("2.12"), "too old");
        assert!(problem(GREETING, Vec::new()).contains("no answer"), "hangs");
        assert!(problem(GREETING, agreed(r#"{"return": {}, "id": 7}"#)).contains("not asked"));
        assert!(problem(GREETING, agreed(r#"{"surprise": {}}"#)).contains("not asked"));
        assert!(problem(GREETING, agreed(&"[".repeat(100_000))).contains("no line of JSON"));
        assert!(problem(GREETING, agreed(&" ".repeat(LINE_BYTES))).contains("more than"));
    }

    const LINE_BYTES: usize = (16 << 20) + (1 << 15);
}
