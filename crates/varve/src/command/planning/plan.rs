//! `varve-plan predict`

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use varve_plan::{Case, DeviceFigures, Forecast, Processor, Requirements, StorePlan, plan};
use varve_session::UsageError;
use varve_world::RealClock;

use super::{design, endowment};
use crate::arguments::PlanArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

/// Upper bound on the length of a file of device figures.
const DEVICE_FILE_BYTES_MAX: u64 = 1 << 20;
/// Upper bound on the number of plans in a table.
const PLANS_MAX: usize = 256;

pub fn run(invocation: &Invocation, args: &PlanArgs) -> Result<CommandOutcome> {
    if args.endowment.is_some() {
        return endowment::run(invocation, args);
    }
    if args.example.is_some() || args.workload.is_some() {
        return design::run(invocation, args);
    }
    let device = match &args.device {
        Some(file) => read_device(file)?,
        #[expect(clippy::cast_precision_loss, reason = "a rate has few digits")]
        None => DeviceFigures::assumed(args.read_rate as f64, args.write_rate as f64, args.places.into()),
    };
    if !device.is_usable() {
        return Err(UsageError("the figures of the disk must be larger than zero".into()).into());
    }
    let plans = plans(args, &device)?;
    let is_assumed = args.device.is_none();
    match plans.as_slice() {
        plans if invocation.json => {
            for plan in plans {
                say::record("plan", json!({ "plan": plan, "device": device }));
            }
        }
        [plan] => print(plan, &device, is_assumed),
        plans => print_many(plans, &device, is_assumed),
    }
    let has_choice = plans.iter().any(|plan| plan.choice.is_some());
    Ok(if has_choice { CommandOutcome::Done } else { CommandOutcome::Failed })
}

/// Makes a plan for each combination of the requested sizes.
fn plans(args: &PlanArgs, device: &DeviceFigures) -> Result<Vec<StorePlan>> {
    let disks = args.disk_size.as_ref().map_or(&[][..], |sizes| &sizes.0);
    let blocks = &args.block_size.0;
    if disks.len().saturating_mul(blocks.len()) > PLANS_MAX {
        return Err(UsageError(format!("these are more than {PLANS_MAX} settings: give fewer sizes")).into());
    }
    let mut plans = Vec::new();
    for block_bytes in blocks {
        let block_bytes = u32::try_from(*block_bytes)?;
        let processor = Processor::measure(&RealClock, block_bytes);
        for disk_bytes in disks {
            let wanted = Requirements {
                disk_bytes: *disk_bytes,
                block_bytes,
                stored_share: args.stored,
                duplicate_share: args.duplicates,
                memory_bytes: args.memory,
                index_memory: args.index_memory,
                collision_interval: args.collision_interval,
                empty_memory_bytes: args.empty_memory,
            };
            plans.push(plan(&wanted, device, &processor));
        }
    }
    Ok(plans)
}

fn read_device(file: &Path) -> Result<DeviceFigures> {
    let failed = || format!("{} has no measurements of a disk", file.display());
    let length = fs::metadata(file).with_context(failed)?.len();
    if length > DEVICE_FILE_BYTES_MAX {
        anyhow::bail!("{} is too long", failed());
    }
    let text = fs::read_to_string(file).with_context(failed)?;
    serde_json::from_str(&text)
        .with_context(|| format!("{}: make the file with `varve-plan bench device --json`", failed()))
}

/// Prints a table of all kinds of store within the limits, by increasing memory.
fn print_many(plans: &[StorePlan], device: &DeviceFigures, is_assumed: bool) {
    print_device(device, is_assumed);
    say!("");
    let all = || plans.iter().flat_map(|plan| plan.forecasts.iter().map(move |forecast| (plan, forecast)));
    let mut fitting: Vec<_> = all().filter(|(_, forecast)| forecast.fits).collect();
    fitting.sort_by(|(_, one), (_, other)| one.memory_bytes.total_cmp(&other.memory_bytes));
    let headings = [
        "disk",
        "block",
        "store",
        "blocks",
        "memory",
        "empty",
        "bits a block",
        "fingerprint",
        "one collision in",
        "daily snapshot",
    ];
    let mut table = show::table(&headings, &[0, 1, 3, 4, 5, 6, 7, 8, 9]);
    for (plan, forecast) in &fitting {
        table.add_row([
            show::bytes(plan.wanted.disk_bytes),
            show::bytes(plan.wanted.block_bytes.into()),
            forecast.engine.to_owned(),
            format!("{:.1}M", plan.block_count / 1e6),
            gigabytes(forecast.memory_bytes),
            gigabytes(forecast.empty_memory_bytes),
            format!("{:.1}", forecast.memory_bits_per_block),
            format!("{:.0} bits", forecast.fingerprint_bits),
            forecast.collision_interval.map_or_else(|| "none".into(), |interval| format!("{interval:.0}")),
            format!("{} MB/s", rate(forecast.night_rate)),
        ]);
    }
    if !fitting.is_empty() {
        say!("{}", table.trim_fmt());
    }
    let left_out = all().count() - fitting.len();
    if left_out > 0 {
        say!("");
        say!("{} outside the limits, not shown (--json has them)", show::count(left_out, "setting"));
    }
}

