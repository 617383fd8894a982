//! `varve-plan predict --workload`: the cheapest hardware for a workload.

use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::Result;
use serde_json::json;
use varve_plan::{
    AttributeRange, DesignStudy, HardwareTable, LevelCurve, Processor, ServiceLevel, StoreDesign,
    WorkloadProfile, study_designs,
};
use varve_session::UsageError;
use varve_world::RealClock;

use super::input_file::{read, write_picture};
use crate::arguments::PlanArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &PlanArgs) -> Result<CommandOutcome> {
    if let Some(choice) = args.example {
        let text = choice.example().text();
        match invocation.json {
            true => say::record("plan_example", json!({ "text": text })),
            false => say!("{}", text.trim_end()),
        }
        return Ok(CommandOutcome::Done);
    }
    let (Some(workload), Some(devices), Some(sla)) = (&args.workload, &args.devices, &args.sla) else {
        return Err(UsageError("--workload, --devices and --sla belong together".into()).into());
    };
    let workload = read(workload, "workload", WorkloadProfile::parse)?;
    let table = read(devices, "devices", HardwareTable::parse)?;
    let level = read(sla, "sla", ServiceLevel::parse)?;
    let processor = workload.processor.unwrap_or_else(|| measured_core(workload.block_bytes));
    let study = study_designs(&workload, &table, &level, &processor);
    write_picture(args.svg.as_deref(), || study.svg())?;
    match invocation.json {
        true => say::record("design_study", json!({ "study": study })),
        false => print(&study),
    }
    Ok(if study.best.is_some() { CommandOutcome::Done } else { CommandOutcome::Failed })
}

/// Measures all cores together, and returns the rates of one.
#[expect(clippy::cast_precision_loss, reason = "a small count")]
fn measured_core(block_bytes: u32) -> Processor {
    let all = Processor::measure(&RealClock, block_bytes);
    let cores = available_parallelism().map_or(1, NonZero::get) as f64;
    Processor {
        put: all.put / cores,
        duplicate: all.duplicate / cores,
        get: all.get / cores,
        compare: all.compare / cores,
    }
}

fn print(study: &DesignStudy) {
    let needs = &study.needs;
    say!(
        "{}: after {} years {} of disks; {} of arenas, {:.0} million blocks",
        show::plain(&study.workload.name),
        study.level.years,
        size(needs.source_bytes),
        size(needs.log_bytes),
        needs.block_count / 1e6
    );
    say!("a snapshot reads {}, and adds {}", size(needs.snapshot_bytes), size(needs.new_bytes));
    say!("{} designs from {}", study.candidates, show::plain(&study.table));
    say!("");
    match &study.best {
        Some(best) => print_best(study, best),
        None => print_obstacles(study),
    }
    for curve in &study.curves {
        say!("");
        print_curve(study, curve);
    }
    if !study.ranges.is_empty() {
        say!("");
        say!("The architecture stays the cheapest while only this changes:");
        print_ranges(&study.ranges);
    }
    if !study.flips.is_empty() {
        say!("");
        print_flips(study);
    }
}

fn print_best(study: &DesignStudy, best: &StoreDesign) {
    let mut table = show::table(&["part", "count", "price and power"], &[1, 2]);
    for part in &best.parts {
        table.add_row([show::plain(&part.part), part.count.to_string(), money(study, part.cost)]);
    }
    table.add_row(["together".into(), String::new(), money(study, best.cost)]);
    say!("{}", table.trim_fmt());
    say!("");
    say!("The cheapest design is a store {}: {}.", best.engine, show::plain(&best.architecture));
    say!(
        "At the end, a snapshot takes {}, a restore gives {} a second, a single read takes {} ms, and the arenas' drives are {:.0}% full.",
        hours(best.snapshot_hours),
        size(best.restore_bytes_per_second),
        figure(best.look_ms),
        best.full_share * 100.0
    );
    if study.others.is_empty() {
        return;
    }
    say!("");
    let headings = ["other architectures", "server", "arenas", "cost", "snapshot", "restore", "read"];
    let mut table = show::table(&headings, &[3, 4, 5, 6]);
    for other in &study.others {
        table.add_row([
            show::plain(&other.architecture),
            show::plain(&other.server),
            show::plain(&other.arenas),
            money(study, other.cost),
            hours(other.snapshot_hours),
            format!("{}/s", size(other.restore_bytes_per_second)),
            format!("{} ms", figure(other.look_ms)),
        ]);
    }
    say!("{}", table.trim_fmt());
}

