//! Whether a machine comes up: it is started without a screen, and its console is listened to until it says what is waited for.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use super::boot_error::BootError;
use super::emulator::Emulator;
use super::setting::Accelerator;
use super::transcript::{Transcript, is_login};
use crate::edge::{Deadline, sleep};

/// How long one look at the console takes.
const LOOK: Duration = Duration::from_millis(200);
/// Every how many looks the rest is looked at, which costs the machine some time.
const RARELY: u32 = 5;
/// How many lines of what was said are told.
const TAIL_LINES: usize = 12;

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// This text, anywhere.
    Text(String),
    /// A question for a name, as the last thing that is said.
    Login,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOutcome {
    /// What was waited for has come.
    pub is_up: bool,
    /// How long it took, or was waited for, from the last start on.
    pub elapsed: Duration,
    /// Who did the machine's work.
    pub accelerator: Accelerator,
    /// The last lines of what it said.
    pub said: String,
    /// Why it ended without that, if it did.
    pub ended: Option<String>,
}

/// Who looks on.
pub struct CheckWatch<'a> {
    /// How long to wait.
    pub timeout: Duration,
    /// Where to draw the screen at the end.
    pub screenshot: Option<&'a Path>,
    /// Whether somebody has had enough.
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// Is told when the machine is started again, in software.
    pub starts_again: &'a dyn Fn(),
}

/// Starts a machine with `start`, and waits for what is wanted. Where KVM gives up, it is started again in software.
///
/// # Errors
/// [`BootError`], when it could not even be started. That it does not come up is no error.
pub fn check(
    wanted: &Wanted,
    watch: &CheckWatch<'_>,
    start: &mut dyn FnMut(Accelerator) -> Result<Emulator, BootError>,
) -> Result<CheckOutcome, BootError> {
    let mut accelerator = Accelerator::best();
    loop {
        let outcome = match start(accelerator) {
            Ok(mut machine) => check_once(wanted, watch, &mut machine)?,
            Err(error) if error.is_of(accelerator) => None,
            Err(error) => return Err(error),
        };
        if let Some(outcome) = outcome {
            return Ok(outcome);
        }
        (watch.starts_again)();
        accelerator = Accelerator::Software;
    }
}

/// `None`: the accelerator has given up.
fn check_once(
    wanted: &Wanted,
    watch: &CheckWatch<'_>,
    machine: &mut Emulator,
) -> Result<Option<CheckOutcome>, BootError> {
    let mut transcript = Transcript::default();
    let deadline = Deadline::after(watch.timeout);
    let (mut is_up, mut ended) = (false, None);
    let mut is_open = true;
    for look in 1_u32.. {
        is_open = is_open && listen(machine, &mut transcript)?;
        is_up = match wanted {
            Wanted::Text(text) => transcript.has(text),
            Wanted::Login => transcript.ends_with_login(),
        };
        if let Some(status) = machine.ended()
            && !is_up
        {
            ended = Some(format!("the machine has ended ({status}) {}", machine.said()));
        }
        let is_late = deadline.left().is_none();
        if !is_up && ended.is_none() && (look % RARELY == 0 || is_late) {
            if machine.has_given_up() {
                return Ok(None);
            }
            is_up = is_on_screen(wanted, &machine.screen_text());
            if !is_up && machine.waits_for_room() {
                ended = Some("it stands still: what it writes finds no room".into());
            }
        }
        if is_up || is_late || ended.is_some() || (watch.is_cancelled)() {
            break;
        }
    }
    if let Some(file) = watch.screenshot
        && ended.is_none()
        && let Err(error) = machine.screenshot(file)
    {
        tracing::warn!(%error, "the screen could not be drawn");
    }
    let elapsed = watch.timeout.saturating_sub(deadline.left().unwrap_or_default());
    let mut said = transcript.tail(TAIL_LINES);
    if said.is_empty() && ended.is_none() {
        let lines: Vec<String> = machine.screen_text().into_iter().filter(|line| !line.is_empty()).collect();
        said = lines.join("\n");
    }
    Ok(Some(CheckOutcome { is_up, elapsed, accelerator: machine.accelerator(), said, ended }))
}

/// Takes what the console says within one look. `false`: it will say no more.
fn listen(machine: &Emulator, transcript: &mut Transcript) -> Result<bool, BootError> {
    let Some(mut console) = machine.console() else {
        sleep(LOOK);
        return Ok(true);
    };
    console.set_read_timeout(Some(LOOK)).map_err(BootError::Console)?;
    let mut bytes = [0; 4096];
    match console.read(&mut bytes) {
        Ok(0) => {
            sleep(LOOK);
            Ok(false)
        }
        Ok(count) => {
            transcript.receive(bytes.get(..count).unwrap_or_default());
            Ok(true)
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(BootError::Console(error)),
    }
}

fn is_on_screen(wanted: &Wanted, lines: &[String]) -> bool {
    match wanted {
        Wanted::Text(text) => !text.is_empty() && lines.iter().any(|line| line.contains(text)),
        Wanted::Login => lines.iter().rfind(|line| !line.is_empty()).is_some_and(|line| is_login(line)),
    }
}
