//! `varve-plan predict --endowment`: the money that keeps an archive for many years.

use anyhow::Result;
use serde_json::json;
use varve_plan::{ArchiveCosts, Endowment, EndowmentRuns, endow};
use varve_session::UsageError;

use super::design::{amount_of, figure, size};
use super::input_file::{read, write_picture};
use crate::arguments::PlanArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &PlanArgs) -> Result<CommandOutcome> {
    let (Some(years), Some(file)) = (args.endowment, &args.costs) else {
        return Err(UsageError("--endowment and --costs belong together".into()).into());
    };
    let costs = read(file, "endowment", ArchiveCosts::parse)?;
    let endowment = endow(&costs, &EndowmentRuns { years, runs: args.runs, seed: args.seed });
    write_picture(args.svg.as_deref(), || endowment.svg())?;
    match invocation.json {
        true => say::record("endowment", json!({ "endowment": endowment })),
        false => print(&endowment),
    }
    Ok(if endowment.choice.is_some() { CommandOutcome::Done } else { CommandOutcome::Failed })
}

fn print(endowment: &Endowment) {
    let (costs, asked) = (&endowment.costs, &endowment.asked);
    let percent = |share: f64| format!("{}%", figure(share * 100.0));
    let money = |amount: f64| amount_of(&costs.currency, amount);
    say!(
        "{}: {} now, {} after {} years; interest {}, prices fall by {} a year",
        show::plain(&costs.name),
        size(costs.bytes),
        size(endowment.bytes_at_the_end),
        asked.years,
        percent(costs.interest),
        percent(costs.price_fall)
    );
    say!("{} histories of each scheme, seed {}", asked.runs, asked.seed);
    say!("");
    let enough = format!("enough in {}", percent(costs.probability));
    let headings =
        ["scheme", "nothing lost", "95% interval", "copies repaired", "mean cost", &enough, "safe"];
    let mut table = show::table(&headings, &[1, 2, 3, 4, 5]);
    for scheme in &endowment.schemes {
        let (low, high) = scheme.kept_between;
        table.add_row([
            show::plain(&scheme.name),
            format!("{:.2}%", scheme.kept * 100.0),
            format!("{:.2} to {:.2}%", low * 100.0, high * 100.0),
            figure(scheme.repairs),
            money(scheme.mean_cost),
            money(scheme.endowment),
            if scheme.is_safe { "yes" } else { "no" }.to_owned(),
        ]);
    }
    say!("{}", table.trim_fmt());
    say!("");
    match endowment.choice.and_then(|number| endowment.schemes.get(number)) {
        Some(choice) => say!(
            "Take {}: {} now suffices in {} of the histories, and at least {} of them lose nothing.",
            show::plain(&choice.name),
            money(choice.endowment),
            percent(costs.probability),
            percent(costs.probability)
        ),
        None => say!(
            "No scheme keeps everything in {} of the histories for certain: add places, audit more often, or simulate more histories (--runs).",
            percent(costs.probability)
        ),
    }
}
