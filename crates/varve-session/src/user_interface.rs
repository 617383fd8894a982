//! The channel to the user of a command, for messages and questions that cannot wait until the
//! command returns.

use std::io;
use std::time::Duration;

use varve_store::RebuildProgress;
use varve_world::StopSignal;
use zeroize::Zeroizing;

use crate::notice::Notice;

/// Renders the reports of a session and answers its questions. The program implements it, and tests
/// have their own implementation.
pub trait UserInterface: Send + Sync {
    /// Reports a fact that the user must know while the command continues.
    fn notice(&self, notice: &Notice);

    /// Reports that the command waits for another writer for up to `patience`. `message` names the
    /// writer.
    fn waiting(&self, message: &str, patience: Duration);

    /// Begins to report the progress of rebuilding an index from the log. The caller calls the
    /// result at each step.
    fn rebuilding(&self) -> Box<dyn FnMut(RebuildProgress)>;

    /// Reports whether a user can be asked for a passphrase.
    fn can_ask(&self) -> bool;

    /// Asks for a passphrase.
    ///
    /// # Errors
    /// When the answer cannot be read.
    fn ask(&self, prompt: &str) -> io::Result<Zeroizing<String>>;

    /// Catches the signals that end the program. The first one then only sets
    /// [`stop_signal`](Self::stop_signal).
    ///
    /// # Errors
    /// When signals cannot be caught.
    fn catch_signals(&self) -> io::Result<()>;

    /// Returns the request to end, which a caught signal sets. It ends waits and retries early.
    fn stop_signal(&self) -> StopSignal;
}
