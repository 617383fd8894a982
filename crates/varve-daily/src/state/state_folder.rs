//! The state folder of a configuration: the lock of a run, the histories of jobs, and the run log.
//!
//! Nothing in it is needed. Without it, jobs whose success the archive does not record run again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use tempfile::{Builder, NamedTempFile};
use varve_world::Timestamp;

use super::logged_job::LoggedJob;
use super::notice_state::NoticeState;
use crate::freeze::UndoStep;
use crate::jobs::Histories;

/// A run log of this size is put aside, in place of the one before it. Both together stay below
/// 10 MB.
const LOG_BYTES_MAX: u64 = 4_900_000;
/// Longer messages are cut in the run log.
const MESSAGE_CHARS_MAX: usize = 4_000;
/// The names of temporary files begin so.
const TEMPORARY: &str = ".tmp-";
/// The description of a run is filled up to this length, so that each one replaces the one before
/// it in one write.
const NOTE_BYTES: usize = 256;
const LOCK: &str = "lock";
const NOTICES_LOCK: &str = "notices.lock";
const HISTORIES: &str = "jobs.json";
const LOG: &str = "runs.jsonl";
const OLD_LOG: &str = "runs.1.jsonl";
const NOTICES: &str = "notices.json";
const LOOKED: &str = "looked.json";
const PAUSE: &str = "pause.json";
const FROZEN: &str = "frozen.json";
const OPEN_HOOKS: &str = "open-hooks.json";

/// The state folder of a configuration.
pub struct StateFolder(PathBuf);

/// The lock of a run. A program that got a copy of the file holds it, too.
pub struct RunLock(File);

/// The run that holds the lock, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingRun {
    pub since: Timestamp,
    /// The job at which it is; `None` between jobs.
    pub job: Option<String>,
}

impl RunLock {
    /// Notes in the file what this run does, for other runs that find it locked.
    pub fn note(&self, working: &WorkingRun) {
        let value = json!({ "since": working.since.0, "job": working.job });
        let text = format!("{value:<NOTE_BYTES$}");
        // On a full disk the lock still holds; only its description is missing.
        let _ = self.0.write_all_at(text.as_bytes(), 0).and_then(|()| self.0.set_len(text.len() as u64));
    }

    /// Returns a copy of the lock for a program that must have ended before the next run.
    ///
    /// # Errors
    /// When the system has no more open files.
    pub fn share(&self) -> Result<File> {
        Ok(self.0.try_clone()?)
    }
}

