//! Volume groups that LVM makes in partitions: each logical volume has the bytes that were put
//! where LVM says that its extents are.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

use varve_image::{Disk, ReadAt};

use super::tables::MIB;
use crate::sandbox::{Sandbox, missing};

const MEMBER_BYTES: u64 = 48 * MIB;

/// Makes two members on `$1` at the bytes `$2` and `$3`, of `$4` bytes each. Runs `$5` with them as
/// `$first` and `$second`. Then it says where the members' extents begin, and where the extents of
/// volumes are. LVM has its settings in `$6`, so it leaves nothing on this machine, and it does not
/// need the kernel's device mapper.
const MAKE: &str = r#"
set -e
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C LVM_SYSTEM_DIR="$6" LVM_SUPPRESS_FD_WARNINGS=1
first=$(losetup -f --show -o "$2" --sizelimit "$4" "$1")
trap 'losetup -d "$first"' EXIT
second=$(losetup -f --show -o "$3" --sizelimit "$4" "$1")
trap 'losetup -d "$first" "$second"' EXIT
lvm_() { command=$1; shift; "$command" -q --devices "$first,$second" --driverloaded n "$@" 2>/dev/null; }
volume() { name=$1; shift; lvm_ lvcreate -an -Zn -Wn -n "$name" "$@" >&2; }
extend() { lvm_ lvextend "$@" >&2; }
members() { lvm_ pvcreate "$@" "$first" "$second" >&2; }
group() { lvm_ vgcreate "$@" my-group "$first" "$second" >&2; }
eval "$5"
sync "$1"
lvm_ pvs -o pv_name,pe_start,vg_extent_size --units b --nosuffix --noheadings
echo volumes
lvm_ lvs --segments -o lv_name,seg_start_pe,seg_pe_ranges --noheadings my-group
echo "$first $second"
"#;

const LAYOUTS: [&str; 5] = [
    "members; group; volume root -l 5 my-group; volume data -l 3 my-group",
    // Each volume has pieces between those of the other.
    "members; group -s 1M; volume root -l 7 my-group $first; volume a-b -l 5 my-group $first; \
     extend -l +7 my-group/root $first; extend -l +3 my-group/a-b $first; extend -l +9 my-group/root $second; \
     extend -l +2 my-group/a-b $second",
    // Holes where volumes were removed.
    "members; group -s 512k; for n in 1 2 3 4 5 6; do volume v$n -l 6 my-group; done; \
     for n in 2 4 5; do lvm_ lvremove my-group/v$n >&2; done; volume root -l 17 my-group",
    // The texts have moved on in their ring, and there are two.
    "members --metadatasize 256k --dataalignment 3M --pvmetadatacopies 2; group -s 64k; volume root -l 9 my-group; \
     for n in $(seq 90); do extend -l +1 my-group/root $first; extend -l +1 my-group/root $second; done",
    "members --dataalignment 4M; group -s 2M; volume root -l 15 --alloc anywhere my-group $second $first",
];

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

#[test]
fn volumes_are_where_lvm_says() {
    if missing(&["pvcreate", "sfdisk", "losetup"]) {
        return;
    }
    let mut compared = 0;
    for layout in LAYOUTS {
        let sandbox = Sandbox::new();
        let disk = sandbox.sparse("disk", 2 * MEMBER_BYTES + 8 * MIB);
        let starts = [2 * MIB, 4 * MIB + MEMBER_BYTES];
        let line = |start: u64| format!("start={}, size={}\n", start / 512, MEMBER_BYTES / 512);
        let script = format!("label: gpt\n{}{}", line(starts[0]), line(starts[1]));
        sandbox.run(&["sfdisk", "-q", disk.to_str().unwrap()], &script);
        let settings = sandbox.path("settings");
        fs::create_dir(&settings).unwrap();
        let text = format!(
            "devices {{ obtain_device_list_from_udev=0 use_devicesfile=0 }}\nbackup {{ backup=0 archive=0 }}\n\
             activation {{ udev_sync=0 udev_rules=0 }}\nglobal {{ locking_dir=\"{0}\" }}\n",
            settings.join("locks").display()
        );
        fs::write(settings.join("lvm.conf"), text).unwrap();
        let [first, second] = starts.map(|start| start.to_string());
        let words = [
            disk.to_str().unwrap(),
            &first,
            &second,
            &MEMBER_BYTES.to_string(),
            layout,
            settings.to_str().unwrap(),
        ];
        let output = Command::new("sh").args(["-c", MAKE, "sh"]).args(words).output().unwrap();
        if !output.status.success() {
            println!("SKIPPED: {layout}: {}", String::from_utf8_lossy(&output.stderr));
            continue;
        }
        let printed = String::from_utf8(output.stdout).unwrap();
        let (members, volumes) = printed.split_once("volumes\n").unwrap();
        let (segments, devices) = volumes.trim_end().rsplit_once('\n').unwrap();
        let members: BTreeMap<&str, (u64, u64)> = members
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .map(|words| {
                let place = devices.split(' ').position(|device| device == words[0]).unwrap();
                (words[0], (starts[place] + number(words[1]), number(words[2])))
            })
            .collect();
        // Each extent gets bytes of its own, at the place that LVM names.
        let mut contents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let file = File::options().write(true).open(&disk).unwrap();
        for line in segments.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let (device, range) = words[2].split_once(':').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let (base, extent_bytes) = members[device];
            let content = contents.entry(words[0].to_owned()).or_default();
            assert_eq!(content.len() as u64, number(words[1]) * extent_bytes, "{layout}: {segments}");
            for extent in number(from)..=number(to) {
                let pattern = format!("{} of {}, ", content.len(), words[0]).into_bytes();
                let bytes: Vec<u8> =
                    pattern.into_iter().cycle().take(usize::try_from(extent_bytes).unwrap()).collect();
                file.write_all_at(&bytes, base + extent * extent_bytes).unwrap();
                content.extend(bytes);
            }
        }
        let read = Disk::open(Arc::new(File::open(&disk).unwrap()));
        assert_eq!(read.problems().iter().map(ToString::to_string).collect::<Vec<_>>(), [""; 0], "{layout}");
        for (name, content) in &contents {
            let name = format!("my--group-{}", name.replace('-', "--"));
            let volume = read.volume(&name).unwrap_or_else(|| panic!("{layout}: {name}"));
            assert_eq!(volume.size(), content.len() as u64, "{layout}: {name}");
            let mut found = vec![0; content.len()];
            volume.read().read_at(0, &mut found).unwrap();
            assert!(found == *content, "{layout}: {name}");
        }
        compared += 1;
        println!("{} volumes are the same: {layout}", contents.len());
    }
    assert!(compared == 0 || compared == LAYOUTS.len(), "{compared}");
}
