//! This terminal as the console of a machine.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// `Ctrl-]`
const LEAVE: u8 = 0x1d;

/// A terminal in raw mode that sends every key to a machine. Dropping it restores the former mode.
pub(super) struct RawTerminal {
    before: Option<Termios>,
    console: Arc<Mutex<Option<UnixStream>>>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl RawTerminal {
    /// Takes over the terminal. `Ctrl-]` sets `is_left`.
    #[expect(clippy::disallowed_methods, reason = "keys come when they come")]
    pub(super) fn take(is_left: Arc<AtomicBool>) -> io::Result<Self> {
        let console: Arc<Mutex<Option<UnixStream>>> = Arc::default();
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            notice!("Ctrl-] leaves the console, and ends the machine");
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        }
        let target = Arc::clone(&console);
        // The thread waits for a key until the program ends.
        std::thread::spawn(move || send_keys(&target, &is_left));
        Ok(Self { before, console, listening: Mutex::new(None) })
    }

    /// Shows the output of a console, and sends it the keys.
    #[expect(clippy::disallowed_methods, reason = "a console speaks when it wants")]
    pub(super) fn connect(&self, console: &UnixStream) -> io::Result<()> {
        let mut shown = console.try_clone()?;
        *self.console.lock() = Some(console.try_clone()?);
        let listening = std::thread::spawn(move || {
            let (mut bytes, mut output) = ([0; 4096], io::stdout());
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                let written = output.write_all(bytes.get(..count).unwrap_or_default());
                if written.and_then(|()| output.flush()).is_err() {
                    return;
                }
            }
        });
        *self.listening.lock() = Some(listening);
        Ok(())
    }

    /// Disconnects from a console that has ended.
    pub(super) fn disconnect(&self) {
        *self.console.lock() = None;
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.disconnect();
        // The machine has ended. Show its last output before the terminal is restored.
        if let Some(listening) = self.listening.lock().take() {
            drop(listening.join());
        }
        if let Some(before) = &self.before {
            // A failure cannot be reported anywhere.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
            notice!("");
        }
    }
}

fn send_keys(console: &Mutex<Option<UnixStream>>, is_left: &AtomicBool) {
    let mut bytes = [0; 256];
    loop {
        let typed = match io::stdin().read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.get(..count).unwrap_or_default(),
        };
        if typed.contains(&LEAVE) {
            is_left.store(true, Ordering::Relaxed);
            return;
        }
        let console = console.lock().as_ref().map(UnixStream::try_clone);
        if let Some(Ok(mut console)) = console {
            // A write to a machine that has ended fails, and its error does not matter.
            drop(console.write_all(typed));
        }
    }
}
