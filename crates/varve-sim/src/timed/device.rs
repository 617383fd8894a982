//! Devices as files: a model, its source, and published figures that the model must reproduce.

mod known;
mod pattern;
mod rotating;

pub use known::DEVICE_NAMES;
pub use pattern::AccessPattern;
pub use rotating::RotatingDisk;

use std::path::Path;

use serde::Deserialize;

use super::access::{AccessKind, ServiceTime, float, nanoseconds, next_in_order};
use crate::SeededDraw;
use rotating::RotatingState;

/// The accesses of which the average time is taken.
const ACCESS_COUNT: u64 = 4000;

/// A device: a TOML file with a `name`, a `source`, a `[model]`, and `[[published]]` figures.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    pub name: String,
    /// The publication that the figures come from, and what was assumed.
    pub source: String,
    pub(super) model: DeviceModel,
    /// The self-test.
    #[serde(default)]
    pub published: Vec<PublishedFigure>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum DeviceModel {
    Constant(ConstantDisk),
    Rotating(RotatingDisk),
}

/// A disk on which every seek takes the same time, as in the simulators of Foundation and of
/// memventi's thesis.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantDisk {
    /// Milliseconds of a seek and of the rotation after it. An access that starts where the one
    /// before ended needs none.
    pub seek_ms: f64,
    pub read_bytes_per_second: f64,
    pub write_bytes_per_second: f64,
}

/// A measurement of the real device that its model must reproduce.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// The table or the section.
    pub place: String,
    pub pattern: AccessPattern,
    /// The average time of an access: the duration divided by the number of accesses.
    pub milliseconds: f64,
    /// The accepted difference in percent.
    pub accept_percent: f64,
}

/// The reason why a file does not describe a device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceProfileError {
    #[error("cannot read the device file {path}")]
    Read { path: String, source: std::io::Error },
    #[error("the device file cannot be parsed")]
    Parse(#[source] Box<toml::de::Error>),
    #[error("device {name}: {what} must be a number above zero, and is {value}")]
    Value { name: String, what: &'static str, value: f64 },
    #[error("device {name}: {problem}")]
    Shape { name: String, problem: &'static str },
}

impl DeviceProfile {
    /// Parses a device file.
    ///
    /// # Errors
    /// [`DeviceProfileError`]: the text has another form, or a figure is not a number above zero.
    pub fn from_text(text: &str) -> Result<Self, DeviceProfileError> {
        let profile: Self =
            toml::from_str(text).map_err(|error| DeviceProfileError::Parse(Box::new(error)))?;
        profile.check()?;
        Ok(profile)
    }

    /// Reads a device file.
    ///
    /// # Errors
    /// [`DeviceProfileError`]
    pub fn from_file(path: &Path) -> Result<Self, DeviceProfileError> {
        let read = std::fs::read_to_string(path);
        let text =
            read.map_err(|source| DeviceProfileError::Read { path: path.display().to_string(), source })?;
        Self::from_text(&text)
    }

    /// Makes a constant disk.
    #[must_use]
    pub fn constant(name: &str, source: &str, disk: ConstantDisk) -> Self {
        let model = DeviceModel::Constant(disk);
        Self { name: name.into(), source: source.into(), model, published: Vec::new() }
    }

    fn check(&self) -> Result<(), DeviceProfileError> {
        let figures = match &self.model {
            DeviceModel::Constant(disk) => vec![
                ("seek_ms", disk.seek_ms),
                ("read_bytes_per_second", disk.read_bytes_per_second),
                ("write_bytes_per_second", disk.write_bytes_per_second),
            ],
            DeviceModel::Rotating(disk) => disk.figures(),
        };
        let published = self.published.iter();
        let figures =
            figures.into_iter().chain(published.flat_map(|row| {
                [("milliseconds", row.milliseconds), ("accept_percent", row.accept_percent)]
            }));
        for (what, value) in figures {
            if !(value.is_finite() && value > 0.0) {
                return Err(DeviceProfileError::Value { name: self.name.clone(), what, value });
            }
        }
        let problem = match &self.model {
            DeviceModel::Constant(_) => None,
            DeviceModel::Rotating(disk) => disk.problem(),
        };
        let problem = problem.or_else(|| self.published.iter().find_map(|row| row.pattern.problem()));
        match problem {
            Some(problem) => Err(DeviceProfileError::Shape { name: self.name.clone(), problem }),
            None => Ok(()),
        }
    }

    /// Returns the average time of an access in a pattern, in milliseconds, by the model.
    #[must_use]
    pub fn time_of(&self, pattern: &AccessPattern) -> f64 {
        let mut device = DeviceState::new(&self.model);
        let mut draw = SeededDraw::new(1);
        let places = (pattern.span_bytes / pattern.bytes.max(1)).max(1);
        let (mut made, mut now) = (0, 0);
        let mut waiting = Vec::new();
        for _ in 0..ACCESS_COUNT {
            while waiting.len() < pattern.depth && made < ACCESS_COUNT {
                let place = if pattern.is_random { draw.below(places) } else { made % places };
                waiting.push(place * pattern.bytes);
                made += 1;
            }
            let choice = next_in_order(device.head(), waiting.iter().take(device.queue()).copied());
            let at = waiting.remove(choice);
            let time = device.serve(now, pattern.action, at, pattern.bytes);
            now += time.positioning + time.transfer;
        }
        float(now) / 1e6 / float(ACCESS_COUNT)
    }
}

/// A device at work.
#[derive(Debug, Clone)]
pub(super) enum DeviceState {
    Constant { disk: ConstantDisk, head: Option<u64> },
    Rotating(RotatingState),
}

impl DeviceState {
    pub(super) fn new(model: &DeviceModel) -> Self {
        match model {
            DeviceModel::Constant(disk) => Self::Constant { disk: disk.clone(), head: None },
            DeviceModel::Rotating(disk) => Self::Rotating(RotatingState::new(disk)),
        }
    }

    /// Returns the number of waiting accesses from which the next one is chosen.
    pub(super) fn queue(&self) -> usize {
        match self {
            Self::Constant { .. } => 1,
            Self::Rotating(state) => state.queue(),
        }
    }

    /// Returns the address at which the last access ended.
    pub(super) fn head(&self) -> Option<u64> {
        match self {
            Self::Constant { head, .. } => *head,
            Self::Rotating(state) => state.head(),
        }
    }

    /// Performs an access that begins at the moment `now`, in nanoseconds.
    pub(super) fn serve(&mut self, now: u64, kind: AccessKind, at: u64, bytes: u64) -> ServiceTime {
        match self {
            Self::Constant { disk, head } => {
                let rate = match kind {
                    AccessKind::Read => disk.read_bytes_per_second,
                    AccessKind::Write => disk.write_bytes_per_second,
                };
                let seek = if *head == Some(at) { 0.0 } else { disk.seek_ms / 1e3 };
                *head = Some(at + bytes);
                ServiceTime { positioning: nanoseconds(seek), transfer: nanoseconds(float(bytes) / rate) }
            }
            Self::Rotating(state) => state.serve(now, kind, at, bytes),
        }
    }
}
