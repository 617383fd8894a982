//! The conditions of the machine under which a job may run. A state that is not known allows it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use varve_world::Timestamp;

/// The conditions of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunConditions {
    /// The power that the job needs.
    pub power: Option<PowerNeed>,
    /// True if the job needs a network that does not charge by volume.
    pub unmetered: bool,
    /// The job needs a load below this, in percent of the processors.
    pub load_below: Option<u32>,
    /// Run anyway once the last success is older than this.
    pub at_the_latest: Option<Duration>,
}

/// The power that a job needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerNeed {
    /// The machine is not on battery.
    Mains,
    /// The machine is not on battery, or its battery is charged to this many percent.
    MainsOrCharge(u8),
}

/// The power that a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerState {
    /// On mains, or not known.
    Mains,
    /// On battery, with its charge in percent if that is known.
    Battery { charge: Option<u8> },
}

/// The state of the machine, as far as conditions depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineState {
    pub power: PowerState,
    /// True if the network surely charges by volume.
    pub is_metered: bool,
    /// The load of the last minute in percent of the processors; `None` if it is not known.
    pub load: Option<u32>,
}

/// Why a text is not a need for power.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a condition of power: write \"mains\" or \"mains or 60%\"")]
pub struct ParsePowerError {
    text: String,
}

impl RunConditions {
    /// Returns the reason to postpone a job, or `None` if it may run.
    #[must_use]
    pub fn reason_to_postpone(
        &self,
        machine: MachineState,
        last_success: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<String> {
        let is_late = self.at_the_latest.is_some_and(|latest| match last_success {
            Some(last) => {
                i128::from(now.0) - i128::from(last.0) >= i128::try_from(latest.as_nanos()).unwrap_or(0)
            }
            None => true,
        });
        if is_late {
            return None;
        }
        let metered = || {
            let is_metered = self.unmetered && machine.is_metered;
            is_metered.then(|| "the network is metered".to_owned())
        };
        self.reason_by_power(machine.power).or_else(metered).or_else(|| {
            let (load, limit) = machine.load.zip(self.load_below)?;
            (load >= limit)
                .then(|| format!("the load is {load}% of the processors; the job needs less than {limit}%"))
        })
    }

    /// Returns the reason to end a job that is running, or `None` if it may go on. The load does
    /// not count, since the job is a part of it.
    #[must_use]
    pub fn reason_to_end(
        &self,
        machine: MachineState,
        last_success: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<String> {
        self.reason_to_postpone(MachineState { load: None, ..machine }, last_success, now)
    }

    fn reason_by_power(&self, power: PowerState) -> Option<String> {
        let PowerState::Battery { charge } = power else { return None };
        let charged =
            charge.map_or("on battery".to_owned(), |charge| format!("on battery, charged to {charge}%"));
        match (self.power?, charge) {
            (PowerNeed::Mains, _) => Some(format!("the machine is {charged}; the job needs mains")),
            (PowerNeed::MainsOrCharge(least), Some(charge)) if charge < least => {
                Some(format!("the machine is {charged}; the job needs mains or {least}%"))
            }
            // An unknown charge allows the job.
            (PowerNeed::MainsOrCharge(_), _) => None,
        }
    }
}

/// Parses a limit on the load: `80%`.
///
/// # Errors
/// When the text is not a number of percent of at least 1.
pub fn parse_load(text: &str) -> Result<u32, ParseLoadError> {
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
    let good = percent.filter(|percent| (1..=10_000).contains(percent));
    good.ok_or_else(|| ParseLoadError { text: text.to_owned() })
}

/// Why a text is not a limit on the load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a limit on the load: write a share of the processors, such as \"80%\"")]
pub struct ParseLoadError {
    text: String,
}

/// A phrase for a sentence: `only on mains and below a load of 80%`. Empty without conditions.
impl fmt::Display for RunConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.power.map(|power| power.to_string()),
            self.unmetered.then(|| "on a network that is not metered".to_owned()),
            self.load_below.map(|load| format!("below a load of {load}%")),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { Ok(()) } else { write!(f, "only {}", parts.join(" and ")) }
    }
}

impl FromStr for PowerNeed {
    type Err = ParsePowerError;

    fn from_str(text: &str) -> Result<Self, ParsePowerError> {
        if text == "mains" {
            return Ok(Self::Mains);
        }
        let percent = text.strip_prefix("mains or ").and_then(|rest| rest.strip_suffix('%'));
        let least =
            percent.and_then(|percent| percent.parse().ok()).filter(|least| (1..=100).contains(least));
        least.map(Self::MainsOrCharge).ok_or_else(|| ParsePowerError { text: text.to_owned() })
    }
}

impl fmt::Display for PowerNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mains => f.write_str("on mains"),
            Self::MainsOrCharge(least) => write!(f, "on mains or with {least}% of charge"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_waits_for_power_until_it_is_too_late() {
        let day = 86_400_000_000_000_i64;
        let conditions = RunConditions {
            power: Some("mains or 60%".parse().unwrap()),
            unmetered: true,
            load_below: Some(80),
            at_the_latest: Some(Duration::from_secs(3 * 86_400)),
        };
        let machine = |power| MachineState { power, is_metered: false, load: Some(79) };
        let postponed = |machine, age: i64| {
            conditions.reason_to_postpone(machine, Some(Timestamp(0)), Timestamp(age)).is_some()
        };
        let low = machine(PowerState::Battery { charge: Some(59) });
        assert!(postponed(low, day));
        assert!(!postponed(low, 3 * day));
        assert!(!postponed(machine(PowerState::Battery { charge: Some(60) }), day));
        assert!(!postponed(machine(PowerState::Battery { charge: None }), day));
        assert!(!postponed(machine(PowerState::Mains), day));
        assert!(postponed(MachineState { load: Some(80), ..machine(PowerState::Mains) }, day));
        assert!(!postponed(MachineState { load: None, ..machine(PowerState::Mains) }, day));
        assert!(postponed(MachineState { is_metered: true, ..machine(PowerState::Mains) }, day));
        assert!(!postponed(MachineState { is_metered: true, ..machine(PowerState::Mains) }, 3 * day));
        let busy = MachineState { load: Some(100), ..machine(PowerState::Mains) };
        assert_eq!(conditions.reason_to_end(busy, Some(Timestamp(0)), Timestamp(day)), None);
        assert!(conditions.reason_to_end(low, Some(Timestamp(0)), Timestamp(day)).is_some());
        assert!(conditions.reason_to_postpone(low, None, Timestamp(0)).is_none(), "no success yet");
        let always = RunConditions { power: Some(PowerNeed::Mains), ..RunConditions::default() };
        let unknown = machine(PowerState::Battery { charge: None });
        assert!(always.reason_to_postpone(unknown, None, Timestamp(0)).is_some());
        assert_eq!(
            conditions.to_string(),
            "only on mains or with 60% of charge and on a network that is not metered and below a load of 80%"
        );
        assert_eq!(always.to_string(), "only on mains");
    }

    #[test]
    fn other_conditions_are_refused() {
        for text in ["", "battery", "mains or 0%", "mains or 101%", "mains or 60"] {
            assert!(text.parse::<PowerNeed>().is_err(), "{text}");
        }
        assert_eq!(parse_load("80%"), Ok(80));
        for text in ["", "80", "0%", "-1%", "x%"] {
            assert!(parse_load(text).is_err(), "{text}");
        }
    }
}