impl StateFolder {
    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(folder: &Path) -> Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("the state folder {} cannot be made", folder.display()))?;
        Ok(Self(folder.to_owned()))
    }

    /// Returns a folder that is only read, and need not be there.
    #[must_use]
    pub fn to_read(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Takes the lock of a run; `None` if another run holds it.
    ///
    /// # Errors
    /// When the lock file cannot be opened.
    pub fn try_lock(&self) -> Result<Option<RunLock>> {
        let lock = self.try_lock_file(LOCK)?;
        if lock.is_some() {
            self.remove_left_files();
        }
        Ok(lock.map(RunLock))
    }

    /// Returns the description of the run that holds the lock; `None` if it has left none.
    #[must_use]
    pub fn working_run(&self) -> Option<WorkingRun> {
        let value: Value = serde_json::from_slice(&fs::read(self.0.join(LOCK)).ok()?).ok()?;
        let since = Timestamp(value["since"].as_i64()?);
        Some(WorkingRun { since, job: value["job"].as_str().map(str::to_owned) })
    }

    /// Takes the lock of notices; `None` if another process judges the promises now.
    ///
    /// # Errors
    /// When the lock file cannot be opened.
    pub fn try_lock_notices(&self) -> Result<Option<File>> {
        self.try_lock_file(NOTICES_LOCK)
    }

    fn try_lock_file(&self, name: &str) -> Result<Option<File>> {
        let path = self.0.join(name);
        let context = || path.display().to_string();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(context)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(context),
        }
    }

    /// Removes the temporary files that a killed run has left.
    fn remove_left_files(&self) {
        let is_left = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(TEMPORARY);
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten().filter(is_left) {
            // The next run tries again.
            drop(fs::remove_file(entry.path()));
        }
    }

    /// Makes a file that is removed when it is dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn temporary_file(&self) -> Result<NamedTempFile> {
        let made = Builder::new().prefix(TEMPORARY).tempfile_in(&self.0);
        made.with_context(|| format!("no file can be made in {}", self.0.display()))
    }

    /// Reads the histories of jobs. A file that cannot be read counts as empty.
    #[must_use]
    pub fn histories(&self) -> Histories {
        let read = fs::read(self.0.join(HISTORIES));
        let value: Option<Value> = read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let histories = value.map(|value| Histories::from_json(&value)).unwrap_or_default();
        histories.with_look(self.looked())
    }

    /// Returns the last time at which a run looked for due jobs.
    fn looked(&self) -> Option<Timestamp> {
        let value: Value = serde_json::from_slice(&fs::read(self.0.join(LOOKED)).ok()?).ok()?;
        value["at"].as_i64().map(Timestamp)
    }

    /// Notes that a run looks for due jobs. It needs no lock: a run beside another looks, too.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn note_look(&self, now: Timestamp) -> Result<()> {
        self.replace_or_overwrite(LOOKED, &json!({ "at": now.0 }))
    }

    /// Saves the histories of jobs.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_histories(&self, histories: &Histories) -> Result<()> {
        self.replace_or_overwrite(HISTORIES, &histories.to_json())
    }

    /// Replaces a file. On a full disk it overwrites the file that is there: its blocks are its own
    /// already. If that is cut off, the file counts as empty.
    fn replace_or_overwrite(&self, name: &str, value: &Value) -> Result<()> {
        self.replace(name, value).or_else(|error| {
            let bytes = value.to_string().into_bytes();
            let overwrite = || -> io::Result<()> {
                let mut file = OpenOptions::new().write(true).open(self.0.join(name))?;
                file.write_all(&bytes)?;
                file.set_len(bytes.len() as u64)?;
                file.sync_all()
            };
            overwrite().map_err(|_| error)
        })
    }

    fn replace(&self, name: &str, value: &Value) -> Result<()> {
        let context = || format!("{} cannot be written", self.0.join(name).display());
        let mut file = self.temporary_file()?;
        file.write_all(value.to_string().as_bytes()).with_context(context)?;
        file.as_file().sync_all().with_context(context)?;
        file.persist(self.0.join(name)).with_context(context)?;
        Ok(())
    }

    /// Reads the state of notices. A file that cannot be read counts as empty.
    #[must_use]
    pub fn notices(&self) -> NoticeState {
        let read = fs::read(self.0.join(NOTICES));
        let value: Option<Value> = read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        value.map(|value| NoticeState::from_json(&value)).unwrap_or_default()
    }

    /// Saves the state of notices.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_notices(&self, notices: &NoticeState) -> Result<()> {
        self.replace_or_overwrite(NOTICES, &notices.to_json())
    }

    /// Returns the time until which daily work is paused; `None` if it is not.
    #[must_use]
    pub fn paused_until(&self, now: Timestamp) -> Option<Timestamp> {
        let value: Value = serde_json::from_slice(&fs::read(self.0.join(PAUSE)).ok()?).ok()?;
        let (from, until) = (value["from"].as_i64()?, value["until"].as_i64()?);
        // A pause from a clock that was ahead is none.
        (from <= now.0 && now.0 < until).then_some(Timestamp(until))
    }

    /// Pauses daily work until a time, or ends a pause.
    ///
    /// # Errors
    /// When the file cannot be written or removed.
    pub fn pause(&self, now: Timestamp, until: Option<Timestamp>) -> Result<()> {
        match until {
            Some(until) => self.replace(PAUSE, &json!({ "from": now.0, "until": until.0 })),
            None => self.remove(PAUSE),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| name.to_owned()),
            _ => Ok(()),
        }
    }

    /// Appends a line to the run log, durably.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn log(&self, line: &LoggedJob) -> Result<()> {
        let message = line.message.as_ref().map(|text| text.chars().take(MESSAGE_CHARS_MAX).collect());
        let line = serde_json::to_string(&LoggedJob { message, ..line.clone() })?;
        let path = self.0.join(LOG);
        let context = || format!("{} cannot be written", path.display());
        if fs::metadata(&path).is_ok_and(|found| found.len() >= LOG_BYTES_MAX) {
            fs::rename(&path, self.0.join(OLD_LOG)).with_context(context)?;
        }
        let mut file =
            OpenOptions::new().append(true).create(true).mode(0o600).open(&path).with_context(context)?;
        file.write_all(format!("{line}\n").as_bytes()).with_context(context)?;
        file.sync_data().with_context(context)
    }

    /// Returns the lines of the run log, the oldest first. Damaged lines are left out.
    pub fn logged(&self) -> impl Iterator<Item = LoggedJob> {
        [OLD_LOG, LOG].into_iter().flat_map(|file| self.logged_in(file))
    }

    fn logged_in(&self, file: &str) -> impl Iterator<Item = LoggedJob> + use<> {
        let file = File::open(self.0.join(file)).ok().into_iter();
        let lines = file.flat_map(|file| BufReader::new(file).lines().map_while(Result::ok));
        lines.filter_map(|line| serde_json::from_str(&line).ok())
    }

    /// Returns the lines of the run log, the newest first. Damaged lines are left out.
    ///
    /// # Errors
    /// When the run log is there, and cannot be read.
    pub fn newest_logged(&self) -> io::Result<impl Iterator<Item = LoggedJob> + use<>> {
        let newest = self.newest_in(LOG)?;
        let old = self.newest_in(OLD_LOG)?;
        Ok(newest.chain(old))
    }

    /// Returns the lines of a file from its end on. Only those that are asked for are parsed.
    fn newest_in(&self, file: &str) -> io::Result<impl Iterator<Item = LoggedJob> + use<>> {
        let text = match fs::read(self.0.join(file)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut end = text.len();
        let next_line = move || {
            let start = text.get(..end)?.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let parsed: Option<LoggedJob> = serde_json::from_slice(&text[start..end]).ok();
            // Before the first line there is nothing.
            end = start.checked_sub(1).unwrap_or(usize::MAX);
            Some(parsed)
        };
        Ok(std::iter::from_fn(next_line).flatten())
    }

    /// Returns the newest line of the run log about a job.
    #[must_use]
    pub fn last_logged(&self, job: &str) -> Option<LoggedJob> {
        self.newest_logged().ok()?.find(|line| line.job == job)
    }

    /// Returns the place in the folder at which a volume may be mounted.
    #[must_use]
    pub fn mount_point(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the steps that remove the frozen views of earlier runs.
    #[must_use]
    pub fn frozen(&self) -> Vec<UndoStep> {
        let read = fs::read(self.0.join(FROZEN));
        let value: Option<Value> = read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let steps = value.as_ref().and_then(Value::as_array).into_iter().flatten();
        steps.filter_map(UndoStep::from_json).collect()
    }

    /// Notes the steps that remove frozen views.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn note_frozen(&self, steps: &[UndoStep]) -> Result<()> {
        if steps.is_empty() {
            return self.remove(FROZEN);
        }
        self.replace(FROZEN, &steps.iter().map(UndoStep::as_json).collect())
    }

    /// Returns the sources whose hook `always` has not run since their snapshot was begun.
    #[must_use]
    pub fn open_hooks(&self) -> Vec<String> {
        let read = fs::read(self.0.join(OPEN_HOOKS));
        let value: Option<Value> = read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let names = value.as_ref().and_then(Value::as_array).into_iter().flatten();
        names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    }

    /// Notes the sources whose hook `always` has still to run.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn note_open_hooks(&self, sources: &[String]) -> Result<()> {
        if sources.is_empty() {
            return self.remove(OPEN_HOOKS);
        }
        self.replace(OPEN_HOOKS, &json!(sources))
    }
}

