//! `varve setup`: asks five questions, writes a configuration, and makes its store or joins one
//! that is there.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};
use varve_block::to_hex;
use varve_content::{NewFile, PRIVATE};
use varve_daily::{ConfigText, DailyConfig, Every, id_at, own_file, session_at};
use varve_session::{Hinted, KeyOptions, UsageError, target};
use varve_store::{Permission, Role};
use varve_world::{Random, RealRandom};

use crate::arguments::SetupArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::terminal::Terminal;

/// A key file has as many random bytes.
const KEY_BYTES: usize = 32;
/// The folder of the units that packages install.
const UNITS: &str = "/usr/lib/systemd";
/// A longer file holds no answers.
const ANSWERS_BYTES_MAX: u64 = 1 << 20;
/// The answer about a store that exists.
const KEY_FILE: &str = "key-file";
const QUESTIONS: [(&str, &str, &str); 5] = [
    ("folders", "Which folders are archived? (separated by commas)", ""),
    ("store", "In which folder is the archive kept, on another disk if possible?", ""),
    ("every", "How often?", "day at 02:00"),
    ("replica", "Where does a second copy go? (a folder or a URL; empty for none)", ""),
    ("notify", "Who is told when something is wrong? (a mail address, or the URL of an ntfy topic)", ""),
];

/// An example of a file with answers.
const EXAMPLE: &str = r#"# The folders that are archived.
folders = ["/home", "/etc"]
# The folder of the archive, on another disk if possible.
store = "/backup/store"
# Without this line, it is "day at 02:00".
every = "day at 02:00"
# A second copy: a folder or a URL. Leave the line out for none.
replica = "/media/usb/varve"
# A mail address, or the URL of an ntfy topic. Leave the line out for none.
notify = "ops@example.org"
# Only for a store that exists: its key.
# key-file = "/etc/varve/varve.key""#;

/// The answers to the five questions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Answers {
    folders: Vec<String>,
    store: String,
    every: String,
    replica: String,
    notify: String,
    /// The key file of a store that exists; empty for a new one.
    key_file: String,
}

/// The store of a new configuration.
enum SetupStore {
    /// It is made, with a key of its own.
    New,
    /// It exists, and opens with this key file, or without any. The role of the key decides about
    /// the care for the store.
    Joined { key_file: Option<PathBuf>, role: Role, id: String },
}

pub fn run(invocation: &Invocation, args: &SetupArgs) -> Result<CommandOutcome> {
    if args.answers_example {
        say!("{EXAMPLE}");
        return Ok(CommandOutcome::Done);
    }
    let file = match &args.file.config {
        Some(file) => std::path::absolute(file)?,
        None => own_file()?,
    };
    if file.exists() {
        let error = anyhow::anyhow!("{} exists already", file.display());
        bail!(Hinted::new(error, "change it with an editor; `varve config check` explains it"));
    }
    let answers = match &args.answers {
        Some(file) => read_answers(file)?,
        None => ask()?,
    };
    let folder = file.parent().context("the configuration has no folder")?;
    let key = folder.join("varve.key");
    let store = SetupStore::find(invocation, &answers)?;
    let machine = varve_session::snapshot_host();
    let text = config_text(&answers, &store, &machine, None);
    let as_read = ConfigText { name: file.display().to_string(), text: text.clone() };
    DailyConfig::read(&[as_read], folder).map_err(|error| UsageError(error.to_string()))?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| folder.display().to_string())?;
    if let SetupStore::Joined { .. } = store {
        write_new(&file, text.as_bytes())?;
        if !invocation.quiet {
            say!("{} is written, and the store {} is joined", file.display(), answers.store);
            say!("Now `varve run` takes the first snapshot. {}", next_ones(Path::new(UNITS)));
        }
        return Ok(CommandOutcome::Done);
    }
    write_key(&key)?;
    let program = |arguments: &[&str]| program(&answers.store, &key, arguments);
    // If something fails from here on, the same command may be run again: nothing refers to the key
    // yet.
    program(&["--quiet", "init"]).inspect_err(|_| drop(fs::remove_file(&key)))?;
    let id = id_at(&answers.store);
    write_new(&file, config_text(&answers, &store, &machine, id.as_deref()).as_bytes())?;
    if !invocation.quiet {
        say!("{} is written, and the store {} is made", file.display(), answers.store);
        say!("Its key is {}. Without the key, nobody can read the archive.", key.display());
        say!("Keep the following page away from this machine, on paper: it opens the archive.\n");
    }
    program(&["key", "export"])?;
    if !invocation.quiet {
        say!("\nNow `varve run` takes the first snapshot. {}", next_ones(Path::new(UNITS)));
    }
    Ok(CommandOutcome::Done)
}

