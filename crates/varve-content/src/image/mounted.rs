//! Detects whether an image, or a part of it, is mounted for writing, and may therefore change
//! while it is read.
//!
//! ```text
//! path ─▶ its device, or the loop devices over it ─▶ their partitions
//!      ─▶ the devices built on all of these ─▶ their mounts
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

/// The device number in the system's notation: `8:1`.
type DeviceText = String;

/// The mount points of all file systems on a block device, or on an image in a file, that are
/// mounted for writing. Empty if the system does not report them.
#[must_use]
pub fn mounted_for_writing(path: &Path) -> Vec<String> {
    let sys = Path::new("/sys");
    let first = match path.metadata() {
        Ok(found) if found.file_type().is_block_device() => vec![number(found.rdev())],
        Ok(found) if found.is_file() => loops_over(sys, path),
        _ => return Vec::new(),
    };
    let devices = with_all_above(sys, first);
    if devices.is_empty() {
        return Vec::new();
    }
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let device_of = |source: &str| {
        let found = fs::metadata(source).ok().filter(|found| found.file_type().is_block_device())?;
        Some(number(found.rdev()))
    };
    mounts_of(&String::from_utf8_lossy(&table), &devices, &device_of)
}

fn number(device: u64) -> DeviceText {
    format!("{}:{}", major(device), minor(device))
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end_matches('\n').to_owned())
}

fn names_in(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder)
        .map_or_else(|_| Vec::new(), |entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

/// The loop devices that are backed by a file.
fn loops_over(sys: &Path, file: &Path) -> Vec<DeviceText> {
    let Ok(whole) = file.canonicalize() else { return Vec::new() };
    let shows = |device: &std::path::PathBuf| {
        text(&device.join("loop/backing_file")).is_some_and(|backing| Path::new(&backing) == whole)
    };
    let devices = names_in(&sys.join("block")).into_iter().filter(shows);
    devices.filter_map(|device| text(&device.join("dev"))).collect()
}

/// Devices, their partitions, and all devices that are built on any of them: RAIDs, logical
/// volumes, decrypted devices.
fn with_all_above(sys: &Path, first: Vec<DeviceText>) -> BTreeSet<DeviceText> {
    let mut found = BTreeSet::new();
    let mut left = first;
    while let Some(device) = left.pop() {
        let folder = sys.join("dev/block").join(&device);
        if !found.insert(device) {
            continue;
        }
        let partitions = names_in(&folder).into_iter().filter(|part| part.join("partition").is_file());
        let above = partitions.chain(names_in(&folder.join("holders")));
        left.extend(above.filter_map(|device| text(&device.join("dev"))));
    }
    found
}

/// The mounts in a table as in `proc_pid_mountinfo(5)` that write to any of these devices. Some
/// file systems show a device number of their own there, and name the real device as their source.
fn mounts_of(
    table: &str,
    devices: &BTreeSet<DeviceText>,
    device_of: &dyn Fn(&str) -> Option<DeviceText>,
) -> Vec<String> {
    let mount = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let fields: Vec<_> = mount.split(' ').collect();
        let [_, source, options] = file_system.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let is_written = options.split(',').any(|option| option == "rw");
        let is_there = devices.contains(*fields.get(2)?)
            || device_of(&unescaped(source)).is_some_and(|device| devices.contains(&device));
        (is_written && is_there).then(|| unescaped(fields.get(4).copied().unwrap_or_default()))
    };
    let mounts: BTreeSet<_> = table.lines().filter_map(mount).collect();
    mounts.into_iter().collect()
}

/// Decodes a field of the table, in which spaces, tabs, line breaks and backslashes are escaped as
/// a backslash and three octal digits.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let character = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match character {
            Some(byte) => {
                whole.push(char::from(byte));
                whole.push_str(&part[3..]);
            }
            None => whole.push_str(part),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_for_writing_are_found_by_number_and_by_source() {
        let table = "\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
23 1 254:2 / /home\\040of\\134all ro,relatime - xfs /dev/vda2 rw
24 1 254:3 / /old rw - ext4 /dev/vda3 ro
25 1 0:40 /root /data rw - btrfs /dev/vdb rw,space_cache
26 1 0:41 / /tmp rw - tmpfs tmpfs rw
27 1 8:1 / /other rw - ext4 /dev/sda1 rw
nonsense
28 1 254:1 - ext4
";
        let devices = ["254:1", "254:2", "254:3", "254:16"].map(str::to_owned).into_iter().collect();
        let device_of = |source: &str| (source == "/dev/vdb").then(|| "254:16".to_owned());
        assert_eq!(mounts_of(table, &devices, &device_of), ["/", "/data", "/home of\\all"]);
        assert_eq!(mounts_of(table, &BTreeSet::new(), &|_| None), [""; 0]);
    }

    #[test]
    fn partitions_and_what_stands_on_them_belong_to_a_device() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let image = sys.path().join("image");
        fs::write(&image, "").unwrap();
        write("block/loop3/loop/backing_file", &format!("{}\n", image.canonicalize().unwrap().display()));
        write("block/loop3/dev", "7:3\n");
        write("block/loop4/loop/backing_file", "/elsewhere\n");
        write("block/loop4/dev", "7:4\n");
        write("dev/block/7:3/loop3p1/partition", "1\n");
        write("dev/block/7:3/loop3p1/dev", "259:0\n");
        write("dev/block/7:3/queue/dev", "1:1\n");
        write("dev/block/259:0/holders/dm-0/dev", "253:0\n");
        write("dev/block/253:0/holders/loop3/dev", "7:3\n");
        let loops = loops_over(sys.path(), &image);
        assert_eq!(loops, ["7:3"]);
        let all: Vec<_> = with_all_above(sys.path(), loops).into_iter().collect();
        assert_eq!(all, ["253:0", "259:0", "7:3"], "and it ends, whatever stands on whatever");
    }
}
