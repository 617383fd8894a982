//! Reads secrets from files and programs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use varve_world::{FileUse, ProgramGroup, require_trusted};
use zeroize::Zeroizing;

use crate::failure::UsageError;
use crate::hinted::WithHint;

/// Upper bound on the length of a passphrase, and of a key that a program prints.
const SECRET_BYTES_MAX: u64 = 64 << 10;

const EXPOSED: &str = "if others may have read or changed it, make another key";

/// Opens a file with a secret. As ssh does with keys, it refuses a file of the current user that
/// other users may read, and any file that others may write. That nobody else reads a file of
/// another owner, such as one that root gives to a service, is that owner's responsibility.
///
/// # Errors
/// The file cannot be opened, or is open to others.
pub fn open_secret_file(path: &Path, what: &str) -> Result<File> {
    let context = || format!("cannot read the {what} {}", path.display());
    let file = File::open(path).with_context(context)?;
    let found = file.metadata().with_context(context)?;
    require_trusted(path, &found, FileUse::Secret).with_hint(|_| Some(EXPOSED)).with_context(context)?;
    Ok(file)
}

/// Reads the passphrase in a file, which must have one line.
pub(super) fn passphrase_file(path: &Path) -> Result<Zeroizing<String>> {
    let file = open_secret_file(path, "passphrase file")?;
    let context = || format!("the passphrase file {}", path.display());
    let bytes = read_all(file).with_context(context)?;
    one_line(&bytes).with_context(context)
}

/// Reads the passphrase that a program prints.
pub(super) fn passphrase_of_command(line: &str, patience: Duration) -> Result<Zeroizing<String>> {
    let (program, bytes) = output_of(line, "passphrase", patience)?;
    one_line(&bytes).with_context(|| format!("the passphrase command {program}"))
}

/// Reads the contents of a key file that a program prints. All bytes belong to the key.
pub(super) fn key_of_command(line: &str, patience: Duration) -> Result<Zeroizing<Vec<u8>>> {
    let (program, bytes) = output_of(line, "key-file", patience)?;
    if bytes.is_empty() {
        bail!("the key-file command {program} prints nothing");
    }
    Ok(bytes)
}

/// Runs the program of the option `--KIND-command`, without a shell, and with an empty standard
/// input. Returns its name and its output. It is ended when its time is over.
fn output_of(line: &str, kind: &str, patience: Duration) -> Result<(String, Zeroizing<Vec<u8>>)> {
    let words = split(line).map_err(|wrong| UsageError(format!("--{kind}-command: {wrong}")))?;
    let Some((program, arguments)) = words.split_first() else {
        bail!(UsageError(format!("--{kind}-command is empty")));
    };
    let context = || format!("the {kind} command {program}");
    // It may need the secrets of the environment, and may ask at the terminal.
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut printer = ProgramGroup::spawn_with_terminal(&mut command).with_context(context)?;
    let until = now() + patience;
    let output =
        printer.child().stdout.take().map(|output| read_all(ReadUntil { output, until })).transpose();
    // The pipe is closed now, so a program that still prints ends, too.
    let early = printer.end_within(Some(until.saturating_duration_since(now())), &|| false);
    let status = printer.wait().with_context(context)?;
    if early.is_some() {
        let seconds = patience.as_secs_f64();
        return Err(anyhow!("it has not ended within {seconds} s, and was ended")).with_context(context);
    }
    let bytes = output.with_context(context)?.unwrap_or_default();
    if !status.success() {
        return Err(anyhow!("it failed: {status}")).with_context(context);
    }
    Ok((program.clone(), bytes))
}

#[expect(clippy::disallowed_methods, reason = "another program is awaited in real time")]
fn now() -> Instant {
    Instant::now()
}

/// The output of a program, up to a moment. After it, the output has ended.
struct ReadUntil {
    output: ChildStdout,
    until: Instant,
}

impl Read for ReadUntil {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let rest = self.until.saturating_duration_since(now());
        let timeout = Timespec::try_from(rest).map_err(io::Error::other)?;
        let mut waited = [PollFd::new(&self.output, PollFlags::IN)];
        match poll(&mut waited, Some(&timeout)) {
            Ok(0) => Ok(0),
            Ok(_) => self.output.read(into),
            Err(error) => Err(error.into()),
        }
    }
}

fn read_all(from: impl Read) -> Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    from.take(SECRET_BYTES_MAX).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == SECRET_BYTES_MAX {
        bail!("it is too long for a secret");
    }
    Ok(bytes)
}

/// Removes the line break at the end. A text of several lines is refused: it is more likely a key
/// than a passphrase.
fn one_line(bytes: &[u8]) -> Result<Zeroizing<String>> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match std::str::from_utf8(line) {
        Ok("") => bail!("it is empty"),
        Ok(line) if line.contains('\n') => {
            bail!(
                "it has several lines, but a passphrase is one line; use --key-file for a file of random bytes"
            )
        }
        Ok(line) => Ok(Zeroizing::new(line.into())),
        Err(_) => bail!("it is not text; use --key-file for a file of random bytes"),
    }
}

/// Splits a command line into arguments at white space. Quotes and backslashes protect white space.
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let escaped = characters.next().ok_or("it ends with a backslash")?;
                word.get_or_insert_default().push(escaped);
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    match quote {
        Some(quote) => Err(format!("a {quote} is not closed")),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_split_at_white_space() {
        for (line, words) in [
            ("", &[][..]),
            ("  pass  show varve ", &["pass", "show", "varve"]),
            ("cat 'a b' \"c d\" e\\ f", &["cat", "a b", "c d", "e f"]),
            ("x '' \"\\\"\" 'a\\b'$HOME", &["x", "", "\"", "a\\b$HOME"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        for wrong in ["'a", "a \"", "a\\"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let begun = now();
        for line in ["sleep 60", "sh -c 'echo open; exec sleep 60'", "sh -c 'exec >&-; exec sleep 60'"] {
            let error = passphrase_of_command(line, Duration::from_millis(300)).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains("it has not ended within 0.3 s"), "{line}: {text}");
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        let passphrase = passphrase_of_command("echo open sesame", Duration::from_secs(60)).unwrap();
        assert_eq!(*passphrase, "open sesame");
    }

    #[test]
    fn a_passphrase_is_one_line() {
        for (bytes, passphrase) in [
            (&b"open sesame\n"[..], "open sesame"),
            (b"x", "x"),
            (b" y \r\n", " y "),
            ("grün\n".as_bytes(), "grün"),
        ] {
            assert_eq!(*one_line(bytes).unwrap(), passphrase);
        }
        for wrong in [&b""[..], b"\n", b"\r\n", b"a\nb\n", b"\n\n", b"\xff\n"] {
            assert!(one_line(wrong).is_err(), "{wrong:?}");
        }
    }
}
