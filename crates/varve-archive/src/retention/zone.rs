//! The time zone of a policy.

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;

/// A time zone with its IANA name, such as `Europe/Berlin`. The default is `UTC`.
///
/// The rules of the zone are read from the machine's zone files when the name is parsed. The zone
/// of a machine may have no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionZone(TimeZone);

/// No zone has this name, or the machine has no zone files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a known time zone: write an IANA name, such as Europe/Berlin")]
pub struct UnknownZone {
    pub name: String,
}

impl RetentionZone {
    /// Its IANA name. A zone without one is called `UTC`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    pub(super) fn rules(&self) -> &TimeZone {
        &self.0
    }
}

impl From<TimeZone> for RetentionZone {
    fn from(zone: TimeZone) -> Self {
        Self(zone)
    }
}

impl Default for RetentionZone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl FromStr for RetentionZone {
    type Err = UnknownZone;

    fn from_str(name: &str) -> Result<Self, UnknownZone> {
        let unknown = || UnknownZone { name: name.to_owned() };
        // Some machines list their own zone under these names.
        if ["localtime", "posixrules", "local"].iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Err(unknown());
        }
        let zone = TimeZone::get(name).map_err(|_| unknown())?;
        if zone.iana_name().is_none() || zone.is_unknown() { Err(unknown()) } else { Ok(Self(zone)) }
    }
}

impl fmt::Display for RetentionZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
