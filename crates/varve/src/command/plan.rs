//! `varve plan`

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use varve_lab::{Case, DeviceFigures, Forecast, Plan, Processor, Wanted, plan};
use varve_world::RealClock;

use super::Outcome;
use crate::arguments::{Arguments, MakePlan, WrongWords};
use crate::show;

/// No list of figures is longer.
const DEVICE_FILE_BYTES_MAX: u64 = 1 << 20;

pub(super) fn run(arguments: &Arguments, words: &MakePlan) -> Result<Outcome> {
    let device = match &words.device {
        Some(file) => read_device(file)?,
        #[expect(clippy::cast_precision_loss, reason = "a rate has few digits")]
        None => DeviceFigures::assumed(words.read_rate as f64, words.write_rate as f64, words.places.into()),
    };
    if !device.is_usable() {
        return Err(WrongWords("the figures of the disk have to be larger than zero".into()).into());
    }
    let wanted = Wanted {
        disk_bytes: words.disk_size,
        block_bytes: words.block_size,
        stored_share: words.stored,
        duplicate_share: words.duplicates,
        memory_bytes: words.memory,
        index_memory: words.index_memory,
    };
    let plan = plan(&wanted, &device, &Processor::measure(&RealClock, words.block_size));
    if arguments.json {
        say!("{}", json!({ "plan": plan, "device": device }));
    } else {
        print(&plan, &device, words.device.is_none());
    }
    Ok(if plan.choice.is_some() { Outcome::Done } else { Outcome::Failed })
}

fn read_device(file: &Path) -> Result<DeviceFigures> {
    let failed = || format!("{} has no figures of a device", file.display());
    let length = fs::metadata(file).with_context(failed)?.len();
    if length > DEVICE_FILE_BYTES_MAX {
        anyhow::bail!("{}: it is too long", failed());
    }
    let text = fs::read_to_string(file).with_context(failed)?;
    serde_json::from_str(&text)
        .with_context(|| format!("{}: `varve bench device --json` prints them", failed()))
}

fn print(plan: &Plan, device: &DeviceFigures, is_assumed: bool) {
    let assumed = if is_assumed { ", assumed" } else { "" };
    say!(
        "disk{assumed}: {:.0} MB/s read, {:.0} MB/s written, {:.0} places a second",
        device.read_rate() / 1e6,
        device.write_rate() / 1e6,
        device.places_per_second()
    );
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

fn print_needs(plan: &Plan) {
    let mut table = show::table(
        &["store", "memory", "fits", "bits a block", "on disk", "fingerprint", "wrong places", "shared"],
        &[1, 3, 4, 5, 6, 7],
    );
    for forecast in &plan.forecasts {
        table.add_row([
            forecast.engine.to_owned(),
            gigabytes(forecast.memory_bytes),
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

fn print_cases(plan: &Plan) {
    let headings: Vec<_> =
        std::iter::once("MB/s").chain(Case::ALL.map(Case::name)).chain(["a night"]).collect();
    let mut table = show::table(&headings, &[1, 2, 3, 4, 5, 6, 7]);
    for forecast in &plan.forecasts {
        table.add_row(rates(forecast));
    }
    say!("{}", table.trim_fmt());
}

fn rates(forecast: &Forecast) -> Vec<String> {
    let rate =
        |rate: f64| if rate < 10e6 { format!("{:.2}", rate / 1e6) } else { format!("{:.0}", rate / 1e6) };
    let cases = forecast.cases.iter().map(|choice| rate(choice.rate));
    std::iter::once(forecast.engine.to_owned()).chain(cases).chain([rate(forecast.night_rate)]).collect()
}

fn gigabytes(bytes: f64) -> String {
    format!("{:.2} GB", bytes / 1e9)
}
