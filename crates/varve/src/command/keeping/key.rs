//! `varve key`

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_session::WithHint;
use varve_store::{KeyEntry, KeyError, Keyring, NewKey, OpenedKey, Role, Secret};
use varve_world::{Timestamp, World};
use zeroize::Zeroizing;

use super::paper_key;
use crate::arguments::{AddKeyArgs, KeyCommand, NewSecretArgs};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// Upper bound on typed input.
const TYPED_BYTES_MAX: u64 = 64 << 10;

pub fn run(invocation: &Invocation, args: &KeyCommand) -> Result<CommandOutcome> {
    let keyring = invocation.session.keyring()?;
    match args {
        KeyCommand::Add(args) => add(invocation, &keyring, args),
        KeyCommand::List => list(invocation, &keyring),
        KeyCommand::Change(secret) => change(invocation, &keyring, secret),
        KeyCommand::Remove { id } => remove(invocation, &keyring, id),
        KeyCommand::Export { svg } => export(invocation, &keyring, *svg),
        KeyCommand::Import { file, secret, label } => {
            import(invocation, &keyring, file.as_deref(), secret, label)
        }
    }
}

/// Opens the key with the secret from the arguments, the environment or an answer.
fn unlock(invocation: &Invocation, keyring: &Keyring) -> Result<OpenedKey> {
    Ok(keyring.unlock(&invocation.session.secret()?)?)
}

fn add(invocation: &Invocation, keyring: &Keyring, args: &AddKeyArgs) -> Result<CommandOutcome> {
    let role = match (args.write_only, args.append_only) {
        (true, _) => Role::WriteOnly,
        (_, true) => Role::AppendOnly,
        _ => Role::Full,
    };
    // The old key comes first: a user who cannot open the store is asked for nothing more.
    let by = unlock(invocation, keyring)?;
    let new = make(invocation, keyring, &by, &args.secret, &args.label, role)?;
    tell(invocation, "made", &new);
    if role == Role::WriteOnly && !invocation.quiet && !invocation.json {
        say!("Its holder can add snapshots, but read nothing, not even those snapshots.");
    }
    Ok(CommandOutcome::Done)
}

fn make(
    invocation: &Invocation,
    keyring: &Keyring,
    by: &OpenedKey,
    args: &NewSecretArgs,
    label: &str,
    role: Role,
) -> Result<KeyEntry> {
    let cost = varve_session::cost(args.cost.memory, args.cost.passes)?;
    let secret = invocation.session.new_secret(args.new_key_file.as_deref(), args.new_passphrase)?;
    remark_short(invocation, &secret);
    let new = NewKey { secret: &secret, cost, label, role };
    invocation.session.until_free(None, || Ok(keyring.add(by, &new)?))
}

fn change(invocation: &Invocation, keyring: &Keyring, args: &NewSecretArgs) -> Result<CommandOutcome> {
    let by = unlock(invocation, keyring)?;
    let cost = varve_session::cost(args.cost.memory, args.cost.passes)?;
    let secret = invocation.session.new_secret(args.new_key_file.as_deref(), args.new_passphrase)?;
    remark_short(invocation, &secret);
    let new = invocation.session.until_free(None, || Ok(keyring.change(&by, &secret, cost)?))?;
    if invocation.json {
        say::record("key_removed", json!({ "id": by.entry.id }));
    }
    tell(invocation, &format!("removed key {}, and made", by.entry.id), &new);
    Ok(CommandOutcome::Done)
}

/// Shorter passphrases fall to exhaustive search, whatever a try costs.
const PASSPHRASE_CHARACTERS_MIN: usize = 8;

/// Warns that a new passphrase is too short to stop a determined attacker.
pub(super) fn remark_short(invocation: &Invocation, secret: &Secret) {
    let Secret::Passphrase(passphrase) = secret else { return };
    let length = passphrase.chars().count();
    if length < PASSPHRASE_CHARACTERS_MIN && !invocation.quiet {
        warning!(
            "a passphrase of {} can soon be guessed by anybody who holds the store or a replica of it: choose several words",
            show::count(length, "character")
        );
    }
}

fn remove(invocation: &Invocation, keyring: &Keyring, id: &str) -> Result<CommandOutcome> {
    let by = unlock(invocation, keyring)?;
    let removed = invocation.session.until_free(None, || keyring.remove(&by, id).with_hint(last_key))?;
    if invocation.json {
        say::record("key_removed", json!({ "id": removed }));
    } else if !invocation.quiet {
        say!("removed key {removed}");
    }
    Ok(CommandOutcome::Done)
}

fn last_key(error: &KeyError) -> Option<&'static str> {
    matches!(error, KeyError::Last { .. }).then_some("add another key first: `varve key add`")
}

