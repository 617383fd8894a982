//! `varve bench`

mod device;
mod forget;
mod foundation;
mod memventi;
mod venti;

use std::path::Path;

use anyhow::{Result, bail};

use super::Outcome;
use crate::arguments::{Arguments, Bench};

pub(super) fn run(arguments: &Arguments, words: &Bench) -> Result<Outcome> {
    match words {
        Bench::Venti(_) => {}
        Bench::Device(words) => require_folder(&words.folder)?,
        Bench::Foundation(words) => require_folder(&words.folder)?,
        Bench::Memventi(words) => require_folder(&words.folder)?,
    }
    match words {
        Bench::Venti(words) => venti::run(arguments, words),
        Bench::Device(words) => device::run(arguments, words),
        Bench::Foundation(words) => foundation::run(arguments, words),
        Bench::Memventi(words) => memventi::run(arguments, words),
    }
}

/// Nothing is measured where there is nothing.
fn require_folder(folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        bail!("there is no folder {}: name one that is on the disk to be measured", folder.display());
    }
    Ok(())
}
