//! `varve profile`, and the files with profiles.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_content::{NewFile, PUBLIC};
use varve_edition::{DiskProfile, PROFILE_BYTES_MAX, ProfileRead, parse_blkparse};
use varve_serve::nbd::{RecordedDisk, ServedDisk};
use varve_session::{UsageError, WithHint};

use crate::arguments::ProfileCommand;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

/// The longest output of blkparse that is read, in bytes.
const BLKPARSE_BYTES_MAX: u64 = 1 << 30;

pub fn run(invocation: &Invocation, command: &ProfileCommand) -> Result<CommandOutcome> {
    match command {
        ProfileCommand::Show { file } => print(invocation, &read_profile(file)?),
        ProfileCommand::Merge { files, output } => {
            let profiles = files.iter().map(|file| read_profile(file)).collect::<Result<Vec<_>>>()?;
            let merged = profiles.into_iter().reduce(|merged, profile| merged.merged_with(&profile));
            let Some(merged) = merged else { bail!(UsageError("name the profiles to merge".into())) };
            NewProfile::create(invocation, output)?.write(&merged)?;
        }
        ProfileCommand::FromBlktrace { file, size, output } => {
            let text = read_at_most(file, BLKPARSE_BYTES_MAX)?;
            let reads = parse_blkparse(&String::from_utf8_lossy(&text));
            if reads.is_empty() {
                bail!(
                    "{}: no queued read is in it: it is not the output of blkparse in its default format",
                    file.display()
                );
            }
            NewProfile::create(invocation, output)?.write(&DiskProfile::from_reads(*size, reads))?;
        }
    }
    Ok(CommandOutcome::Done)
}

/// Reads the file of a profile.
pub fn read_profile(file: &Path) -> Result<DiskProfile> {
    let text = read_at_most(file, PROFILE_BYTES_MAX as u64)?;
    DiskProfile::parse(&text).with_context(|| format!("{} is no profile", file.display()))
}

fn read_at_most(file: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let context = || format!("cannot read {}", file.display());
    let mut text = Vec::new();
    let opened = File::open(file).with_context(context)?;
    opened.take(bytes_max + 1).read_to_end(&mut text).with_context(context)?;
    if text.len() as u64 > bytes_max {
        bail!("{}: it is longer than {}", file.display(), show::bytes(bytes_max));
    }
    Ok(text)
}

fn print(invocation: &Invocation, profile: &DiskProfile) {
    if invocation.json {
        for read in profile.reads() {
            let bytes = read.range.end - read.range.start;
            let fields =
                json!({ "milliseconds": read.milliseconds, "offset": read.range.start, "bytes": bytes });
            say::record("profile_read", fields);
        }
        return;
    }
    for read in profile.reads() {
        let bytes = read.range.end - read.range.start;
        say!(
            "{:>9.3} s  {:>14}  {}",
            read.milliseconds as f64 / 1000.0,
            read.range.start,
            show::bytes(bytes)
        );
    }
    say!("{}", summary(profile));
}

fn summary(profile: &DiskProfile) -> String {
    let bytes = profile.reads().iter().map(|read| read.range.end - read.range.start).sum();
    let ranges = show::count(profile.reads().len() as u64, "range");
    format!("{ranges} of {}, on a disk of {}", show::bytes(bytes), show::bytes(profile.size()))
}

/// The file of a new profile. It is created before the reads are recorded, so that a start is not
/// recorded in vain.
pub struct NewProfile {
    path: PathBuf,
    file: NewFile,
    is_quiet: bool,
}

impl NewProfile {
    /// Creates the file.
    pub fn create(invocation: &Invocation, path: &Path) -> Result<Self> {
        let file = NewFile::create(path, PUBLIC, false);
        let file = file.with_hint(hint).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, is_quiet: invocation.quiet })
    }

    /// Writes the profile of the reads of a disk. Without a read there is none.
    pub fn write_recorded(self, disk: &RecordedDisk) -> Result<()> {
        let reads: Vec<_> = disk
            .reads()
            .into_iter()
            .map(|read| {
                let milliseconds = u64::try_from(read.since.as_millis()).unwrap_or(u64::MAX);
                ProfileRead { milliseconds, range: read.range }
            })
            .collect();
        if reads.is_empty() {
            warning!("nothing was read, so there is no profile");
            return Ok(());
        }
        self.write(&DiskProfile::from_reads(disk.size(), reads))
    }

    fn write(mut self, profile: &DiskProfile) -> Result<()> {
        let path = self.path.display();
        let written = self.file.write_all(profile.to_text().as_bytes()).and_then(|()| self.file.complete());
        written.with_context(|| format!("cannot write {path}"))?;
        if !self.is_quiet {
            warning!("the profile is in {path}: {}", summary(profile));
        }
        Ok(())
    }
}

fn hint(error: &io::Error) -> Option<&'static str> {
    let is_there = error.kind() == io::ErrorKind::AlreadyExists;
    is_there.then_some("name a new file; `varve profile merge` joins profiles")
}