fn export(invocation: &Invocation, keyring: &Keyring, svg: bool) -> Result<CommandOutcome> {
    let by = unlock(invocation, keyring)?;
    let paper = keyring.export(&by)?;
    let path = invocation.session.store_path()?;
    let store = varve_store::Store::read_config(&World::real(&path))?;
    let page = paper_key::PaperKeyPage::new(paper.lines(), &store.id, &path);
    let text = Zeroizing::new(if svg { page.svg()? } else { page.text()? });
    if invocation.json {
        say::record("paper_key", json!({ "page": text.trim_end() }));
        return Ok(CommandOutcome::Done);
    }
    say!("{}", text.trim_end());
    if std::io::stdout().is_terminal() {
        notice!("This key opens the whole store. Print it, put it away, and clear this screen.");
    }
    Ok(CommandOutcome::Done)
}

fn import(
    invocation: &Invocation,
    keyring: &Keyring,
    file: Option<&Path>,
    args: &NewSecretArgs,
    label: &str,
) -> Result<CommandOutcome> {
    let typed = typed(file)?;
    let by = keyring.unlock_paper(&typed)?;
    let new = make(invocation, keyring, &by, args, label, Role::Full)?;
    tell(invocation, "made", &new);
    Ok(CommandOutcome::Done)
}

fn typed(file: Option<&Path>) -> Result<Zeroizing<String>> {
    let mut typed = Zeroizing::new(String::new());
    match file.filter(|file| *file != Path::new("-")) {
        Some(file) => std::fs::File::open(file)
            .and_then(|opened| opened.take(TYPED_BYTES_MAX).read_to_string(&mut typed))
            .with_context(|| format!("cannot read {}", file.display()))?,
        None => {
            if std::io::stdin().is_terminal() {
                notice!("Type in the five lines, each with its number, and then an empty line.");
                return typed_at_a_terminal();
            }
            std::io::stdin().lock().take(TYPED_BYTES_MAX).read_to_string(&mut typed)?
        }
    };
    Ok(typed)
}

fn typed_at_a_terminal() -> Result<Zeroizing<String>> {
    let mut typed = Zeroizing::new(String::new());
    loop {
        let mut line = Zeroizing::new(String::new());
        if std::io::stdin().read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        typed.push_str(&line);
    }
    if typed.is_empty() {
        bail!("no lines were typed in");
    }
    Ok(typed)
}

fn list(invocation: &Invocation, keyring: &Keyring) -> Result<CommandOutcome> {
    let (entries, damaged) = keyring.list()?;
    if invocation.json {
        entries.iter().for_each(|entry| say::item("key", as_json(entry)));
        damaged.iter().for_each(|file| say::item("damaged_key", json!({ "file": file.to_string() })));
    } else {
        let mut table = show::table(&["id", "made", "kind", "role", "cost", "label"], &[]);
        for entry in &entries {
            let cost = entry.passphrase.map_or(String::new(), |cost| {
                let memory = show::bytes(u64::from(cost.memory_kib) << 10);
                format!("{memory}, {}", show::count(cost.passes, "pass"))
            });
            let label = show::name(entry.label.as_bytes());
            table.add_row([
                entry.id.clone(),
                made(entry),
                kind(entry).into(),
                entry.role.to_string(),
                cost,
                label,
            ]);
        }
        say!("{}", table.trim_fmt());
        for file in &damaged {
            warning!("{file} is damaged, and opens nothing");
        }
        for file in keyring.newer()? {
            warning!("{file} was made by a newer version of this program, which alone can use it");
        }
    }
    Ok(if damaged.is_empty() { CommandOutcome::Done } else { CommandOutcome::Damage })
}

fn tell(invocation: &Invocation, done: &str, entry: &KeyEntry) {
    if invocation.json {
        say::record("key_made", as_json(entry));
    } else if !invocation.quiet {
        let label = if entry.label.is_empty() {
            String::new()
        } else {
            format!(" ({})", show::name(entry.label.as_bytes()))
        };
        say!("{done} key {}{label}: a {} that is {}", entry.id, kind(entry), entry.role);
    }
}

fn kind(entry: &KeyEntry) -> &'static str {
    if entry.passphrase.is_some() { "passphrase" } else { "key file" }
}

fn moment_made(entry: &KeyEntry) -> Option<Timestamp> {
    Some(Timestamp(i64::try_from(entry.created?).ok()?.checked_mul(1_000_000_000)?))
}

fn made(entry: &KeyEntry) -> String {
    moment_made(entry).map_or_else(|| "unknown".into(), moment::show)
}

fn as_json(entry: &KeyEntry) -> Value {
    json!({
        "id": entry.id,
        "label": entry.label,
        "kind": kind(entry),
        "role": entry.role.to_string(),
        "created": moment_made(entry).map(moment::rfc3339),
        "memory": entry.passphrase.map(|cost| u64::from(cost.memory_kib) << 10),
        "passes": entry.passphrase.map(|cost| cost.passes),
    })
}
