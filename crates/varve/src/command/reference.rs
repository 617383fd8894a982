//! The commands `completions` and `man`. The pages are generated from the same definitions as
//! `--help`.

mod man;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::arguments::ProgramArguments;
use crate::command::completing;
use crate::outcome::CommandOutcome;
use crate::say::Output;

pub(super) fn completions<P: ProgramArguments>(shell: clap_complete::Shell) -> Result<CommandOutcome> {
    let script = completing::script::<P>(shell)?;
    Output::new().write_all(&script).context("cannot write to standard output")?;
    Ok(CommandOutcome::Done)
}

pub(super) fn man<P: ProgramArguments>(folder: &Path) -> Result<CommandOutcome> {
    std::fs::create_dir_all(folder)
        .and_then(|()| man::write(&P::whole_command(), folder))
        .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
    Ok(CommandOutcome::Done)
}
