//! Damaged copies, unsupported features, and several devices.

use super::*;

const SUPERBLOCK: usize = 64 << 10;
const SUPERBLOCK_BYTES: usize = 4096;
/// Places in a superblock.
const GENERATION: usize = 72;
const ROOT: usize = 80;
const CHUNK_ROOT: usize = 88;
const NODE_BYTES: usize = 16384;

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

/// Gives a superblock at this place the right checksum.
pub fn seal_at(disk: &mut [u8], place: usize) {
    let sum = crc32c(&disk[place + 32..place + SUPERBLOCK_BYTES]);
    disk[place..place + 4].copy_from_slice(&sum.to_le_bytes());
}

/// The places of all nodes of a disk, also of those that are no longer used, by their addresses.
pub fn nodes(disk: &[u8]) -> BTreeMap<u64, Vec<usize>> {
    let uuid = &disk[SUPERBLOCK + 32..SUPERBLOCK + 48];
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for place in (0..disk.len() - NODE_BYTES).step_by(4096) {
        let address = u64::from_le_bytes(disk[place + 48..place + 56].try_into().unwrap());
        let is_superblock = disk[place + 64..].starts_with(b"_BHRfS_M");
        if &disk[place + 32..place + 48] == uuid && address.is_multiple_of(4096) && !is_superblock {
            found.entry(address).or_default().push(place);
        }
    }
    found
}

fn places_of(disk: &[u8], bytes: &[u8]) -> Vec<usize> {
    (0..disk.len()).step_by(4096).filter(|place| disk[*place..].starts_with(bytes)).collect()
}

/// A disk with a little in it. `None` if nothing can be mounted.
fn small(make: &[&str], script: &str) -> Option<Vec<u8>> {
    let sandbox = Sandbox::new();
    let (mount, disk) = Mount::new(&sandbox, 130 * MIB, make, "defaults")?;
    fs::write(mount.path("noise"), noise(40_000, 9)).unwrap();
    mount.run(script);
    drop(mount);
    Some(fs::read(disk).unwrap())
}

fn told(error: &FileSystemError) -> String {
    error.to_string()
}

#[test]
fn a_second_copy_is_read_if_the_first_one_is_damaged() {
    let sandbox = Sandbox::new();
    let Some((mount, path)) = Mount::new(&sandbox, 300 * MIB, &["-m", "dup", "-d", "dup"], "defaults") else {
        return;
    };
    populate(&mount);
    drop(mount);
    let mut disk = fs::read(&path).unwrap();
    let mut damaged = 0;
    for places in nodes(&disk).into_values().filter(|places| places.len() > 1) {
        disk[places[0] + 5000] ^= 1;
        damaged += 1;
    }
    assert!(damaged > 10, "{damaged}");
    let (sectors, start) = (noise(3_000_017, 3), noise(4096, 1));
    for wanted in [&sectors[4096..8192], &sectors[40960..45056], &start] {
        let places = places_of(&disk, wanted);
        assert!(places.len() > 1, "{places:?}");
        disk[places[0] + 100] ^= 1;
    }
    let files = open(disk);
    let mount = Mount::again(&sandbox, &path, "ro,noatime").unwrap();
    assert!(compare(&*files, files.root(), &mount.0, &mut Compared::default()) > 40);
}

