//! The front end of a session: its reports and questions on this terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::json;
use varve_session::{Notice, UserInterface};
use varve_store::RebuildProgress;
use varve_world::StopSignal;
use zeroize::Zeroizing;

use crate::{say, show, signals};

/// Fewer arenas than this are read before a user would see a progress bar.
const ARENAS_WORTH_A_BAR: u64 = 50;

/// The terminal, or the files to which standard output and standard error are redirected.
pub struct Terminal {
    pub quiet: bool,
    pub asks: bool,
}

impl UserInterface for Terminal {
    fn notice(&self, notice: &Notice) {
        warning!("{notice}");
        if let Some(hint) = notice.hint() {
            hint!("{hint}");
        }
    }

    fn waiting(&self, message: &str, patience: Duration) {
        if self.quiet {
            return;
        }
        let nanoseconds = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        let fields = || json!({ "message": message, "seconds": patience.as_secs() });
        let patience = show::duration(nanoseconds);
        say::diagnosis("waiting", fields, format_args!("varve: {message}; waiting for up to {patience}"));
    }

    fn rebuilding(&self) -> Box<dyn FnMut(RebuildProgress)> {
        let is_hidden = self.quiet || !io::stderr().is_terminal();
        let mut bar = None;
        Box::new(move |progress| {
            if !is_hidden && progress.arenas_total >= ARENAS_WORTH_A_BAR {
                show_rebuild(bar.get_or_insert_with(|| new_bar(progress)), progress);
            }
        })
    }

    fn can_ask(&self) -> bool {
        self.asks && io::stdin().is_terminal()
    }

    fn ask(&self, prompt: &str) -> io::Result<Zeroizing<String>> {
        rpassword::prompt_password(prompt).map(Zeroizing::new)
    }

    fn catch_signals(&self) -> io::Result<()> {
        signals::watch()
    }

    fn stop_signal(&self) -> StopSignal {
        signals::stop_signal()
    }
}

fn new_bar(progress: RebuildProgress) -> ProgressBar {
    ProgressBar::new(progress.arenas_total).with_message("reading the log's directory pages")
}

fn show_rebuild(bar: &ProgressBar, progress: RebuildProgress) {
    bar.set_position(progress.arenas_done);
    if progress.arenas_done == progress.arenas_total {
        bar.finish_and_clear();
    }
}
