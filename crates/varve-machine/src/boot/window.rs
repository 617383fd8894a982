//! Detects the kinds of windows that QEMU supports: some are excluded at build time, or are in
//! other packages.

use std::process::Stdio;

use super::boot_error::{BootError, PROGRAM};
use varve_world::{FinishedProgram, other_program};

/// More than the list of all kinds.
const LIST_BYTES_MAX: usize = 16 << 10;
/// QEMU's names for kinds of windows, best first.
const KINDS: [&str; 3] = ["gtk", "sdl", "cocoa"];

/// Returns the best kind of window that is available. Without a choice, QEMU may fall back to a VNC
/// server that the user does not know of.
pub(super) fn kind() -> Result<&'static str, BootError> {
    let mut command = other_program(PROGRAM);
    command.args(["-display", "help"]).stdin(Stdio::null());
    let ended =
        FinishedProgram::run(&mut command, LIST_BYTES_MAX).map_err(|error| BootError::Start(error.into()))?;
    of(&String::from_utf8_lossy(&ended.output)).ok_or(BootError::NoWindows)
}

fn of(listed: &str) -> Option<&'static str> {
    KINDS.into_iter().find(|kind| listed.lines().any(|line| line.trim() == *kind))
}

/// Returns true if QEMU has complained about a missing display.
pub(super) fn is_missing(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    ["gtk init", "could not initialize sdl", "cannot open display", "no available video device"]
        .iter()
        .any(|words| said.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_qemu_says_of_windows_is_understood() {
        let listed = "Available display backend types:\nnone\nsdl\ngtk\negl-headless\ncurses\n";
        assert_eq!(of(listed), Some("gtk"));
        assert_eq!(of("Available display backend types:\nnone\nsdl\n"), Some("sdl"));
        assert_eq!(of("Available display backend types:\nnone\negl-headless\n"), None);
        assert!(is_missing("qemu-system-x86_64: gtk initialization failed"));
        assert!(is_missing("Could not initialize SDL(No available video device) - exiting"));
        assert!(!is_missing(
            "qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory"
        ));
    }
}
