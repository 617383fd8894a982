//! What opens a store, or is to open it: from a file, a program, the environment, or an answer.

mod source;

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use varve_store::{PassphraseCost, Secret};
use zeroize::Zeroizing;

pub use self::source::OpenToOthers;
use crate::arguments::{Arguments, Cost, NewSecret, WrongWords};

pub const PASSPHRASE: &str = "VARVE_PASSPHRASE";
const FROM_PASSPHRASE: &str = "VARVE_FROM_PASSPHRASE";
const NEW_PASSPHRASE: &str = "VARVE_NEW_PASSPHRASE";
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// How often a passphrase is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It is known already.
    Once,
    /// It is new, and a slip would lock everybody out.
    Twice,
}

/// A command may open the store twice, and its replicas; the first answer, of a person or of a program,
/// does for all of them.
/// The second one is that for a store which is copied from.
static ANSWER: Mutex<[Option<Zeroizing<String>>; 2]> = Mutex::new([None, None]);

/// Wipes the passphrase that was typed: nothing is opened any more.
pub fn forget_answer() {
    *ANSWER.lock() = [None, None];
}

/// What the command line and the environment give to open the store with, if they give anything.
pub fn what_is_given(arguments: &Arguments) -> Option<&'static str> {
    let variable = if arguments.is_source { FROM_PASSPHRASE } else { PASSPHRASE };
    match arguments {
        Arguments { key_file: Some(_), .. } => Some("a key file"),
        Arguments { passphrase_file: Some(_), .. } => Some("a passphrase file"),
        Arguments { passphrase_command: Some(_), .. } => Some("a passphrase command"),
        _ => std::env::var_os(variable).map(|_| variable),
    }
}

/// What opens the store: a key file, a passphrase from a file, a program or the environment, or an answer.
pub fn given(arguments: &Arguments, asked: Asked) -> Result<Secret> {
    if let Some(file) = &arguments.key_file {
        return if asked == Asked::Twice { new_key_file(file) } else { key_file(file) };
    }
    let of_source = arguments.is_source.then(|| std::env::var(FROM_PASSPHRASE).ok()).flatten();
    if let Some(passphrase) = of_source {
        return Ok(Secret::Passphrase(Zeroizing::new(passphrase)));
    }
    if let Some(file) = &arguments.passphrase_file {
        return source::passphrase_file(file).map(Secret::Passphrase);
    }
    let mut answers = ANSWER.lock();
    let [answer, of_source] = &mut *answers;
    let answer = if arguments.is_source { of_source } else { answer };
    if let Some(known) = answer.as_ref().filter(|_| asked == Asked::Once) {
        return Ok(Secret::Passphrase(known.clone()));
    }
    let secret = match (&arguments.passphrase_command, std::env::var(PASSPHRASE)) {
        (Some(command), _) => source::passphrase_of_command(command)?,
        (None, Ok(passphrase)) => return Ok(Secret::Passphrase(Zeroizing::new(passphrase))),
        (None, Err(_)) if !std::io::stdin().is_terminal() => {
            return Err(varve_store::KeyError::Missing.into());
        }
        (None, Err(_)) => {
            let of_source = arguments.is_source;
            ask(if of_source { "Passphrase of the store to copy from: " } else { "Passphrase: " }, asked)?
        }
    };
    *answer = Some(secret.clone());
    Ok(Secret::Passphrase(secret))
}

fn ask(prompt: &str, asked: Asked) -> Result<Zeroizing<String>> {
    let passphrase = Zeroizing::new(rpassword::prompt_password(prompt)?);
    if asked == Asked::Twice && *Zeroizing::new(rpassword::prompt_password("Again: ")?) != *passphrase {
        bail!("the two passphrases differ");
    }
    Ok(passphrase)
}

/// What is to open a new key: a key file, the environment, or an answer.
pub fn new(words: &NewSecret) -> Result<Secret> {
    if let Some(file) = &words.new_key_file {
        return new_key_file(file);
    }
    if let Ok(passphrase) = std::env::var(NEW_PASSPHRASE)
        && !words.new_passphrase
    {
        return Ok(Secret::Passphrase(Zeroizing::new(passphrase)));
    }
    if !std::io::stdin().is_terminal() {
        bail!("what is to open the new key? Name it with --new-key-file, or set {NEW_PASSPHRASE}");
    }
    ask("New passphrase: ", Asked::Twice).map(Secret::Passphrase)
}

/// What trying a new passphrase is to cost.
pub fn cost(words: &Cost) -> Result<PassphraseCost> {
    let memory_kib = u32::try_from(words.memory >> 10).ok();
    let chosen = memory_kib.and_then(|memory_kib| PassphraseCost::chosen(memory_kib, words.passes));
    let refused = || {
        format!(
            "a passphrase cannot be tried with {} MiB of memory in {} passes: from 8M to 4G, and from 1 to 64 passes",
            words.memory >> 20,
            words.passes
        )
    };
    Ok(chosen.ok_or_else(|| WrongWords(refused()))?)
}

/// A key file of a new key. All of it counts: of a longer one only the beginning would.
fn new_key_file(file: &Path) -> Result<Secret> {
    let secret = key_file(file)?;
    if matches!(&secret, Secret::KeyFile(contents) if contents.len() as u64 == KEY_FILE_BYTES_MAX) {
        bail!(
            "the key file {} is too long: 32 random bytes are enough, and 1 MiB is too much",
            file.display()
        );
    }
    Ok(secret)
}

fn key_file(file: &Path) -> Result<Secret> {
    let mut contents = Zeroizing::new(Vec::new());
    source::open(file, "key file")?
        .take(KEY_FILE_BYTES_MAX)
        .read_to_end(&mut contents)
        .with_context(|| format!("cannot read the key file {}", file.display()))?;
    Ok(Secret::KeyFile(contents))
}
