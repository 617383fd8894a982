//! Numbers of devices in one number, as Linux has them. Pure.

use varve_image::DeviceNumber;

/// The two parts of a device number of Linux.
pub(crate) fn device_number(device: u64) -> DeviceNumber {
    let bits = |shift: u32, mask: u64| u32::try_from(device >> shift & mask).unwrap_or(0);
    DeviceNumber {
        major: bits(8, 0xfff) | bits(32, 0xffff_f000),
        minor: bits(0, 0xff) | bits(12, 0xffff_ff00),
    }
}