impl SetupStore {
    /// Looks whether there is a store, and opens it.
    fn find(invocation: &Invocation, answers: &Answers) -> Result<Self> {
        let key_file = Some(answers.key_file.as_str()).filter(|file| !file.is_empty()).map(PathBuf::from);
        if !is_store(&answers.store) {
            if key_file.is_some() {
                bail!(UsageError(format!(
                    "there is no store in {}: key-file is only for a store that exists",
                    answers.store
                )));
            }
            return Ok(Self::New);
        }
        let key = KeyOptions { key_file: key_file.clone(), ..KeyOptions::default() };
        let frontend = Terminal { quiet: invocation.quiet, asks: false };
        let session = session_at(&answers.store, key, Arc::new(frontend));
        let opened =
            session.check().with_context(|| format!("{} is a store, and was not joined", answers.store));
        match opened {
            Ok(archive) => {
                let id = to_hex(&archive.store().config().id);
                Ok(Self::Joined { key_file, role: archive.store().role(), id })
            }
            Err(error) if key_file.is_none() => {
                Err(Hinted::new(error, "name its key file: key-file = \"/etc/varve/varve.key\"").into())
            }
            Err(error) => Err(error),
        }
    }

    fn allows(&self, permission: Permission) -> bool {
        match self {
            Self::New => true,
            Self::Joined { role, .. } => role.allows(permission),
        }
    }
}

/// Reports whether a folder holds a store.
fn is_store(folder: &str) -> bool {
    Path::new(folder).join("config.toml").is_file()
}

/// Says how the snapshots after the first one are taken. The package for Debian has a timer.
fn next_ones(units: &Path) -> String {
    let is_root = rustix::process::geteuid().is_root();
    let (folder, systemctl) = if is_root { ("system", "systemctl") } else { ("user", "systemctl --user") };
    match units.join(folder).join("varve.timer").exists() {
        true => format!("`{systemctl} enable --now varve.timer` takes the next ones."),
        false => "A timer that calls it takes the next ones: \"The timer\" in docs/guide/daily.md has one \
                  for systemd."
            .to_owned(),
    }
}

/// Runs this program on the new store.
fn program(store: &str, key: &Path, arguments: &[&str]) -> Result<()> {
    let program = std::env::current_exe().context("the program cannot find itself")?;
    let mut command = Command::new(program);
    command.arg(format!("--store={store}")).arg(format!("--key-file={}", key.display())).args(arguments);
    let status = command.stdin(Stdio::null()).status()?;
    match status.success() {
        true => Ok(()),
        false => bail!("`varve {}` ended with {status}", arguments.join(" ")),
    }
}

fn write_key(key: &Path) -> Result<()> {
    let mut bytes = zeroize::Zeroizing::new([0; KEY_BYTES]);
    RealRandom.fill(&mut *bytes)?;
    write_new(key, &*bytes)
}

/// Writes a new file that only its owner can read.
fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let context = || format!("{} cannot be written", path.display());
    NewFile::write(path, PRIVATE, false, bytes).with_context(context)
}

