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
use varve_replica::Healing;
use varve_serve::days::Days;
use varve_serve::fuse;
use varve_session::Home;

use super::Outcome;
use crate::arguments::Mount;
use crate::invocation::Invocation;
use crate::{moment, say};

/// How soon it is noticed that somebody else has unmounted it.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn run(invocation: &Invocation, words: &Mount) -> Result<Outcome> {
    let is_over = over_on_signal().context("signals cannot be caught")?;
    let (days, blocks) = open(invocation, words)?;
    let days = Arc::new(days);
    // So a mount is told from others, also where it has no type of its own (`varve_archive`, `folder/mounts.rs`).
    let source = format!("varve:{}", invocation.session.store_path()?.display());
    let options = fuse::Options { source, allow_other: words.allow_other };
    let mounted = fuse::mount(days, &words.folder, &options)?;
    let at = mounted.at().display();
    if invocation.json {
        say::record("mounted", json!({ "at": at.to_string() }));
    } else if !invocation.quiet {
        remark!("varve: mounted on {at}; Ctrl-C or `fusermount3 -u {at}` takes it away");
    }
    while !is_over.load(Ordering::Relaxed) && !mounted.has_ended() {
        std::thread::park_timeout(LOOK);
    }
    mounted.unmount().with_context(|| format!("{} is still mounted", words.folder.display()))?;
    if let Some(blocks) = blocks {
        invocation.session.report_lost(&blocks);
    }
    Ok(Outcome::Done)
}

/// The days of what was named; and its blocks, if some of them may have to come from elsewhere.
fn open(invocation: &Invocation, words: &Mount) -> Result<(Days, Option<Arc<Healing>>)> {
    let filter = words.which.filter();
    if let Home::Venti(address) = invocation.session.home()? {
        let (found, blocks) = invocation.session.venti_snapshots(&address)?;
        return Ok((days(FilteredSnapshots::new(found, filter), blocks), None));
    }
    let archive = invocation.session.read()?;
    let blocks = invocation.session.healing(&archive);
    let list = FilteredSnapshots::new(archive, filter);
    Ok((days(list, Arc::clone(&blocks) as _), Some(blocks)))
}

/// The days of a store, for as long as the program runs; what they hold is read from `blocks`.
pub(super) fn days(list: impl SnapshotList + 'static, blocks: Arc<dyn BlockStore>) -> Days {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Days::new(list, blocks, Box::new(moment::civil), owner)
}

/// Set by a signal to end. A second one changes nothing: who died while a mount is there would leave it behind, dead.
fn over_on_signal() -> std::io::Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&is_over))?;
    }
    Ok(is_over)
}
