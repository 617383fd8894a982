//! `varve-plan bench device`

use std::time::Duration;

use anyhow::{Context, Result, bail};
use varve_plan::{DeviceRow, measure_device};

use crate::arguments::BenchDeviceArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &BenchDeviceArgs) -> Result<CommandOutcome> {
    if !args.folder.is_dir() {
        bail!("there is no folder {}: name a folder on the disk to be measured", args.folder.display());
    }
    let failed = || format!("the disk of {} could not be measured", args.folder.display());
    // The file is removed when this function returns, also after a caught signal. It has a name
    // only until then.
    let file =
        tempfile::Builder::new().prefix("varve-bench-").tempfile_in(&args.folder).with_context(failed)?;
    if !invocation.json {
        say!("{:<18}{:>10}{:>7}{:>14}{:>12}", "", "BYTES", "DEPTH", "A SECOND", "MB/S");
    }
    let mut done = |row: &DeviceRow| {
        if !invocation.json {
            say!(
                "{:<18}{:>10}{:>7}{:>14.0}{:>12.1}",
                row.what(),
                show::bytes(row.bytes as u64),
                row.depth,
                row.per_second,
                row.rate() / 1e6
            );
        }
    };
    let time = Duration::from_secs_f64(args.seconds);
    let figures = measure_device(file.path(), args.size, time, &mut done).with_context(failed)?;
    if invocation.json {
        say::record("device_benchmark", serde_json::to_value(&figures)?);
        return Ok(CommandOutcome::Done);
    }
    if let Some(seconds) = figures.sync_seconds {
        say!("{:<18}{:>10}{:>7}{:>14.0}", "append and sync", show::bytes(4096), 1, 1.0 / seconds.max(1e-9));
    }
    if let Some(budget) = figures.budget {
        let own = if budget.is_shared { "" } else { ", for reads and for writes" };
        say!("The system holds this disk to a rate{own}.");
        say!("After a pause, accesses of {:.0} ms pass at once.", budget.saved_seconds * 1e3);
    }
    if !figures.is_direct {
        say!("The file system has no direct access: the page cache may have made reads faster.");
    }
    Ok(CommandOutcome::Done)
}
