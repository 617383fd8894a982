//! `varve pause`

use anyhow::Result;
use varve_daily::{LoadedConfig, StateFolder};
use varve_world::{Clock, RealClock};

use crate::arguments::PauseArgs;
use crate::invocation::Invocation;
use crate::moment;
use crate::outcome::CommandOutcome;

pub fn run(invocation: &Invocation, args: &PauseArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref(), invocation.frontend())?;
    let state = StateFolder::open(&loaded.state)?;
    let now = RealClock.now();
    let until = args.time.map(|time| now.plus(time));
    state.pause(now, until)?;
    if !invocation.quiet {
        match until {
            Some(until) => say!("daily work is paused until {}", moment::show(until)),
            None => say!("daily work is not paused"),
        }
    }
    Ok(CommandOutcome::Done)
}
