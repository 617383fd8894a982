//! The secret that opens a store or will open a new one: from a file, a program, the environment,
//! or an answer.

mod source;

pub use source::open_secret_file;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use varve_store::{KeyError, PassphraseCost, Secret};
use zeroize::Zeroizing;

use crate::failure::UsageError;
use crate::user_interface::UserInterface;

/// The environment variable that holds the passphrase.
pub const PASSPHRASE_VARIABLE: &str = "VARVE_PASSPHRASE";
const FROM_PASSPHRASE: &str = "VARVE_FROM_PASSPHRASE";
const NEW_PASSPHRASE: &str = "VARVE_NEW_PASSPHRASE";
/// A program that asks a person for another passphrase needs its time.
const COMMAND_PATIENCE: Duration = Duration::from_secs(120);
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// The number of times that a passphrase is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptCount {
    /// The passphrase exists: a wrong one is refused.
    Once,
    /// The passphrase is new: a typing error would lock everybody out.
    Twice,
}

/// The options that name the secret on a command line.
#[expect(missing_docs, reason = "the names explain themselves")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyOptions {
    pub key_file: Option<PathBuf>,
    pub key_file_command: Option<String>,
    pub passphrase_file: Option<PathBuf>,
    pub passphrase_command: Option<String>,
}

/// The store to which a key belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyOwner {
    /// The store on which the command works.
    Own,
    /// The source store of a copy, which may have another key.
    Source,
}

/// Finds the secret of a store: from the options of the command line, and from the answers so far.
#[derive(Clone)]
pub(crate) struct SecretFinder {
    options: KeyOptions,
    of: KeyOwner,
    answers: Arc<Mutex<SecretAnswers>>,
    frontend: Arc<dyn UserInterface>,
}

/// The answers so far. A command may open the store twice, and its replicas. The first answer of a
/// person or a program serves all of them. It is wiped when the session ends.
#[derive(Default)]
struct SecretAnswers {
    own: Option<Zeroizing<String>>,
    /// The output of the key file command.
    own_key: Option<Zeroizing<Vec<u8>>>,
    source: Option<Zeroizing<String>>,
}

impl SecretFinder {
    pub(crate) fn new(options: KeyOptions, frontend: Arc<dyn UserInterface>) -> Self {
        Self { options, of: KeyOwner::Own, answers: Arc::default(), frontend }
    }

    /// Returns the keys of the source store of a copy, with the same options and answers.
    pub(crate) fn of_source(&self) -> Self {
        Self { of: KeyOwner::Source, ..self.clone() }
    }

    /// Returns the same keys with another key file.
    pub(crate) fn with_key_file(self, file: &Path) -> Self {
        Self { options: KeyOptions { key_file: Some(file.into()), ..self.options }, ..self }
    }

    /// Returns the same keys without any options, for a store without encryption.
    pub(crate) fn without_options(self) -> Self {
        Self { options: KeyOptions::default(), ..self }
    }

    pub(crate) fn key_file(&self) -> Option<&Path> {
        self.options.key_file.as_deref()
    }

    /// Names the option or environment variable that gives a secret, if there is one.
    pub(crate) fn what_is_given(&self) -> Option<&'static str> {
        let variable = match self.of {
            KeyOwner::Own => PASSPHRASE_VARIABLE,
            KeyOwner::Source => FROM_PASSPHRASE,
        };
        match &self.options {
            KeyOptions { key_file: Some(_), .. } => Some("a key file"),
            KeyOptions { key_file_command: Some(_), .. } => Some("a key file command"),
            KeyOptions { passphrase_file: Some(_), .. } => Some("a passphrase file"),
            KeyOptions { passphrase_command: Some(_), .. } => Some("a passphrase command"),
            _ => std::env::var_os(variable).map(|_| variable),
        }
    }

    /// Returns the secret that opens the store: a key file, a passphrase from a file, a program or
    /// the environment, or an answer.
    pub(crate) fn given(&self, asked: PromptCount) -> Result<Secret> {
        if let Some(file) = &self.options.key_file {
            return if asked == PromptCount::Twice { new_key_file(file) } else { key_file(file) };
        }
        if self.of == KeyOwner::Source
            && let Ok(passphrase) = std::env::var(FROM_PASSPHRASE)
        {
            return Ok(Secret::Passphrase(Zeroizing::new(passphrase)));
        }
        if let Some(command) = &self.options.key_file_command {
            return self.key_of_command(command);
        }
        if let Some(file) = &self.options.passphrase_file {
            return source::passphrase_file(file).map(Secret::Passphrase);
        }
        let mut answers = self.answers.lock();
        let (answer, prompt) = match self.of {
            KeyOwner::Own => (&mut answers.own, "Passphrase: "),
            KeyOwner::Source => (&mut answers.source, "Passphrase of the store to copy from: "),
        };
        if let Some(known) = answer.as_ref().filter(|_| asked == PromptCount::Once) {
            return Ok(Secret::Passphrase(known.clone()));
        }
        let secret = match (&self.options.passphrase_command, std::env::var(PASSPHRASE_VARIABLE)) {
            (Some(command), _) => source::passphrase_of_command(command, COMMAND_PATIENCE)?,
            (None, Ok(passphrase)) => return Ok(Secret::Passphrase(Zeroizing::new(passphrase))),
            (None, Err(_)) if !self.frontend.can_ask() => return Err(KeyError::Missing.into()),
            (None, Err(_)) => ask(self.frontend.as_ref(), prompt, asked)?,
        };
        *answer = Some(secret.clone());
        Ok(Secret::Passphrase(secret))
    }

    /// Returns the contents of the key file that a program prints. The program is run once.
    fn key_of_command(&self, command: &str) -> Result<Secret> {
        let mut answers = self.answers.lock();
        let known = match &answers.own_key {
            Some(known) => known.clone(),
            None => source::key_of_command(command, COMMAND_PATIENCE)?,
        };
        answers.own_key = Some(known.clone());
        Ok(Secret::KeyFile(known))
    }

    /// Returns the secret of a new key: the key file, the environment, or an answer. If `is_asked`,
    /// the passphrase is asked for even if the environment has one.
    pub(crate) fn new_secret(&self, file: Option<&Path>, is_asked: bool) -> Result<Secret> {
        if let Some(file) = file {
            return new_key_file(file);
        }
        if let Ok(passphrase) = std::env::var(NEW_PASSPHRASE)
            && !is_asked
        {
            return Ok(Secret::Passphrase(Zeroizing::new(passphrase)));
        }
        if !self.frontend.can_ask() {
            bail!(
                "a new key needs a passphrase or a key file: name it with --new-key-file, or set {NEW_PASSPHRASE}"
            );
        }
        ask(self.frontend.as_ref(), "New passphrase: ", PromptCount::Twice).map(Secret::Passphrase)
    }
}

