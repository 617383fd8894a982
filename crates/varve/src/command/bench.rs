//! `varve bench`

mod device;
mod forget;
mod foundation;
mod memventi;
mod venti;

use std::path::Path;

use anyhow::{Result, bail};

use super::Outcome;
use crate::arguments::Bench;
use crate::invocation::Invocation;

pub(super) fn run(invocation: &Invocation, words: &Bench) -> Result<Outcome> {
    match words {
        Bench::Venti(_) => {}
        Bench::Device(words) => require_folder(&words.folder)?,
        Bench::Foundation(words) => require_folder(&words.folder)?,
        Bench::Memventi(words) => require_folder(&words.folder)?,
    }
    match words {
        Bench::Venti(words) => venti::run(invocation, words),
        Bench::Device(words) => device::run(invocation, words),
        Bench::Foundation(words) => foundation::run(invocation, words),
        Bench::Memventi(words) => memventi::run(invocation, words),
    }
}

/// Nothing is measured where there is nothing.
fn require_folder(folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        bail!("there is no folder {}: name one that is on the disk to be measured", folder.display());
    }
    Ok(())
}
