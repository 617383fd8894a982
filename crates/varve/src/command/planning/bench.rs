//! `varve bench`

mod device;
mod venti;

use anyhow::Result;

use crate::arguments::Bench;
use crate::invocation::Invocation;
use crate::outcome::Outcome;

pub fn run(invocation: &Invocation, words: &Bench) -> Result<Outcome> {
    match words {
        Bench::Venti(words) => venti::run(invocation, words),
        Bench::Device(words) => device::run(invocation, words),
    }
}
