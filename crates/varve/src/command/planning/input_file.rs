//! Reading the input files of a plan.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use varve_content::{NewFile, PUBLIC};
use varve_plan::PlanInputError;

use crate::show;

/// Upper bound on the length of an input file.
const INPUT_BYTES_MAX: u64 = 1 << 20;

/// Reads an input file, of which `varve-plan predict --example` prints one.
pub fn read<T>(file: &Path, example: &str, parse: fn(&str) -> Result<T, PlanInputError>) -> Result<T> {
    let place = || file.display().to_string();
    let length = fs::metadata(file).with_context(place)?.len();
    if length > INPUT_BYTES_MAX {
        anyhow::bail!("{} is longer than {}", place(), show::bytes(INPUT_BYTES_MAX));
    }
    let text = fs::read_to_string(file).with_context(place)?;
    parse(&text).with_context(|| format!("{}: start from `varve-plan predict --example {example}`", place()))
}

/// Writes a picture.
pub fn write_picture(file: Option<&Path>, picture: impl FnOnce() -> String) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    // A device or a pipe has no name to replace.
    let written = match fs::metadata(file) {
        Ok(there) if !there.is_file() => fs::write(file, picture()),
        _ => NewFile::write(file, PUBLIC, true, picture().as_bytes()),
    };
    written.with_context(|| format!("{}: cannot write the picture", file.display()))
}
