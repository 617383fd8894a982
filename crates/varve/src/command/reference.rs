//! `varve completions` and `varve man`, generated from the same definitions as `--help`.

mod man;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::arguments::Arguments;
use crate::outcome::CommandOutcome;
use crate::say::Output;

pub(super) fn completions(shell: clap_complete::Shell) -> Result<CommandOutcome> {
    // Generate in memory first: the generator panics if a write fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "varve", &mut script);
    Output::new().write_all(&script).context("cannot write to standard output")?;
    Ok(CommandOutcome::Done)
}

pub(super) fn man(folder: &Path) -> Result<CommandOutcome> {
    std::fs::create_dir_all(folder)
        .and_then(|()| man::write(&Arguments::whole_command(), folder))
        .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
    Ok(CommandOutcome::Done)
}
