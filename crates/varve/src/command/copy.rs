//! `varve copy`

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::Progress;
use varve_tree::{Copied, CopyError, CopyMode, copy_archive};

use super::Outcome;
use super::place::vac_place;
use crate::arguments::{Arguments, Copy, WrongWords};
use crate::progress_bar::{Shown, cancel_on_signal};
use crate::{session, show};

pub(super) fn run(arguments: &Arguments, words: &Copy) -> Result<Outcome> {
    let Some((line, "")) = vac_place(&words.archive)? else {
        let said = format!("{:?} is no archive: write vac:SCORE, or name a .vac file", words.archive);
        bail!(WrongWords(said));
    };
    let from = session::read_blocks_at(arguments, &words.from)?;
    let to = session::write_blocks_at(arguments, &words.to)?;
    let progress = Arc::new(Progress::new());
    cancel_on_signal(&progress)?;
    let shown = Shown::start(&words.archive, &progress, arguments.quiet || arguments.json);
    let mode = if words.fast { CopyMode::Fast } else { CopyMode::Whole };
    let mut done = Copied::default();
    let mut watch = |copied: &Copied| {
        progress.add_bytes_done(copied.bytes - done.bytes);
        progress.add_files_done(copied.block_count - done.block_count);
        done = *copied;
        !progress.is_cancelled()
    };
    let copied = copy_archive(&*from, to.blocks(), line.score, mode, &mut watch);
    drop(shown);
    // What was copied until then need not be copied again.
    let closed = to.close();
    let copied = copied.map_err(|error| match error {
        CopyError::Cancelled => {
            anyhow::anyhow!("{line} is not copied whole; the same command goes on from here")
        }
        error => anyhow::Error::new(error).context(format!("{line} is not copied whole")),
    })?;
    closed.with_context(|| format!("{} cannot be closed", words.to.display()))?;
    let Copied { block_count, bytes, present_count } = copied;
    if arguments.json {
        say!(
            "{}",
            json!({ "archive": line.to_string(), "blocks": block_count, "bytes": bytes, "present": present_count })
        );
    } else if !arguments.quiet {
        say!("{line}: {block_count} blocks copied, {}; {present_count} were there", show::bytes(bytes));
    }
    Ok(Outcome::Done)
}
