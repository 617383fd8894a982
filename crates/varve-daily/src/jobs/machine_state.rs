//! The power supply, the network and the load of this machine.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use varve_world::{FinishedProgram, other_program};

use crate::timing::{MachineState, PowerState, RunConditions};

/// More than a number of D-Bus.
const ANSWER_BYTES_MAX: usize = 256;

/// Returns the state of the machine whose root folder this is, as far as the conditions need it.
#[must_use]
pub fn machine_state(root: &Path, conditions: RunConditions) -> MachineState {
    MachineState {
        power: power_state(root),
        is_metered: conditions.unmetered && is_metered(root),
        load: load(root),
    }
}

/// Reports whether NetworkManager says that the network is metered, or guesses so. Without it, the
/// network counts as not metered.
fn is_metered(root: &Path) -> bool {
    const NAME: &str = "org.freedesktop.NetworkManager";
    let mut command = other_program(root.join("usr/bin/busctl"));
    command.args(["--system", "--timeout=2", "get-property", NAME, "/org/freedesktop/NetworkManager", NAME]);
    let asked = FinishedProgram::run(command.arg("Metered").stdin(Stdio::null()), ANSWER_BYTES_MAX);
    // 1 is yes, 3 is a guess that it is.
    asked.is_ok_and(|asked| matches!(String::from_utf8_lossy(&asked.output).trim(), "u 1" | "u 3"))
}

/// Returns the load of the last minute in percent of the processors.
fn load(root: &Path) -> Option<u32> {
    let text = fs::read_to_string(root.join("proc/loadavg")).ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    let processors = std::thread::available_parallelism().ok()?.get();
    let percent = load * 100.0 / processors as f64;
    // A load is a small number that is not negative.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in bounds")]
    Some(percent.clamp(0.0, 1e6) as u32)
}

/// Returns the state of the power supply. A state that is not known counts as mains.
fn power_state(root: &Path) -> PowerState {
    let Ok(supplies) = fs::read_dir(root.join("sys/class/power_supply")) else { return PowerState::Mains };
    let (mut is_on_mains, mut is_discharging, mut charges) = (false, false, Vec::new());
    for supply in supplies.flatten() {
        let read = |name: &str| {
            fs::read_to_string(supply.path().join(name))
                .map(|text| text.trim().to_owned())
                .unwrap_or_default()
        };
        // A battery of a mouse says nothing of the machine.
        if read("scope") == "Device" {
            continue;
        }
        match read("type").as_str() {
            "Battery" => {
                is_discharging |= read("status") == "Discharging";
                charges.extend(read("capacity").parse::<u8>().ok());
            }
            "" => {}
            _ => is_on_mains |= read("online") == "1",
        }
    }
    match is_discharging && !is_on_mains {
        true => PowerState::Battery { charge: charges.into_iter().min() },
        false => PowerState::Mains,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn machine(supplies: &[(&str, &[(&str, &str)])]) -> PowerState {
        let root = tempfile::tempdir().unwrap();
        for (name, files) in supplies {
            let folder = root.path().join("sys/class/power_supply").join(name);
            fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|(file, text)| fs::write(folder.join(file), format!("{text}\n")).unwrap());
        }
        power_state(root.path())
    }

    #[test]
    fn the_load_is_a_share_of_the_processors() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(load(root.path()), None);
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/loadavg"), "0.00 0.01 0.05 1/123 456\n").unwrap();
        assert_eq!(load(root.path()), Some(0));
        fs::write(root.path().join("proc/loadavg"), "640.00 0.01 0.05 1/123 456\n").unwrap();
        assert!(load(root.path()).unwrap() >= 100);
        fs::write(root.path().join("proc/loadavg"), "much\n").unwrap();
        assert_eq!(load(root.path()), None);
    }

    #[test]
    fn the_network_is_metered_only_if_its_manager_says_so() {
        let root = tempfile::tempdir().unwrap();
        let unmetered = RunConditions { unmetered: true, ..RunConditions::default() };
        let state = |conditions| machine_state(root.path(), conditions).is_metered;
        assert!(!state(unmetered), "there is no NetworkManager");
        let program = root.path().join("usr/bin/busctl");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        // Another process writes the script: what this one has open for writing, a child of another
        // thread inherits, and the kernel refuses to execute it.
        let write = "printf \"#!/bin/sh\\necho '$1'\\n\" >$0; chmod 755 $0";
        for (answer, is_metered) in [("u 1", true), ("u 3", true), ("u 4", false), ("u 0", false)] {
            let written = Command::new("sh").args(["-c", write]).arg(&program).arg(answer).status().unwrap();
            assert!(written.success());
            assert_eq!((state(unmetered), state(RunConditions::default())), (is_metered, false), "{answer}");
        }
    }

    #[test]
    fn a_machine_is_on_battery_only_if_it_surely_is() {
        let mains: (&str, &[(&str, &str)]) = ("AC", &[("type", "Mains"), ("online", "1")]);
        let unplugged: (&str, &[(&str, &str)]) = ("AC", &[("type", "Mains"), ("online", "0")]);
        let battery: (&str, &[(&str, &str)]) =
            ("BAT0", &[("type", "Battery"), ("status", "Discharging"), ("capacity", "41")]);
        let mouse: (&str, &[(&str, &str)]) = (
            "hid",
            &[("type", "Battery"), ("scope", "Device"), ("status", "Discharging"), ("capacity", "5")],
        );
        assert_eq!(machine(&[]), PowerState::Mains);
        assert_eq!(machine(&[mains, battery]), PowerState::Mains);
        assert_eq!(machine(&[unplugged, battery, mouse]), PowerState::Battery { charge: Some(41) });
        assert_eq!(machine(&[unplugged, mouse]), PowerState::Mains);
        assert_eq!(machine(&[("BAT0", &[("type", "Battery"), ("status", "Charging")])]), PowerState::Mains);
    }
}
