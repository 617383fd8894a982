//! `varve verify vac:SCORE`: verifies an archive that another program wrote.

use std::ffi::OsString;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::{ArchiveHarm, VerifiedArchive, verify_archive};
use varve_block::visible;
use varve_content::vac::VacLine;
use varve_session::UsageError;

use crate::command::choosing::place_in_snapshot;
use crate::outcome::CommandOutcome;

use crate::invocation::Invocation;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{say, show};

/// Verifies each archive, and reports the missing and damaged blocks.
pub fn run(invocation: &Invocation, archives: &[OsString]) -> Result<CommandOutcome> {
    let lines = archives.iter().map(line_of).collect::<Result<Vec<_>>>()?;
    let blocks = invocation.session.read_blocks_at(&invocation.session.store_path()?)?;
    let progress = cancellable_progress()?;
    let mut outcome = CommandOutcome::Done;
    for line in lines {
        let before = progress.snapshot().bytes_done;
        let shown = ShownProgress::start("verifying", &progress, invocation.quiet || invocation.json);
        let found = verify_archive(&*blocks, &line, &progress).with_context(|| line.to_string())?;
        drop(shown);
        print(invocation, &line, &found, progress.snapshot().bytes_done - before);
        if !found.harm.is_empty() {
            outcome = CommandOutcome::Damage;
        }
    }
    Ok(outcome)
}

fn line_of(text: &OsString) -> Result<VacLine> {
    let shown = || visible(&text.to_string_lossy()).to_string();
    match place_in_snapshot::vac_place(text)? {
        Some((line, [])) => Ok(line),
        Some(_) => {
            bail!(UsageError(format!("{}: a vac archive is checked as a whole: leave out the path", shown())))
        }
        None => bail!(UsageError(format!(
            "{} is neither vac:SCORE (or ext2:SCORE and the like) nor a .vac file; without a name, all snapshots are checked",
            shown()
        ))),
    }
}

fn print(invocation: &Invocation, line: &VacLine, found: &VerifiedArchive, checked_bytes: u64) {
    if invocation.json {
        let harm: Vec<_> = found.harm.iter().map(harm_as_json).collect();
        say::record(
            "verified_archive",
            json!({
                "archive": line.to_string(),
                "files": found.file_count,
                "checked_bytes": checked_bytes,
                "harm": harm,
            }),
        );
        return;
    }
    for harm in &found.harm {
        let path = if harm.path.is_empty() { String::new() } else { format!(":{}", show::name(&harm.path)) };
        let range = harm.range.as_ref();
        let range = range.map_or(String::new(), |range| format!(" (bytes {}..{})", range.start, range.end));
        say!("  harms: {line}{path}{range}: {}", harm.reason);
    }
    let read = format!("{} read and checked", show::bytes(checked_bytes));
    if !found.harm.is_empty() {
        say!("{line}: {} harmed, {read}", show::count(found.harm.len(), "part"));
    } else if !invocation.quiet {
        say!("{line}: all is well: {}, {read}", show::count(found.file_count, "entry"));
    }
}

fn harm_as_json(harm: &ArchiveHarm) -> serde_json::Value {
    let mut value = json!({
        "start": harm.range.as_ref().map(|range| range.start),
        "end": harm.range.as_ref().map(|range| range.end),
        "reason": harm.reason,
    });
    show::put_name(&mut value, "path", &harm.path);
    value
}
