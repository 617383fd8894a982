//! The way back to the user of a command, for what cannot wait until the command returns.

use std::io;
use std::time::Duration;

use varve_store::RebuildProgress;
use zeroize::Zeroizing;

use crate::notice::Notice;

/// Renders what a session reports, and answers what it asks. The program implements it; so does a
/// test.
pub trait Frontend: Send + Sync {
    /// Reports something that the user must know, though the command goes on.
    fn notice(&self, notice: &Notice);

    /// Reports that another writer holds the store, as `message` says, and that the command now
    /// waits for up to `patience`.
    fn waiting(&self, message: &str, patience: Duration);

    /// Begins to report how far an index has been read from the log. The result is called with each
    /// step.
    fn rebuilding(&self) -> Box<dyn FnMut(RebuildProgress)>;

    /// Whether there is somebody to ask for a passphrase.
    fn can_ask(&self) -> bool;

    /// Asks for a passphrase.
    ///
    /// # Errors
    /// When the answer cannot be read.
    fn ask(&self, prompt: &str) -> io::Result<Zeroizing<String>>;

    /// From now on, a signal to end is only noted, and [`is_interrupted`](Self::is_interrupted)
    /// reports it.
    ///
    /// # Errors
    /// When signals cannot be caught.
    fn catch_signals(&self) -> io::Result<()>;

    /// The function that reports whether a signal to end has been caught. Attempts to reach another
    /// machine call it between two attempts.
    fn is_interrupted(&self) -> fn() -> bool;
}
