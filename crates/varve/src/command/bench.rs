//! `varve bench`

mod device;
mod forget;
mod foundation;
mod memventi;
mod venti;

use anyhow::Result;

use super::Outcome;
use crate::arguments::{Arguments, Bench};

pub(super) fn run(arguments: &Arguments, words: &Bench) -> Result<Outcome> {
    match words {
        Bench::Venti(words) => venti::run(arguments, words),
        Bench::Device(words) => device::run(arguments, words),
        Bench::Foundation(words) => foundation::run(arguments, words),
        Bench::Memventi(words) => memventi::run(arguments, words),
    }
}