fn print_device(device: &DeviceFigures, is_assumed: bool) {
    let assumed = if is_assumed { ", assumed" } else { "" };
    say!(
        "disk{assumed}: {:.0} MB/s read, {:.0} MB/s written, {:.0} random reads a second",
        device.read_rate() / 1e6,
        device.write_rate() / 1e6,
        device.places_per_second()
    );
}

fn print(plan: &StorePlan, device: &DeviceFigures, is_assumed: bool) {
    print_device(device, is_assumed);
    let processor = &plan.processor;
    say!(
        "processor, measured now: {:.0} MB/s of new blocks, {:.0} of duplicates, {:.0} of duplicates compared by value, {:.0} read",
        processor.put / 1e6,
        processor.duplicate / 1e6,
        processor.compare / 1e6,
        processor.get / 1e6
    );
    say!("{:.0} million blocks when the disk is full", plan.block_count / 1e6);
    say!("");
    print_needs(plan);
    say!("");
    print_cases(plan);
    say!("");
    say!(
        "One BLAKE3 score for two blocks: a chance of {:.0e}; one SHA-1 score, by accident: {:.0e}.",
        plan.score_collision,
        plan.score_collision_sha1
    );
    for formula in &plan.formulas {
        say!("  {formula}");
    }
    say!("");
    match plan.choice.and_then(|number| plan.forecasts.get(number)) {
        Some(choice) => say!("Take `{}`: {}.", choice.init, plan.reason),
        None => say!("Nothing fits: {}.", plan.reason),
    }
}

fn print_needs(plan: &StorePlan) {
    let mut table = show::table(
        &[
            "store",
            "memory",
            "empty",
            "fits",
            "bits a block",
            "on disk",
            "fingerprint",
            "wrong places",
            "shared",
        ],
        &[1, 2, 4, 5, 6, 7, 8],
    );
    for forecast in &plan.forecasts {
        table.add_row([
            forecast.engine.to_owned(),
            gigabytes(forecast.memory_bytes),
            gigabytes(forecast.empty_memory_bytes),
            if forecast.fits { "yes" } else { "no" }.to_owned(),
            format!("{:.1}", forecast.memory_bits_per_block),
            gigabytes(forecast.index_disk_bytes),
            format!("{:.0} bits", forecast.fingerprint_bits),
            format!("{:.0e}", forecast.wrong_places_per_lookup),
            format!("{:.0}", forecast.shared_fingerprints),
        ]);
    }
    say!("{}", table.trim_fmt());
}

fn print_cases(plan: &StorePlan) {
    let headings: Vec<_> =
        std::iter::once("MB/s").chain(Case::ALL.map(Case::name)).chain(["daily snapshot"]).collect();
    let mut table = show::table(&headings, &[1, 2, 3, 4, 5, 6, 7]);
    for forecast in &plan.forecasts {
        table.add_row(rates(forecast));
    }
    say!("{}", table.trim_fmt());
}

fn rate(rate: f64) -> String {
    if rate < 10e6 { format!("{:.2}", rate / 1e6) } else { format!("{:.0}", rate / 1e6) }
}

fn rates(forecast: &Forecast) -> Vec<String> {
    let cases = forecast.cases.iter().map(|choice| rate(choice.rate));
    std::iter::once(forecast.engine.to_owned()).chain(cases).chain([rate(forecast.night_rate)]).collect()
}

fn gigabytes(bytes: f64) -> String {
    format!("{:.2} GB", bytes / 1e9)
}