/// Asks on the terminal.
fn ask() -> Result<Answers> {
    if !io::stdin().is_terminal() {
        bail!(UsageError("there is no terminal to ask on: name a file with --answers".into()));
    }
    let mut answers = Answers::default();
    let mut lines = io::stdin().lock().lines();
    let mut ask = |answers: &mut Answers, key: &str, question: &str, usual: &str| -> Result<()> {
        let shown = if usual.is_empty() { String::new() } else { format!(" [{usual}]") };
        loop {
            eprint_question(&format!("{question}{shown} "))?;
            let line = lines.next().context("the input has ended")??;
            let answer = if line.trim().is_empty() { usual } else { line.trim() };
            let value = match key {
                "folders" => Value::Array(answer.split(',').map(|one| one.trim().into()).collect()),
                _ => answer.into(),
            };
            answers.set(key, &value)?;
            match answers.check(key) {
                Ok(()) => return Ok(()),
                Err(error) => warning!("{error}"),
            }
        }
    };
    for (key, question, usual) in QUESTIONS {
        ask(&mut answers, key, question, usual)?;
        if key == "store" && is_store(&answers.store) {
            ask(&mut answers, KEY_FILE, "A store is there, and is joined. Which file has its key?", "")?;
        }
    }
    answers.checked()
}

fn eprint_question(text: &str) -> Result<()> {
    let mut terminal = io::stderr().lock();
    terminal.write_all(text.as_bytes())?;
    Ok(terminal.flush()?)
}

/// Reads a file with answers.
fn read_answers(file: &Path) -> Result<Answers> {
    let wrong = |error: String| UsageError(format!("{}: {error}", file.display()));
    let length = fs::metadata(file).map_err(|error| wrong(error.to_string()))?.len();
    if length > ANSWERS_BYTES_MAX {
        bail!(wrong("the file is longer than 1 MiB".into()));
    }
    let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
    let mut answers = Answers { every: QUESTIONS[2].2.to_owned(), ..Answers::default() };
    for (key, value) in &table {
        answers.set(key, value).map_err(|error| wrong(error.to_string()))?;
    }
    answers.checked().map_err(|error| wrong(error.to_string()).into())
}

impl Answers {
    fn set(&mut self, key: &str, value: &Value) -> Result<()> {
        let texts = || -> Option<Vec<String>> {
            value.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect()
        };
        let text = || value.as_str().map(str::to_owned).with_context(|| format!("{key} must be a text"));
        match key {
            "folders" => {
                self.folders = texts().context("folders must be a list of texts")?;
                self.folders.retain(|folder| !folder.is_empty());
            }
            "store" => self.store = text()?,
            "every" => self.every = text()?,
            "replica" => self.replica = text()?,
            "notify" => self.notify = text()?,
            KEY_FILE => self.key_file = text()?,
            _ => {
                let known: Vec<_> = QUESTIONS.iter().map(|(key, ..)| *key).chain([KEY_FILE]).collect();
                bail!("unknown answer {key}: known are {}", known.join(", "));
            }
        }
        Ok(())
    }

    /// Checks all answers.
    fn checked(self) -> Result<Self> {
        QUESTIONS.iter().map(|(key, ..)| *key).chain([KEY_FILE]).try_for_each(|key| self.check(key))?;
        Ok(self)
    }

    /// Checks an answer.
    fn check(&self, key: &str) -> Result<()> {
        let wrong = match key {
            "folders" => wrong_folder(&self.folders),
            "store" if !Path::new(&self.store).is_absolute() => {
                Some("the store is a folder with an absolute path: store = \"/backup/store\"".to_owned())
            }
            "every" => self.every.parse::<Every>().err().map(|error| error.to_string()),
            "replica" if !self.replica.is_empty() => wrong_target(&self.replica),
            "notify" if !self.notify.is_empty() && !self.notify.contains(['@', '/']) => {
                Some(format!("{} is neither a mail address nor a URL", self.notify))
            }
            KEY_FILE if !self.key_file.is_empty() => self.wrong_key_file(),
            _ => None,
        };
        wrong.map_or(Ok(()), |wrong| Err(UsageError(wrong).into()))
    }

    fn wrong_key_file(&self) -> Option<String> {
        let file = &self.key_file;
        match Path::new(file) {
            path if !path.is_absolute() => Some(format!("the key file {file} is not an absolute path")),
            path if is_store(&self.store) && !path.is_file() => Some(format!("there is no key file {file}")),
            _ => None,
        }
    }
}

