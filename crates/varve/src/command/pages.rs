//! `varve completions` and `varve man`, made from the same words as `--help`.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::Outcome;
use crate::arguments::Arguments;
use crate::say::Output;

pub(super) fn completions(shell: clap_complete::Shell) -> Outcome {
    clap_complete::generate(shell, &mut Arguments::command(), "varve", &mut Output::new());
    Outcome::Done
}

pub(super) fn man(folder: &Path) -> Result<Outcome> {
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), folder))
        .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
    Ok(Outcome::Done)
}
