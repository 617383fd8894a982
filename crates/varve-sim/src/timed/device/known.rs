//! The devices whose files this crate has.

use super::DeviceProfile;

/// Declares the files below `devices/` by their names.
macro_rules! devices {
    ($($name:literal),+ $(,)?) => {
        /// The names of the devices that [`DeviceProfile::known`] returns.
        pub const DEVICE_NAMES: &[&str] = &[$($name),+];

        fn text(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../../../devices/", $name, ".toml"))),)+
                _ => None,
            }
        }
    };
}

devices!(
    "870-evo",
    "compact-flash-ide",
    "compact-flash-usb",
    "compaq-bd009222bb",
    "exos-x24",
    "foundation-hitachi",
    "foundation-maxtor",
    "mems-first",
    "mems-second",
    "mtron-ssd",
    "nand-module",
    "object-store",
    "wd800jb",
    "wd800jb-read-ahead",
    "wd800jb-shingled",
    "wd800jb-shingled-bare",
    "wd800jb-shingled-uncached",
);

impl DeviceProfile {
    /// Returns the device of this name; `None` if this crate has no file for it.
    #[must_use]
    pub fn known(name: &str) -> Option<Self> {
        Self::from_text(text(name)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_a_known_device() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/devices");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> =
            names.map(|name| name.to_str().unwrap().trim_end_matches(".toml").to_owned()).collect();
        names.sort();
        assert_eq!(names, DEVICE_NAMES);
        for name in DEVICE_NAMES {
            assert!(DeviceProfile::known(name).is_some(), "{name}");
        }
        assert_eq!(DeviceProfile::known("floppy"), None);
    }
}
