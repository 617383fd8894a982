//! `varve mount`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use varve_archive::{FilteredSnapshots, SnapshotList};
use varve_block::BlockStore;
use varve_replica::HealingStore;
use varve_serve::days::Days;
use varve_serve::fuse;
use varve_session::{LeaseScope, StoreLocation};

use crate::arguments::MountArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say};

/// Poll interval for an unmount by another program.
const LOOK: Duration = Duration::from_millis(100);

pub fn run(invocation: &Invocation, args: &MountArgs) -> Result<CommandOutcome> {
    let is_over = over_on_signal().context("cannot catch signals")?;
    let (days, blocks) = open(invocation, args)?;
    let days = Arc::new(days);
    // The source marks Varve's mounts, even where they have no file system type of their own
    // (`varve_content`, `folder/mounts.rs`).
    let source = format!("varve:{}", invocation.session.store_path()?.display());
    let options = fuse::MountOptions { source, allow_other: args.allow_other };
    let mounted = fuse::mount(days, &args.folder, &options)?;
    let at = mounted.at().display();
    if invocation.json {
        say::record("mounted", json!({ "at": at.to_string() }));
    } else if !invocation.quiet {
        warning!("mounted on {at}; unmount it with Ctrl-C or `fusermount3 -u {at}`");
    }
    while !is_over.load(Ordering::Relaxed) && !mounted.has_ended() {
        std::thread::park_timeout(LOOK);
    }
    mounted.unmount().with_context(|| format!("{} is still mounted", args.folder.display()))?;
    if let Some(blocks) = blocks {
        invocation.session.report_lost(&blocks);
    }
    Ok(CommandOutcome::Done)
}

/// Opens the tree of snapshots of the named store. Also returns its blocks if lost blocks may come
/// from a replica.
fn open(invocation: &Invocation, args: &MountArgs) -> Result<(Days, Option<Arc<HealingStore>>)> {
    let filter = args.which.filter();
    if let StoreLocation::Venti(address) = invocation.session.home()? {
        let (found, blocks) = invocation.session.venti_snapshots(&address)?;
        return Ok((days(FilteredSnapshots::new(found, filter), blocks), None));
    }
    let archive = invocation.session.read()?;
    let blocks = invocation.session.healing(&archive);
    let world = archive.store().world().clone();
    let list = FilteredSnapshots::new(archive, filter);
    let list = invocation.session.leased(list, Some(world), LeaseScope::Listed);
    Ok((days(list, Arc::clone(&blocks) as _), Some(blocks)))
}

/// Returns the tree of a store's snapshots. Their contents are read from `blocks`.
pub(super) fn days(list: impl SnapshotList + 'static, blocks: Arc<dyn BlockStore>) -> Days {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Days::new(list, blocks, Box::new(moment::civil), owner)
}

/// Returns a flag that a signal to end sets. Further signals change nothing: a process that dies
/// while its mount exists leaves a dead mount behind.
fn over_on_signal() -> std::io::Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&is_over))?;
    }
    Ok(is_over)
}
