//! Checks that a machine boots: starts it without a screen, and reads its console until the
//! expected text appears.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use super::boot_error::BootError;
use super::emulator::Emulator;
use super::setting::Accelerator;
use super::transcript::{Transcript, is_login};
use crate::edge::{Deadline, sleep};

/// The time of one look at the console.
const LOOK: Duration = Duration::from_millis(200);
/// The number of looks between the more expensive checks, which cost the machine some time.
const RARELY: u32 = 5;
/// The number of console lines in the outcome.
const TAIL_LINES: usize = 12;

/// The text that shows that the machine is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootSign {
    /// This text, anywhere in the output.
    Text(String),
    /// A login prompt as the last output.
    Login,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOutcome {
    /// True if the expected text appeared.
    pub is_up: bool,
    /// The time from the last start to the text, or to the end of the check.
    pub elapsed: Duration,
    /// The accelerator that was used.
    pub accelerator: Accelerator,
    /// The last lines of the console.
    pub said: String,
    /// The reason why the check ended without the text.
    pub ended: Option<String>,
}

/// The limits and callbacks of a check.
pub struct CheckWatch<'a> {
    /// The time limit.
    pub timeout: Duration,
    /// The file for a screenshot at the end.
    pub screenshot: Option<&'a Path>,
    /// Returns true if the user cancelled the check.
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// Called when the machine is restarted with software emulation.
    pub starts_again: &'a dyn Fn(),
}

/// Starts a machine with `start`, and waits for the expected text. If KVM fails, the machine is
/// restarted with software emulation.
///
/// # Errors
/// [`BootError`], when the machine could not be started. A machine that does not come up is not an
/// error.
pub fn check(
    wanted: &BootSign,
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

/// Returns `None` if the accelerator has failed.
fn check_once(
    wanted: &BootSign,
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
            BootSign::Text(text) => transcript.has(text),
            BootSign::Login => transcript.ends_with_login(),
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
                ended = Some("it is paused: there is no space for its writes".into());
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
        tracing::warn!(%error, "the screenshot could not be taken");
    }
    let elapsed = watch.timeout.saturating_sub(deadline.left().unwrap_or_default());
    let mut said = transcript.tail(TAIL_LINES);
    if said.is_empty() && ended.is_none() {
        let lines: Vec<String> = machine.screen_text().into_iter().filter(|line| !line.is_empty()).collect();
        said = lines.join("\n");
    }
    Ok(Some(CheckOutcome { is_up, elapsed, accelerator: machine.accelerator(), said, ended }))
}

/// Reads the output of the console during one look. Returns false if the console is closed.
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

fn is_on_screen(wanted: &BootSign, lines: &[String]) -> bool {
    match wanted {
        BootSign::Text(text) => !text.is_empty() && lines.iter().any(|line| line.contains(text)),
        BootSign::Login => lines.iter().rfind(|line| !line.is_empty()).is_some_and(|line| is_login(line)),
    }
}
