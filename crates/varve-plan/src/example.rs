//! Inputs to start from. They are files of this crate, and `varve-plan predict --example` prints
//! them.

/// An input of a plan that ships with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Example {
    /// A workload.
    Workload,
    /// Hardware of 2026.
    Devices,
    /// The hardware of scc's article.
    Devices2012,
    /// A service level.
    Sla,
    /// The costs of keeping an archive.
    Endowment,
}

impl Example {
    /// Returns the text of the file.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Workload => include_str!("../inputs/workload.toml"),
            Self::Devices => include_str!("../inputs/devices-2026.toml"),
            Self::Devices2012 => include_str!("../inputs/devices-2012.toml"),
            Self::Sla => include_str!("../inputs/sla.toml"),
            Self::Endowment => include_str!("../inputs/endowment.toml"),
        }
    }
}
