//! `varve-plan bench`

mod chunks;
mod device;
mod venti;

use anyhow::Result;

use crate::arguments::BenchCommand;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;

pub fn run(invocation: &Invocation, args: &BenchCommand) -> Result<CommandOutcome> {
    match args {
        BenchCommand::Venti(args) => venti::run(invocation, args),
        BenchCommand::Chunks(args) => chunks::run(invocation, args),
        BenchCommand::Device(args) => device::run(invocation, args),
    }
}