fn wrong_folder(folders: &[String]) -> Option<String> {
    if folders.is_empty() {
        return Some("no folder is named: folders = [\"/home\"]".into());
    }
    let relative = folders.iter().find(|folder| !Path::new(folder).is_absolute());
    let relative = relative.map(|folder| format!("{folder} is not an absolute path"));
    let absent = || folders.iter().find(|folder| !Path::new(folder).is_dir());
    relative.or_else(|| absent().map(|folder| format!("there is no folder {folder}")))
}

fn wrong_target(replica: &str) -> Option<String> {
    let is_place = Path::new(replica).is_absolute() || target::is_url(replica);
    (!is_place).then(|| format!("{replica} is neither an absolute path nor a URL"))
}

/// Returns the configuration for these answers. `made_id` is the id of a store that was made.
fn config_text(answers: &Answers, store: &SetupStore, machine: &str, made_id: Option<&str>) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let key = match store {
        SetupStore::New => "key-file = \"varve.key\"\n".to_owned(),
        SetupStore::Joined { key_file: Some(file), .. } => {
            format!("key-file = {}\n", quoted(&file.to_string_lossy()))
        }
        SetupStore::Joined { key_file: None, .. } => String::new(),
    };
    let id = match store {
        SetupStore::New => made_id,
        SetupStore::Joined { id, .. } => Some(id.as_str()),
    };
    let id = id.map(|id| format!("id = {}\n", quoted(id))).unwrap_or_default();
    let mut text = format!(
        "# docs/guide/daily.md explains this file; `varve config check` says what it means.\n\
         machine = {}\n\n[store.main]\nat = {}\n{id}{key}\n[defaults]\nevery = {}\nexclude-caches = true\n",
        quoted(machine),
        quoted(&answers.store),
        quoted(&answers.every)
    );
    // A key that may not forget cannot apply rules.
    if store.allows(Permission::Destroy) {
        text.push_str("keep = { daily = 30, weekly = 26, monthly = 24, yearly = \"all\" }\n");
    }
    let mut names = BTreeSet::new();
    for folder in &answers.folders {
        let name = source_name(folder, &names);
        text.push_str(&format!("\n[source.{}]\nfolder = {}\n", quoted(&name), quoted(folder)));
        names.insert(name);
    }
    if !answers.replica.is_empty() {
        text.push_str(&format!("\n[replica.copy]\nat = {}\n", quoted(&answers.replica)));
    }
    let (reads, destroys) = (store.allows(Permission::Read), store.allows(Permission::Destroy));
    if reads {
        text.push_str("\n[care]\nverify = { share = \"4%\", every = \"day\" }\n");
        text.push_str("drill = { restore = \"50 files\", every = \"month\" }\n");
    }
    if destroys {
        text.push_str("reclaim = { every = \"week\", at-most = \"2h\" }\n");
    }
    text.push_str("\n[promise]\nsnapshot-within = \"3d\"\nroom-for = \"30d\"\n");
    if reads {
        text.push_str("verified-within = \"60d\"\ndrill-within = \"70d\"\n");
    }
    if destroys {
        text.push_str("reclaimed-within = \"21d\"\n");
    }
    if !answers.replica.is_empty() {
        text.push_str("replica-within = \"8d\"\n");
    }
    match answers.notify.as_str() {
        "" => {}
        address if address.contains("://") => {
            text.push_str(&format!("\n[notify]\nntfy = {{ url = {} }}\n", quoted(address)));
        }
        address => text.push_str(&format!("\n[notify]\nmail = {{ to = [{}] }}\n", quoted(address))),
    }
    text
}