#[test]
fn a_damaged_node_hides_only_what_is_in_it() {
    let script = "mkdir f; for n in $(seq 2000); do echo $n >f/file-$n; done";
    let Some(mut disk) = small(&["-m", "single"], script) else { return };
    // The newest node with the name of this file.
    let name = b"file-1234";
    let has_name = |place: &usize| disk[*place..*place + NODE_BYTES].windows(name.len()).any(|w| w == name);
    let places: Vec<_> = nodes(&disk).into_values().flatten().filter(has_name).collect();
    assert!(!places.is_empty());
    for place in places {
        disk[place + 200] ^= 1;
    }
    let files = open(disk);
    let mut count = 0;
    let error = files
        .children(id_of(&*files, "f"), 0, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap_err();
    assert!((100..2000).contains(&count), "{count}");
    assert!(told(&error).contains("tree node at the address"), "{error}");
    // The problem is also reported by a listing that begins behind it.
    let mut page = 0;
    let mut first = 0;
    let error = loop {
        let listed = files.children(id_of(&*files, "f"), first, &mut |_| {
            page += 1;
            if page % 100 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        first += 100;
        if first > count {
            break listed.unwrap_err();
        }
    };
    assert_eq!(page, count);
    assert!(told(&error).contains("tree node at the address"), "{error}");
    assert_eq!(content(&*files, id_of(&*files, "noise"), 40_000), noise(40_000, 9));
}

#[test]
fn damaged_data_is_an_error_for_that_part() {
    let script = "touch nocow; chattr +C nocow; cat noise >nocow";
    let Some(mut disk) = small(&[], script) else { return };
    let bytes = noise(40_000, 9);
    let places = places_of(&disk, &bytes[8192..12288]);
    assert_eq!(places.len(), 2, "two files");
    places.iter().for_each(|place| disk[place + 4000] ^= 1);
    let files = open(disk);
    let id = id_of(&*files, "noise");
    let mut part = [0; 4096];
    let error = files.read_at(id, 9000, &mut part).unwrap_err();
    let message = told(&error);
    assert!(message.contains("at 9000 is damaged: the sector at the address"), "{message}");
    assert!(message.contains("does not match its checksum"), "{message}");
    for place in [0, 4096, 12288, 16384] {
        files.read_at(id, place as u64, &mut part).unwrap();
        assert!(part == bytes[place..place + 4096], "{place}");
    }
    // A file without checksums has no proof of the damage.
    let found = content(&*files, id_of(&*files, "nocow"), 40_000);
    assert_eq!(found.iter().zip(&bytes).filter(|(one, other)| one != other).count(), 1);
}

#[test]
fn superblocks_are_checked() {
    let Some(disk) = small(&[], "echo x >x") else { return };
    let opened = |disk: Vec<u8>| {
        Disk::open(Arc::new(disk)).volume("p0").unwrap().open_file_system().map_err(|error| told(&error))
    };
    assert_eq!(opened(disk.clone()).unwrap().warning(), None);
    let mut first_damaged = disk.clone();
    first_damaged[SUPERBLOCK + 300] ^= 1;
    let files = opened(first_damaged.clone()).unwrap();
    assert_eq!(content(&*files, id_of(&*files, "x"), 2), b"x\n");
    let warning = files.warning().unwrap();
    assert_eq!(warning, "the first superblock is damaged, and a copy of it was used");
    first_damaged[(64 << 20) + 300] ^= 1;
    let error = opened(first_damaged).err().unwrap();
    assert_eq!(error, "the superblock is damaged: it does not match its checksum");
    // The disk was copied while the copies of the superblock were written: their trees are missing.
    let mut copy_newer = disk.clone();
    copy_newer[(64 << 20) + GENERATION] += 1;
    copy_newer[(64 << 20) + ROOT..][..8].copy_from_slice(&disk[SUPERBLOCK + CHUNK_ROOT..][..8]);
    seal_at(&mut copy_newer, 64 << 20);
    let files = opened(copy_newer).unwrap();
    assert_eq!(content(&*files, id_of(&*files, "x"), 2), b"x\n");
    assert_eq!(files.warning(), None);
    for (place, bit, expected) in [
        (188 + 6, 1, "the feature 0x1000000000000"),
        (188 + 1, 0x10, "a zoned device"),
        (188 + 1, 0x20, "the second version of the extent tree"),
        (188 + 1, 0x40, "a tree of RAID stripes"),
        (56 + 4, 2, "an image that has metadata only"),
        (56 + 4, 0x10, "a conversion that was not finished"),
        (196, 9, "the checksum of kind 9"),
    ] {
        let mut changed = disk.clone();
        changed[SUPERBLOCK + place] |= bit;
        seal_at(&mut changed, SUPERBLOCK);
        // The copy does not have the feature, and is not used.
        let error = opened(changed).err().unwrap();
        assert_eq!(error, format!("Btrfs file system cannot be read: {expected} is not supported"));
    }
}

const PIECE_BYTES: usize = 65536;
const LARGE_BYTES: usize = 60 * PIECE_BYTES;

/// Loop devices. They are detached at the end, also of a test that fails.
struct LoopDevices(Vec<String>);

impl Drop for LoopDevices {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = Command::new("losetup").args(["-d", device]).status();
        }
    }
}

#[test]
fn one_device_of_several_is_read_as_far_as_it_has_the_data() {
    let sandbox = Sandbox::new();
    if Mount::new(&sandbox, 200 * MIB, &[], "defaults").is_none() || missing(&["losetup"]) {
        return;
    }
    for (data, metadata, count) in
        [("raid1", "raid1", 2), ("raid10", "raid1c4", 4), ("raid0", "raid1c3", 3), ("raid5", "raid1", 3)]
    {
        let disks: Vec<_> = (0..count).map(|n| sandbox.sparse(&format!("{data}-{n}"), 200 * MIB)).collect();
        let attach = |disk: &PathBuf| {
            sandbox.run(&["losetup", "-f", "--show", disk.to_str().unwrap()], "").trim().to_owned()
        };
        let devices = LoopDevices(disks.iter().map(attach).collect());
        let names = devices.0.iter().map(String::as_str);
        let make = ["mkfs.btrfs", "-q", "-f", "-d", data, "-m", metadata];
        sandbox.run(&make.into_iter().chain(names.clone()).collect::<Vec<_>>(), "");
        sandbox.run(&["btrfs", "device", "scan"], "");
        let mount = sandbox.path("mount");
        sandbox.run(&["mount", &devices.0[0], mount.to_str().unwrap()], "");
        let mount = Mount(mount);
        fs::write(mount.path("large"), noise(LARGE_BYTES, 8)).unwrap();
        fs::write(mount.path("inline"), b"inline").unwrap();
        drop(mount);
        drop(devices);
        let expected = noise(LARGE_BYTES, 8);
        let mut pieces = vec![0; LARGE_BYTES / PIECE_BYTES];
        let mut refused = 0;
        for disk in &disks {
            let disk = Disk::open(Arc::new(File::open(disk).unwrap()));
            let opened = disk.volume("p0").unwrap().open_file_system();
            let found = opened.and_then(|files| {
                let warning = files.warning().unwrap();
                assert!(warning.contains("of several"), "{warning}");
                let child = files.child(files.root(), b"large")?.unwrap();
                Ok((files, child.id))
            });
            let (files, id) = match found {
                Ok(found) => found,
                // The copies of the metadata are on some of the devices.
                Err(error) => {
                    assert!(told(&error).contains("a file system without its device"), "{error}");
                    refused += 1;
                    continue;
                }
            };
            for (number, (expected, count)) in expected.chunks(PIECE_BYTES).zip(&mut pieces).enumerate() {
                let mut piece = vec![0; PIECE_BYTES];
                match files.read_at(id, (number * PIECE_BYTES) as u64, &mut piece) {
                    Ok(_) => {
                        assert!(piece == expected, "{data}: piece {number}");
                        *count += 1;
                    }
                    Err(error) => {
                        let message = told(&error);
                        let reason = if data == "raid5" { "RAID5 and RAID6" } else { "without its device" };
                        assert!(message.contains(reason), "{data}: {message}");
                        assert!(message.contains("content of inode"), "{message}");
                        refused += 1;
                    }
                }
            }
        }
        // Each device that has the metadata gives its part of the data.
        let readable = pieces.iter().filter(|count| **count > 0).count();
        assert_eq!(refused > 0, data != "raid1", "{data}");
        match data {
            "raid5" => assert_eq!(readable, 0),
            _ => assert_eq!(readable, pieces.len(), "{data}"),
        }
    }
}