#[cfg(test)]
mod tests {
    use varve_block::to_usize;

    use super::*;

    /// The notes about frozen views stay: a view that is still there is found by them.
    #[test]
    fn a_purge_of_the_package_removes_every_note() {
        let script = include_str!("../../../../packaging/maintainer/postrm");
        let line = script.lines().find(|line| line.contains("for file in")).unwrap();
        let removed: Vec<_> = line.split([' ', ';']).collect();
        for file in [LOCK, NOTICES_LOCK, HISTORIES, LOG, OLD_LOG, NOTICES, LOOKED, PAUSE, OPEN_HOOKS] {
            assert!(removed.contains(&file), "{file}: {line}");
        }
        assert!(!removed.contains(&FROZEN));
    }

    #[test]
    fn the_log_is_bounded_and_the_newest_line_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::open(&folder.path().join("state")).unwrap();
        let path = folder.path().join("state");
        for number in 0..5 {
            // The log has just reached its limit.
            let line = format!("{}\n", json!({ "job": "snapshot home", "number": -1 }));
            let count = to_usize(LOG_BYTES_MAX) / line.len() + 1;
            fs::write(path.join(LOG), line.repeat(count)).unwrap();
            let message = "x".repeat(100_000);
            let seconds = Some(f64::from(number));
            let job = "snapshot home".to_owned();
            state.log(&LoggedJob { job, seconds, message: Some(message), ..LoggedJob::default() }).unwrap();
        }
        let sizes = [LOG, OLD_LOG].map(|name| fs::metadata(path.join(name)).unwrap().len());
        assert!(sizes.iter().sum::<u64>() < 10_000_000, "{sizes:?}");
        assert_eq!(state.last_logged("snapshot home").unwrap().seconds, Some(4.0));
        assert_eq!(state.last_logged("snapshot other"), None);
        let mut backwards: Vec<_> = state.newest_logged().unwrap().collect();
        backwards.reverse();
        assert!(backwards.len() > 100_000 && backwards.into_iter().eq(state.logged()));
    }

    #[test]
    fn one_run_holds_the_lock_until_its_last_copy_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::open(folder.path()).unwrap();
        let lock = state.try_lock().unwrap().unwrap();
        let copy = lock.share().unwrap();
        drop(lock);
        assert!(state.try_lock().unwrap().is_none());
        drop(copy);
        let lock = state.try_lock().unwrap().unwrap();
        assert_eq!(state.working_run(), None);
        let working = WorkingRun { since: Timestamp(5), job: Some("replicate far-away".into()) };
        lock.note(&working);
        lock.note(&WorkingRun { job: None, ..working.clone() });
        assert_eq!(state.working_run(), Some(WorkingRun { job: None, ..working }));
    }

    #[test]
    fn damaged_files_count_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::open(folder.path()).unwrap();
        let contents = [(HISTORIES, "{\"jobs\": [7"), (OPEN_HOOKS, "{}"), (LOG, "no json\n")];
        contents.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        assert_eq!(state.histories(), Histories::default());
        assert_eq!(state.open_hooks(), Vec::<String>::new());
        assert_eq!(state.last_logged("a"), None);
    }
}