fn ask(frontend: &dyn UserInterface, prompt: &str, asked: PromptCount) -> Result<Zeroizing<String>> {
    let passphrase = frontend.ask(prompt)?;
    if asked == PromptCount::Twice && *frontend.ask("Again: ")? != *passphrase {
        bail!("the two passphrases differ");
    }
    Ok(passphrase)
}

/// Returns the cost of each attempt at a new passphrase.
///
/// # Errors
/// [`UsageError`] if it is out of bounds.
pub fn cost(memory_bytes: u64, passes: u32) -> Result<PassphraseCost> {
    let memory_kib = u32::try_from(memory_bytes >> 10).ok();
    let chosen = memory_kib.and_then(|memory_kib| PassphraseCost::chosen(memory_kib, passes));
    let refused = || {
        format!(
            "{} MiB of memory in {passes} passes is out of range: use 8M to 4G of memory, and 1 to 64 passes",
            memory_bytes >> 20,
        )
    };
    Ok(chosen.ok_or_else(|| UsageError(refused()))?)
}

/// Reads the key file of a new key. The whole file must count: if it is longer than allowed, only
/// its beginning would.
fn new_key_file(file: &Path) -> Result<Secret> {
    let secret = key_file(file)?;
    if matches!(&secret, Secret::KeyFile(contents) if contents.len() as u64 == KEY_FILE_BYTES_MAX) {
        bail!(
            "the key file {} is too long: 32 random bytes are enough, and the limit is 1 MiB",
            file.display()
        );
    }
    Ok(secret)
}

fn key_file(file: &Path) -> Result<Secret> {
    let mut contents = Zeroizing::new(Vec::new());
    open_secret_file(file, "key file")?
        .take(KEY_FILE_BYTES_MAX)
        .read_to_end(&mut contents)
        .with_context(|| format!("cannot read the key file {}", file.display()))?;
    Ok(Secret::KeyFile(contents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::Recorded;

    fn keys(frontend: &Arc<Recorded>) -> SecretFinder {
        SecretFinder::new(KeyOptions::default(), Arc::clone(frontend) as _)
    }

    fn text(secret: Secret) -> String {
        match secret {
            Secret::Passphrase(passphrase) => passphrase.to_string(),
            Secret::KeyFile(_) => panic!("a key file"),
        }
    }

    #[test]
    fn one_answer_does_for_the_whole_session_and_a_source_has_its_own() {
        let frontend = Recorded::answering(&["own", "other"]);
        let keys = keys(&frontend);
        for _ in 0..2 {
            assert_eq!(text(keys.clone().given(PromptCount::Once).unwrap()), "own");
            assert_eq!(text(keys.of_source().given(PromptCount::Once).unwrap()), "other");
        }
        assert_eq!(*frontend.prompts.lock(), ["Passphrase: ", "Passphrase of the store to copy from: "]);
    }

    #[test]
    fn a_new_passphrase_is_asked_for_twice() {
        let frontend = Recorded::answering(&["a", "a", "a", "b"]);
        let keys = keys(&frontend);
        assert_eq!(text(keys.given(PromptCount::Twice).unwrap()), "a");
        let error = keys.new_secret(None, true).err().unwrap();
        assert_eq!(error.to_string(), "the two passphrases differ");
        assert_eq!(*frontend.prompts.lock(), ["Passphrase: ", "Again: ", "New passphrase: ", "Again: "]);
    }

    #[test]
    fn a_missing_secret_is_its_own_kind_of_error() {
        let error = keys(&Recorded::answering(&[])).given(PromptCount::Once).err().unwrap();
        assert!(matches!(error.downcast_ref(), Some(KeyError::Missing)), "{error:#}");
    }
}
