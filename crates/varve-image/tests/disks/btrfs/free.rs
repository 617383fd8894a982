//! Free bytes may be archived as zeros, and the places of files are their own.

use varve_image::{LeaveOut, LeftOut};

use super::*;

fn left_out(disk: impl ReadAt + 'static) -> LeftOut {
    LeftOut::find(Arc::new(disk), LeaveOut { swap: true, free: true })
}

fn number(disk: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(disk[at..at + 8].try_into().unwrap())
}

fn is_sound(disk: &Path) -> bool {
    let checked = Command::new("btrfs").args(["check", "--check-data-csum"]).arg(disk).output().unwrap();
    checked.status.success()
}

#[test]
fn free_bytes_can_be_zeros() {
    for (make, options) in [
        (&["-m", "dup"][..], "compress=zstd"),
        (&["-d", "raid0", "-m", "single", "-n", "4096"], "defaults"),
        (&["--mixed"], "defaults"),
        (&["-O", "^no-holes,^skinny-metadata,^extref", "-R", "^free-space-tree"], "space_cache=v1"),
    ] {
        let sandbox = Sandbox::new();
        let Some((mount, path)) = Mount::new(&sandbox, 300 * MIB, make, options) else { return };
        populate(&mount);
        // Content that is removed stays in free blocks.
        let secret = |number: u32| mount.path(&format!("secret {number}"));
        (0..40).for_each(|number| fs::write(secret(number), noise(500_000, number)).unwrap());
        mount.run("sync -f .");
        (0..40).filter(|number| number % 4 != 0).for_each(|number| fs::remove_file(secret(number)).unwrap());
        drop(mount);
        let disk = fs::read(&path).unwrap();
        let found = left_out(File::open(&path).unwrap());
        let [part] = found.parts() else { panic!("{found:?}") };
        assert_eq!((part.what.as_str(), &part.kept_because), ("free blocks", &None), "{make:?}");
        assert!(part.bytes > 100 * MIB, "{make:?}: {}", part.bytes);
        let mut zeroed = disk.clone();
        for range in found.ranges().iter() {
            zeroed[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].fill(0);
        }
        let lost = disk.chunks(512).zip(zeroed.chunks(512)).filter(|(one, other)| one != other).count();
        assert!(lost > 20_000, "{make:?}: only {lost} sectors had content");
        let copy = sandbox.path("zeroed");
        fs::write(&copy, &zeroed).unwrap();
        assert!(is_sound(&copy), "{make:?}");
        let files = open(disk.clone());
        let mount = Mount::again(&sandbox, &copy, "ro,noatime").unwrap();
        assert!(compare(&*files, files.root(), &mount.0, &mut Compared::default()) > 40);
        drop(mount);

        // A contradiction keeps everything: the generation of the copy of the superblock, and the
        // used bytes in the first one.
        for place in [(64 << 20) + 72, (64 << 10) + 120, (64 << 10) + 217] {
            let mut doubtful = disk.clone();
            doubtful[place] ^= 1;
            damage::seal_at(&mut doubtful, place & !0xfff);
            let found = left_out(doubtful);
            assert!(found.ranges().is_empty() && found.parts()[0].kept_because.is_some(), "{place}");
        }
        // A damaged node of the tree of extents.
        let mut doubtful = disk.clone();
        let nodes: Vec<_> = damage::nodes(&disk).into_values().flatten().collect();
        nodes
            .iter()
            .filter(|place| number(&disk, **place + 88) == 2)
            .for_each(|place| doubtful[place + 90] ^= 1);
        assert!(left_out(doubtful).ranges().is_empty());
    }
}

#[test]
fn places_are_those_of_one_file() {
    let sandbox = Sandbox::new();
    let Some((mount, path)) = Mount::new(&sandbox, 300 * MIB, &[], "defaults") else { return };
    let put = |name: &str, seed| fs::write(mount.path(name), noise(700_001, seed)).unwrap();
    mount.run("btrfs subvolume create sub >/dev/null");
    ["own", "shared", "sub/old", "sub/changed"].into_iter().zip(1..).for_each(|(name, seed)| put(name, seed));
    fs::write(mount.path("inline"), b"few").unwrap();
    mount.run(
        "cp --reflink=always shared twin; btrfs property set own compression none; sync -f .
        btrfs subvolume snapshot sub snapshot >/dev/null
        touch packed; chattr +c packed; yes text | head -c 300000 >packed
        truncate -s 5M holey; dd if=own of=holey bs=64K seek=20 count=3 conv=notrunc status=none",
    );
    put("sub/changed", 9);
    put("sub/new", 10);
    drop(mount);
    let disk = fs::read(path).unwrap();
    let files = open(disk.clone());
    for name in ["own", "sub/changed", "sub/new", "holey"] {
        let id = id_of(&*files, name);
        let size = files.status(id).unwrap().size;
        let whole = content(&*files, id, size);
        let places = files.places(id).unwrap().expect(name);
        let stored = places.into_iter().flat_map(|place| {
            &disk[usize::try_from(place.start).unwrap()..usize::try_from(place.end).unwrap()]
        });
        let mut data = Vec::new();
        let mut at = 0;
        while let Some(range) = files.next_data(id, at).unwrap() {
            data.extend_from_slice(
                &whole[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()],
            );
            at = range.end;
        }
        let stored: Vec<u8> = stored.copied().collect();
        assert!(stored.len() < data.len() + 4096 && stored.starts_with(&data), "{name}");
    }
    for name in ["shared", "twin", "sub/old", "snapshot/old", "snapshot/changed", "inline", "packed"] {
        assert_eq!(files.places(id_of(&*files, name)).unwrap(), None, "{name}");
    }
}
