//! `varve mount`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use varve_archive::Archive;
use varve_block::BlockStore;
use varve_serve::days::Days;
use varve_serve::fuse;

use super::Outcome;
use crate::arguments::{Arguments, Mount};
use crate::{moment, session};

/// How soon it is noticed that somebody else has unmounted it.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn run(arguments: &Arguments, words: &Mount) -> Result<Outcome> {
    let is_over = over_on_signal().context("signals cannot be caught")?;
    let archive = session::read(arguments)?;
    let blocks = session::healing(arguments, &archive);
    let days = Arc::new(days(archive, Arc::clone(&blocks) as _));
    let source = session::store_path(arguments)?.display().to_string();
    let options = fuse::Options { source, allow_other: words.allow_other };
    let mounted = fuse::mount(days, &words.folder, &options)?;
    if !arguments.quiet {
        let at = mounted.at().display();
        eprintln!("varve: mounted on {at}; Ctrl-C or `fusermount3 -u {at}` takes it away");
    }
    while !is_over.load(Ordering::Relaxed) && !mounted.has_ended() {
        std::thread::park_timeout(LOOK);
    }
    mounted.unmount().with_context(|| format!("{} is still mounted", words.folder.display()))?;
    session::report_lost(arguments, &blocks);
    Ok(Outcome::Done)
}

/// The days of a store, for as long as the program runs; what they hold is read from `blocks`.
pub(super) fn days(archive: Archive, blocks: Arc<dyn BlockStore>) -> Days {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Days::new(archive, blocks, Box::new(moment::civil), owner)
}

/// Set by a signal to end. A second one changes nothing: who died while a mount is there would leave it behind, dead.
fn over_on_signal() -> std::io::Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&is_over))?;
    }
    Ok(is_over)
}