/// Returns a name for the source of a folder: the last part of its path, with a number if that is
/// taken.
fn source_name(folder: &str, taken: &BTreeSet<String>) -> String {
    let last = PathBuf::from(folder);
    let last = last.file_name().map_or("root".to_owned(), |name| name.to_string_lossy().into_owned());
    let good = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    let name: String = last.chars().map(good).take(60).collect();
    let name = match name.trim_start_matches('-') {
        "" => "folder".to_owned(),
        name => name.to_owned(),
    };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn answers_become_a_configuration_without_faults() {
        let answers = Answers {
            folders: ["/home", "/srv/home", "/", "/data/Grüße \"x\""].map(str::to_owned).to_vec(),
            store: "/backup/store".into(),
            every: "day at 02:00".into(),
            replica: "sftp://backup@vault.example/main".into(),
            notify: "ops@example.org".into(),
            key_file: String::new(),
        };
        let read = |answers: &Answers| {
            let text = config_text(answers, &SetupStore::New, "web1", Some(ID));
            let file = ConfigText { name: "varve.toml".into(), text: text.clone() };
            DailyConfig::read(&[file], Path::new("/etc/varve"))
                .map_err(|error| format!("{error}\n{text}"))
                .unwrap()
        };
        let config = read(&answers);
        assert_eq!(
            (config.machine.as_deref(), config.stores["main"].id.as_deref()),
            (Some("web1"), Some(ID))
        );
        let names: Vec<_> = config.sources.keys().map(String::as_str).collect();
        assert_eq!(names, ["Gr--e--x-", "home", "home-2", "root"]);
        assert_eq!(config.notify.mail.unwrap().to, ["ops@example.org"]);
        let few = Answers { replica: String::new(), notify: "https://ntfy.example/a".into(), ..answers };
        let config = read(&few);
        assert!(config.replicas.is_empty() && config.notify.ntfy.is_some());
    }

    #[test]
    fn each_answer_is_checked_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().to_str().unwrap();
        let good = Answers {
            folders: vec![there.into()],
            store: "/backup/store".into(),
            every: "day at 02:00".into(),
            ..Answers::default()
        };
        good.clone().checked().unwrap();
        let wrong = |key: &str, value: Value| {
            let mut answers = good.clone();
            answers.set(key, &value).unwrap();
            answers.check(key).unwrap_err().to_string()
        };
        for (key, value, text) in [
            ("folders", Value::Array(vec![there.into(), "/hme/x".into()]), "there is no folder /hme/x"),
            ("folders", Value::Array(vec!["".into()]), "no folder is named"),
            ("store", "backup".into(), "absolute path"),
            ("every", "/backup/store".into(), "/backup/store"),
            ("replica", "day".into(), "day is neither an absolute path nor a URL"),
            ("notify", "day".into(), "day is neither a mail address nor a URL"),
            (KEY_FILE, "key".into(), "the key file key is not an absolute path"),
        ] {
            let said = wrong(key, value);
            assert!(said.contains(text), "{key}: {said}");
        }
        for (key, value) in
            [("replica", "sftp://u@h/x"), ("replica", "/usb/x"), ("notify", "https://ntfy.sh/a")]
        {
            let mut answers = good.clone();
            answers.set(key, &value.into()).unwrap();
            answers.checked().unwrap();
        }
        let table: Table = EXAMPLE.parse().unwrap();
        let mut answers = Answers::default();
        table.iter().for_each(|(key, value)| answers.set(key, value).unwrap());
        assert_eq!((answers.store.as_str(), answers.folders.len()), ("/backup/store", 2));
    }

    #[test]
    fn a_joined_store_is_cared_for_as_its_key_allows() {
        let answers = Answers {
            folders: vec!["/home".into()],
            store: "/backup/store".into(),
            every: "day".into(),
            key_file: "/keys/web1".into(),
            ..Answers::default()
        };
        for (role, verifies, reclaims) in
            [(Role::Full, true, true), (Role::AppendOnly, true, false), (Role::WriteOnly, false, false)]
        {
            let store = SetupStore::Joined { key_file: Some("/keys/web1".into()), role, id: ID.into() };
            let text = config_text(&answers, &store, "web1", None);
            let file = ConfigText { name: "varve.toml".into(), text: text.clone() };
            let config = DailyConfig::read(&[file], Path::new("/etc/varve")).unwrap();
            let found = (config.care.verify.is_some(), config.care.reclaim.is_some());
            assert_eq!(found, (verifies, reclaims), "{text}");
            assert_eq!(config.promises.reclaimed_within.is_some(), reclaims, "{text}");
            assert_eq!(config.sources["home"].keep.is_empty(), !reclaims, "{text}");
            assert!(text.contains("key-file = \"/keys/web1\""), "{text}");
            assert_eq!(config.stores["main"].id.as_deref(), Some(ID));
        }
    }
}