fn print_obstacles(study: &DesignStudy) {
    if study.candidates == 0 {
        say!("No design holds the data: none of the servers has enough slots for drives.");
        return;
    }
    say!("No design meets the level.");
    for obstacle in &study.obstacles {
        say!("Without {} the cheapest one costs {}.", obstacle.attribute, money(study, obstacle.cost));
    }
    if study.obstacles.is_empty() {
        say!(
            "No single part of it is the reason: more than one of them is too strict, or no server has enough memory."
        );
    }
}

/// Prints the steps of a curve: one row for each stretch with the same architecture.
fn print_curve(study: &DesignStudy, curve: &LevelCurve) {
    let mut table = show::table(&[curve.attribute, "cost", "cheapest architecture"], &[0, 1]);
    for stretch in curve.points.chunk_by(|one, other| one.architecture == other.architecture) {
        let [first, .., last] = stretch else {
            let [only] = stretch else { continue };
            table.add_row(row(
                study,
                (only.value, only.value),
                (only.cost, only.cost),
                only.architecture.as_deref(),
            ));
            continue;
        };
        table.add_row(row(
            study,
            (first.value, last.value),
            (first.cost, last.cost),
            first.architecture.as_deref(),
        ));
    }
    say!("{}", table.trim_fmt());
}

fn row(
    study: &DesignStudy,
    values: (f64, f64),
    costs: (Option<f64>, Option<f64>),
    architecture: Option<&str>,
) -> [String; 3] {
    let range = |one: String, other: String| if one == other { one } else { format!("{one} to {other}") };
    let cost = |cost: Option<f64>| cost.map_or_else(String::new, |cost| money(study, cost));
    [
        range(figure(values.0), figure(values.1)),
        range(cost(costs.0), cost(costs.1)),
        architecture.map_or_else(|| "none is fast enough".into(), show::plain),
    ]
}

fn print_ranges(ranges: &[AttributeRange]) {
    let mut table = show::table(&["input", "lowest", "given", "highest"], &[1, 2, 3]);
    for range in ranges {
        let edge = |edge: Option<f64>| edge.map_or_else(|| "any".into(), figure);
        table.add_row([
            range.attribute.to_owned(),
            edge(range.lowest),
            figure(range.value),
            edge(range.highest),
        ]);
    }
    say!("{}", table.trim_fmt());
}

fn print_flips(study: &DesignStudy) {
    let mut table = show::table(&["price of", "now", "flips at", "change", "to"], &[1, 2, 3]);
    for flip in &study.flips {
        table.add_row([
            show::plain(&flip.thing),
            money(study, flip.price),
            money(study, flip.flips_at),
            change(flip.change),
            show::plain(&flip.to),
        ]);
    }
    say!("{}", table.trim_fmt());
    say!("");
    for flip in &study.datasets {
        match (&flip.thing, flip.change) {
            (Some(thing), Some(fall)) => {
                say!(
                    "The place of the {} is most sensitive to the price of {}: {}.",
                    flip.dataset,
                    show::plain(thing),
                    change(fall)
                );
            }
            _ => say!("The place of the {} stays the same, however far one price falls.", flip.dataset),
        }
    }
}

fn change(share: f64) -> String {
    format!("{:+.0}%", share * 100.0)
}

fn money(study: &DesignStudy, amount: f64) -> String {
    amount_of(&study.currency, amount)
}

/// Formats an amount of money.
pub fn amount_of(currency: &str, amount: f64) -> String {
    let currency = show::plain(currency);
    if amount < 100.0 { format!("{currency}{amount:.2}") } else { format!("{currency}{amount:.0}") }
}

/// Formats a size as the input files have them, in powers of ten.
pub fn size(bytes: f64) -> String {
    let units = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1.0, "B"));
    format!("{} {name}", figure(bytes / unit))
}

fn hours(hours: f64) -> String {
    if hours < 1.0 { format!("{} minutes", figure(hours * 60.0)) } else { format!("{} hours", figure(hours)) }
}

/// Formats a figure with about three digits.
pub fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if !(0.001..1e6).contains(&size) => format!("{value:.2e}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
