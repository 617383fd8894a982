//! QEMU's monitor protocol (QMP): commands to a running machine, and their answers. QEMU executes
//! one command after the other. Independent commands are sent together, since most of the time of a
//! command is the round trip.
//!
//! Invariant: after an error other than [`QmpError::Refused`] the state of the machine is unknown,
//! and the connection is not used again; [`Qmp::again`] makes a new one.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use varve_block::visible;

use crate::edge::Deadline;
use crate::json_lines::{JsonLines, LineError};

/// The largest number of commands in flight. All their lines fit into the socket's buffer, so that
/// both sides never block on sending.
const TOGETHER_MAX: usize = 32;
/// The oldest QEMU with all the commands that are used here.
const VERSION_MIN: (u64, u64) = (5, 2);

/// The reason why a command failed, or why its result is unknown.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// There was no valid answer.
    #[error("{command}: no answer")]
    Line { command: String, source: LineError },
    /// QEMU refused the command.
    #[error("QEMU refused {command}: {said}")]
    Refused {
        command: String,
        /// The reason that QEMU gives.
        said: String,
    },
    /// The peer is not QEMU, or another client uses the socket.
    #[error("{path} sent no greeting of QEMU: make sure that it is a QMP socket, and that no other program uses it", path = path.display())]
    Greeting { path: std::path::PathBuf, source: LineError },
    /// QEMU is too old.
    #[error("QEMU {major}.{minor} is too old: this needs QEMU 5.2")]
    Version { major: u64, minor: u64 },
    /// An answer lacks a mandatory field.
    #[error("{command}: the answer has no {what}")]
    Lacks {
        command: String,
        /// The missing field.
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
    /// Connects. `patience` is the time limit for each answer.
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
            return Err(no_greeting(lines.nonsense("the first line has no version".into())));
        };
        if (major, minor) < VERSION_MIN {
            return Err(QmpError::Version { major, minor });
        }
        let version = (major, minor, version["micro"].as_u64().unwrap_or(0));
        let mut qmp = Self { lines, version, patience, next_id: 0, is_lost: false };
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.lines.path()
    }

    /// Returns QEMU's version.
    #[must_use]
    pub fn version(&self) -> (u64, u64, u64) {
        self.version
    }

    /// Returns true if the connection is in an unknown state and must not be used.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Connects to the same machine again, after this connection was lost.
    ///
    /// # Errors
    /// [`QmpError`].
    pub(crate) fn again(&mut self) -> Result<(), QmpError> {
        *self = Self::connect(self.lines.path(), self.patience)?;
        Ok(())
    }

    /// Executes a command.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.execute_with(command, arguments, None)
    }

    /// Executes a command that takes an open file.
    ///
    /// # Errors
    /// [`QmpError`].
    pub(crate) fn execute_with(
        &mut self,
        command: &str,
        arguments: Value,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<Value, QmpError> {
        let mut answers = self.ask(&[(command, arguments)], file)?;
        answers.pop().expect("there is an answer to each command")
    }

    /// Executes commands in order, each regardless of the results before it. Returns the answers in
    /// the same order: QEMU's result, or [`QmpError::Refused`].
    ///
    /// # Errors
    /// Any other [`QmpError`].
    pub(crate) fn execute_all(
        &mut self,
        commands: &[(&str, Value)],
    ) -> Result<Vec<Result<Value, QmpError>>, QmpError> {
        let mut answers = Vec::with_capacity(commands.len());
        for some in commands.chunks(TOGETHER_MAX) {
            answers.extend(self.ask(some, None)?);
        }
        Ok(answers)
    }

    /// Executes a fixed number of commands in the same way.
    ///
    /// # Errors
    /// As [`Self::execute_all`].
    pub(crate) fn execute_together<const COUNT: usize>(
        &mut self,
        commands: [(&str, Value); COUNT],
    ) -> Result<[Result<Value, QmpError>; COUNT], QmpError> {
        let answers = self.execute_all(&commands)?;
        Ok(answers.try_into().expect("there is an answer to each command"))
    }

    fn ask(
        &mut self,
        commands: &[(&str, Value)],
        file: Option<BorrowedFd<'_>>,
    ) -> Result<Vec<Result<Value, QmpError>>, QmpError> {
        let first_id = self.next_id + 1;
        let lines: Vec<Value> = (first_id..)
            .zip(commands)
            .map(|(id, (command, arguments))| json!({ "execute": command, "arguments": arguments, "id": id }))
            .collect();
        self.next_id += lines.len() as u64;
        let sent = match self.is_lost {
            true => Err(LineError::Closed { path: self.lines.path().into() }),
            false => self.lines.send(&[], &lines, file, self.patience),
        };
        let mut answers = Vec::with_capacity(commands.len());
        let mut failure = sent.err();
        for (id, (command, _)) in (first_id..).zip(commands) {
            let answer = failure.take().map_or_else(|| self.answer(id), Err);
            let mut answer = answer.map_err(|source| {
                self.is_lost = true;
                QmpError::Line { command: (*command).into(), source }
            })?;
            answers.push(match answer.get("error") {
                Some(error) => {
                    let said = visible(error["desc"].as_str().unwrap_or("it gives no reason"));
                    Err(QmpError::Refused { command: (*command).into(), said })
                }
                None => Ok(answer["return"].take()),
            });
        }
        Ok(answers)
    }

    /// Receives the answer to the command with this number.
    fn answer(&mut self, id: u64) -> Result<Value, LineError> {
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

    /// Runs a machine that greets, and sends each of `lines` after one more command. Returns the
    /// client's result of a command.
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
            // Until the client disconnects.
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
        let misleading = r#"{"error": {"desc": "\u001b[2JThe 'night'\nis whole"}, "id": 2}"#;
        let shown = talk(GREETING, agreed(misleading)).unwrap_err().to_string();
        assert_eq!(shown, r"QEMU refused query-name: \u{1b}[2JThe 'night'\nis whole");
    }

    #[test]
    fn a_machine_that_hangs_lies_or_goes_away_is_left() {
        let problem = |greeting: &str, lines| {
            let error = talk(greeting, lines).unwrap_err();
            let below = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            format!("{error}; {below}")
        };
        assert!(problem("", Vec::new()).contains("no greeting"), "says nothing");
        assert!(problem("SSH-2.0", Vec::new()).contains("a line is not JSON"), "is another protocol");
        assert!(problem("{}", Vec::new()).contains("has no version"), "another kind of JSON");
        let old = r#"{"QMP": {"version": {"qemu": {"minor": 12, "major": 2}}}}"#;
        assert!(problem(old, Vec::new()).contains("2.12"), "too old");
        assert!(problem(GREETING, Vec::new()).contains("no answer"), "hangs");
        assert!(problem(GREETING, agreed(r#"{"return": {}, "id": 7}"#)).contains("not asked"));
        assert!(problem(GREETING, agreed(r#"{"surprise": {}}"#)).contains("not asked"));
        assert!(problem(GREETING, agreed(&"[".repeat(100_000))).contains("a line is not JSON"));
        assert!(problem(GREETING, agreed(&" ".repeat(LINE_BYTES))).contains("longer than"));
    }

    /// Runs a machine that reads all of some commands before it answers, and then sends each of
    /// these lines.
    #[allow(clippy::disallowed_methods, reason = "the other end needs a thread")]
    fn talk_together(count: usize, lines: &[&str]) -> (Result<Vec<String>, QmpError>, bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let said = lines.join("\n");
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut commands = BufReader::new(socket.try_clone().unwrap()).lines();
            let _ = writeln!(socket, "{GREETING}");
            commands.next();
            let _ = socket.write_all(b"{\"return\": {}, \"id\": 1}\n");
            let taken: Vec<_> = commands.by_ref().take(count).map(Result::unwrap).collect();
            let _ = writeln!(socket, "{said}");
            let _ = commands.count();
            taken
        });
        let mut qmp = Qmp::connect(&path, Duration::from_millis(300)).unwrap();
        let commands: Vec<_> = (0..count).map(|number| ("query-name", json!({ "number": number }))).collect();
        let answers = qmp.execute_all(&commands);
        let is_lost = qmp.is_lost();
        drop(qmp);
        let taken = server.join().unwrap();
        assert_eq!(taken.len(), count, "all were sent before the first was answered");
        let say = |answer: Result<Value, QmpError>| {
            answer.map_or_else(|error| error.to_string(), |said| said.to_string())
        };
        (answers.map(|answers| answers.into_iter().map(say).collect()), is_lost)
    }

    #[test]
    fn what_is_asked_together_is_answered_in_order() {
        let lines = [
            r#"{"return": "a", "id": 2}"#,
            r#"{"event": "STOP"}"#,
            r#"{"error": {"desc": "No."}, "id": 3}"#,
            r#"{"return": "c", "id": 4}"#,
        ];
        let (answers, is_lost) = talk_together(3, &lines);
        assert_eq!(answers.unwrap(), ["\"a\"", "QEMU refused query-name: No.", "\"c\""]);
        assert!(!is_lost, "to refuse one of them is to answer it");
        let none = talk_together(0, &[]);
        assert_eq!((none.0.unwrap().len(), none.1), (0, false));
    }

    #[test]
    fn a_machine_that_does_not_answer_all_or_in_another_order_is_left() {
        let problem = |lines: &[&str]| {
            let (answers, is_lost) = talk_together(2, lines);
            assert!(is_lost);
            std::error::Error::source(&answers.unwrap_err()).unwrap().to_string()
        };
        let (first, second) = (r#"{"return": 1, "id": 2}"#, r#"{"return": 2, "id": 3}"#);
        assert!(problem(&[second, first]).contains("not asked"), "in another order");
        assert!(problem(&[first, first]).contains("not asked"), "the same twice");
        assert!(problem(&[first]).contains("no answer"), "only some");
        assert!(problem(&[first, "nonsense"]).contains("a line is not JSON"));
    }

    #[test]
    fn long_answers_to_many_commands_do_not_make_both_ends_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        #[allow(clippy::disallowed_methods, reason = "the other end needs a thread")]
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let commands = BufReader::new(socket.try_clone().unwrap()).lines();
            let _ = writeln!(socket, "{GREETING}");
            for line in commands.map_while(Result::ok) {
                let question: Value = serde_json::from_str(&line).unwrap();
                // All answers together exceed the buffer of a socket.
                let answer = json!({ "return": "x".repeat(100_000), "id": question["id"] });
                writeln!(socket, "{answer}").unwrap();
            }
        });
        let mut qmp = Qmp::connect(&path, Duration::from_secs(60)).unwrap();
        let long = "y".repeat(200);
        let commands: Vec<_> =
            (0..TOGETHER_MAX * 2 + 1).map(|_| ("query-name", json!({ "x": long }))).collect();
        let answers = qmp.execute_all(&commands).unwrap();
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), commands.len());
        drop(qmp);
        server.join().unwrap();
    }

    const LINE_BYTES: usize = (16 << 20) + (1 << 15);
}
