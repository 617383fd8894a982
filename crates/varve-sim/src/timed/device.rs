//! Devices as files: a model, its source, and published figures that the model must reproduce.

mod at_work;
mod fitted;
mod flash;
mod known;
mod object_store;
mod page_map;
mod pattern;
mod rotating;
mod shingled;
mod trial;

pub use fitted::{FittedBudget, FittedDevice, FittedOrder, FittedRow};
pub use flash::{FlashDisk, FlashMapping};
pub use known::DEVICE_NAMES;
pub use object_store::ObjectStore;
pub use pattern::AccessPattern;
pub use rotating::RotatingDisk;
pub use shingled::{Overwriting, ShingledDisk};

pub(super) use at_work::DeviceState;

use std::path::Path;

use serde::Deserialize;

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
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum DeviceModel {
    Constant(ConstantDisk),
    Rotating(RotatingDisk),
    Flash(FlashDisk),
    Shingled(ShingledDisk),
    ObjectStore(ObjectStore),
    Fitted(FittedDevice),
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

    /// Makes a device from its measurements.
    ///
    /// # Errors
    /// [`DeviceProfileError`]: the rows do not suffice, or a figure is not a number above zero.
    pub fn fitted(name: &str, source: &str, device: FittedDevice) -> Result<Self, DeviceProfileError> {
        let model = DeviceModel::Fitted(device);
        let profile = Self { name: name.into(), source: source.into(), model, published: Vec::new() };
        profile.check()?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), DeviceProfileError> {
        let figures = match &self.model {
            DeviceModel::Constant(disk) => vec![
                ("seek_ms", disk.seek_ms),
                ("read_bytes_per_second", disk.read_bytes_per_second),
                ("write_bytes_per_second", disk.write_bytes_per_second),
            ],
            DeviceModel::Rotating(disk) => disk.figures(),
            DeviceModel::Flash(disk) => disk.figures(),
            DeviceModel::Shingled(disk) => disk.figures(),
            DeviceModel::ObjectStore(store) => store.figures(),
            DeviceModel::Fitted(device) => device.figures(),
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
            DeviceModel::Flash(disk) => disk.problem(),
            DeviceModel::Shingled(disk) => disk.problem(),
            DeviceModel::ObjectStore(store) => store.problem(),
            DeviceModel::Fitted(device) => device.problem(),
        };
        let problem = problem.or_else(|| self.published.iter().find_map(|row| row.pattern.problem()));
        match problem {
            Some(problem) => Err(DeviceProfileError::Shape { name: self.name.clone(), problem }),
            None => Ok(()),
        }
    }
}
