//! `varve attach`

mod access_file;
mod attached_disk;
mod attached_export;
mod described_machine;
mod figures;
mod front_ends;
mod newer_edition;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use varve_attach::{FillReport, PublishedDisk, fill_cache, prefetch_profile, published_profile};
use varve_edition::{DiskProfile, PublishedImage};
use varve_session::{Interrupted, UsageError};

use self::attached_disk::AttachedDisk;
use self::attached_export::AttachedExport;
use self::front_ends::AttachFrontEnds;
use crate::arguments::{AttachArgs, ProfileChoice};
use crate::command::keeping::profile::read_profile;
use crate::exit_status::INTERRUPTED;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

/// Poll interval for signals, and for an unmount by another program.
const LOOK: Duration = Duration::from_millis(100);

pub fn run(invocation: &Invocation, args: &AttachArgs) -> Result<CommandOutcome> {
    // A conflict in the arguments' definition would cancel what the choices for a machine require.
    if args.boot && args.nbd.is_some() {
        bail!(UsageError("--boot cannot be used with --nbd: the machine has the disk for itself".into()));
    }
    let ending = EndOnSignal::register().context("cannot catch signals")?;
    let is_over = &ending.is_over;
    let (attached, watch) = AttachedDisk::open(invocation, args, is_over)?;
    let disk = &attached.disk;
    let profile = profile(args, disk)?;
    let export = AttachedExport::new(invocation, args, disk)?;
    ending.end_in_order();
    let mut front_ends = AttachFrontEnds::start(args, &attached, &export)?;
    let is_served = front_ends.serve_the_disk();
    if is_served {
        front_ends.announce(invocation, &attached);
        if let (Some(every), false) = (args.look_every.0, args.offline) {
            watch.start(every, is_over)?;
        }
    }
    if let Some(profile) = profile {
        prefetch_beside(profile, disk, is_over)?;
    }
    let filled = match (args.fill, is_served) {
        (false, _) => None,
        (true, false) => Some(fill(invocation.json, args.fill_rate, disk, is_over)?),
        (true, true) => {
            fill_beside(invocation.json, args.fill_rate, disk, is_over)?;
            None
        }
    };
    let was_interrupted = is_over.load(Ordering::Relaxed);
    let booted = front_ends.run_machine(invocation, args, disk, is_over);
    front_ends.wait(is_over);
    is_over.store(true, Ordering::Relaxed);
    front_ends.close()?;
    ending.end_at_once();
    attached.finish(invocation);
    export.finish()?;
    let is_incomplete = filled.is_some_and(|filled| !filled.is_complete());
    match booted {
        Some(booted) => booted,
        None if is_incomplete && was_interrupted => bail!(Interrupted("the cache is not complete")),
        None => Ok(if is_incomplete { CommandOutcome::Failed } else { CommandOutcome::Done }),
    }
}

/// The end of the program on a signal.
struct EndOnSignal {
    /// Set by a signal. Everything that waits looks at it.
    is_over: Arc<AtomicBool>,
    /// True while a signal ends the program at once. False while a disk is served: a process that
    /// dies while its mount exists leaves a dead mount behind.
    may_die: Arc<AtomicBool>,
}

impl EndOnSignal {
    fn register() -> std::io::Result<Self> {
        let (is_over, may_die) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(&may_die))?;
            flag::register(signal, Arc::clone(&is_over))?;
        }
        Ok(Self { is_over, may_die })
    }

    /// Lets the program end the disk in order after a signal.
    fn end_in_order(&self) {
        self.may_die.store(false, Ordering::Relaxed);
    }

    /// Lets the next signal end the program at once.
    fn end_at_once(&self) {
        self.may_die.store(true, Ordering::Relaxed);
    }
}

/// Completes the cache, and reports it.
fn fill(
    json: bool,
    bytes_per_second: Option<u64>,
    disk: &PublishedDisk,
    is_over: &Arc<AtomicBool>,
) -> Result<FillReport> {
    if disk.source().stored().is_none() {
        bail!("the cache cannot be completed, because it is not used");
    }
    let filled = fill_cache(disk, bytes_per_second, is_over).context("the cache is not complete")?;
    if json {
        let fields = json!({
            "blocks": filled.blocks, "bytes": filled.bytes, "blocks_there": filled.blocks_there,
            "complete": filled.is_complete(),
        });
        say::record("filled", fields);
    } else if filled.is_complete() {
        let (blocks, bytes) = (show::count(filled.blocks, "block"), show::bytes(filled.bytes));
        say!("the cache is complete: {blocks} of {bytes}; `attach --offline` needs no server");
    } else {
        let all = show::count(filled.blocks, "block");
        let reason = match is_over.load(Ordering::Relaxed) {
            true => "the program was told to end",
            false => "the others do not fit: --cache-size or the disk of the cache is too small",
        };
        say!("the cache has {} of {all}: {reason}", filled.blocks_there);
    }
    Ok(filled)
}

/// Does the same on a thread of its own, while the disk is served.
fn fill_beside(
    json: bool,
    bytes_per_second: Option<u64>,
    disk: &Arc<PublishedDisk>,
    is_over: &Arc<AtomicBool>,
) -> Result<()> {
    let (disk, is_over) = (Arc::clone(disk), Arc::clone(is_over));
    let fill = move || {
        if let Err(error) = fill(json, bytes_per_second, &disk, &is_over) {
            warning!("{error:#}");
        }
    };
    std::thread::Builder::new().name("fill".into()).spawn(fill)?;
    Ok(())
}

fn shown(image: &PublishedImage) -> String {
    format!("{}@{}", show::name(image.name.as_bytes()), moment::show(image.time))
}

/// Returns the profile to prefetch. An edition without one is attached all the same.
fn profile(args: &AttachArgs, disk: &PublishedDisk) -> Result<Option<DiskProfile>> {
    let profile = match &args.profile {
        ProfileChoice::None => return Ok(None),
        ProfileChoice::File(file) => read_profile(file)?,
        ProfileChoice::Auto => {
            let Some(part) = &disk.image().profile else {
                warning!("nothing is prefetched: the edition has no profile of this disk");
                return Ok(None);
            };
            match published_profile(disk.source(), part) {
                Ok(Some(profile)) if profile.reads().is_empty() => return Ok(None),
                Ok(Some(profile)) => profile,
                Ok(None) => bail!("the profile of the edition is invalid: attach with --profile none"),
                Err(error) => {
                    warning!("nothing is prefetched: the profile of the edition: {error}");
                    return Ok(None);
                }
            }
        }
    };
    let (size, actual) = (profile.size(), disk.image().shape.size);
    if size != actual {
        warning!(
            "the profile is that of a disk of {}, and this one has {}",
            show::bytes(size),
            show::bytes(actual)
        );
    }
    Ok(Some(profile))
}

/// Prefetches on a thread of its own, while the disk is served.
fn prefetch_beside(profile: DiskProfile, disk: &Arc<PublishedDisk>, is_over: &Arc<AtomicBool>) -> Result<()> {
    let (disk, is_over) = (Arc::clone(disk), Arc::clone(is_over));
    let prefetch = move || match prefetch_profile(&disk, &profile, &is_over) {
        Ok(report) if report.was_wrong => {
            warning!("the profile does not fit: most reads were for other blocks");
        }
        Ok(report) => tracing::info!(report.blocks, report.requested, "the profile was prefetched"),
        Err(error) => warning!("the profile is not prefetched: {error}"),
    };
    std::thread::Builder::new().name("prefetch".into()).spawn(prefetch)?;
    Ok(())
}
