//! `varve repair --accept-loss`

use anyhow::Result;
use serde_json::json;
use varve_archive::{AcceptPlan, accept_losses, plan_to_accept};

use super::super::lost_data;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::say;

/// Prints the plan, or carries out the plan of this name.
pub fn run(invocation: &Invocation, name: Option<&str>) -> Result<CommandOutcome> {
    let Some(name) = name else { return print_plan(invocation) };
    let store = invocation.session.write_store()?;
    let accepted = accept_losses(&store, name)?;
    store.close()?;
    if invocation.json {
        say::record("accepted_loss", json!({ "plan": name, "lost": lost_data::as_json(&accepted) }));
    } else if !invocation.quiet {
        lost_data::print(&accepted);
        let what = lost_data::summary(&accepted).unwrap_or_else(|| "nothing is lost".into());
        say!("{what}, and accepted: it is not reported any more");
    }
    Ok(CommandOutcome::Done)
}

fn print_plan(invocation: &Invocation) -> Result<CommandOutcome> {
    let AcceptPlan { losses, name } = plan_to_accept(&invocation.session.read_store()?)?;
    if invocation.json {
        say::record("accept_loss_plan", json!({ "plan": name, "lost": lost_data::as_json(&losses) }));
        return Ok(if losses.is_empty() { CommandOutcome::Done } else { CommandOutcome::Damage });
    }
    lost_data::print(&losses);
    let Some(lost) = lost_data::summary(&losses) else {
        say!("nothing to accept: no loss is recorded");
        return Ok(CommandOutcome::Done);
    };
    say!("plan {name}: {lost} would not be reported any more");
    hint!("nothing was changed yet; `varve repair --accept-loss {name}` does it");
    Ok(CommandOutcome::Damage)
}
