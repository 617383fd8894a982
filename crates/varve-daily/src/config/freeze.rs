//! `freeze`: how a source is read in the state of one moment.

use std::path::Path;
use std::str::FromStr;

/// The names of frozen views begin so.
pub const FROZEN_PREFIX: &str = "varve-frozen-";

/// The origin of a frozen view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezeKind {
    /// A read-only snapshot of a subvolume.
    Btrfs,
    /// A snapshot volume.
    Lvm,
}

impl FromStr for FreezeKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "btrfs" => Ok(Self::Btrfs),
            "lvm" => Ok(Self::Lvm),
            _ => Err(format!("{text:?} is no way to freeze: write \"btrfs\" or \"lvm\"")),
        }
    }
}

/// Returns the name of a source's view. It is the same for each run of a configuration with this
/// state folder, so that a run recognises the view that an earlier one has left.
#[must_use]
pub fn frozen_view_name(state: &Path, source: &str) -> String {
    let text = [state.as_os_str().as_encoded_bytes(), b"\n", source.as_bytes()].concat();
    format!("{FROZEN_PREFIX}{:016x}", xxhash_rust::xxh3::xxh3_64(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_a_fixed_name_of_its_own() {
        let name = frozen_view_name(Path::new("/var/lib/varve"), "home");
        assert_eq!(name, frozen_view_name(Path::new("/var/lib/varve"), "home"));
        assert_ne!(name, frozen_view_name(Path::new("/var/lib/varve"), "etc"));
        assert_ne!(name, frozen_view_name(Path::new("/var/lib/other"), "home"));
        assert_eq!(name.len(), FROZEN_PREFIX.len() + 16);
        assert!("zfs".parse::<FreezeKind>().is_err());
    }
}
