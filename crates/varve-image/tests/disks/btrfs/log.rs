//! Volumes of a machine in use, whose newest changes are in logs: the files are those that the
//! kernel shows after it has replayed the logs.

use rustix::fs::{FallocateFlags, XattrFlags, fallocate};

use super::*;

/// The place of the address of the logs.
const LOG_ROOT: u64 = (64 << 10) + 96;

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// Folders in three subvolumes, with files that change.
struct Busy<'a> {
    mount: &'a Mount,
    dice: Dice,
}

const FOLDERS: [&str; 7] = ["", "a", "a/b", "c", "one", "one/d", "two"];

impl Busy<'_> {
    fn folder(&mut self) -> PathBuf {
        let at = usize::try_from(self.dice.roll(FOLDERS.len() as u64)).unwrap();
        self.mount.path(FOLDERS[at])
    }

    /// A name of which there may be a file, or a folder, or nothing.
    fn path(&mut self) -> PathBuf {
        let number = self.dice.roll(12);
        let name = match self.dice.roll(8) {
            // Two names with the same hash.
            0 => ["n255990120062", "n794891356550"][usize::try_from(number % 2).unwrap()].to_owned(),
            1 => format!("a long name {}{number}", "x".repeat(190)),
            2 => format!("folder {}", number % 3),
            _ => format!("file {number}"),
        };
        self.folder().join(name)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = [3, 100, 2000, 4096, 5000, 70_000, 300_000][usize::try_from(self.dice.roll(7)).unwrap()];
        noise(length, u32::try_from(self.dice.roll(1000)).unwrap())
    }

    fn sync(path: &Path) {
        if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file() || metadata.is_dir()) {
            File::open(path).unwrap().sync_all().unwrap();
        }
    }

    /// Does something that a program may do. Many attempts fail, for example because there is no
    /// such file.
    fn step(&mut self) {
        let (path, other) = (self.path(), self.path());
        let open = || File::options().write(true).open(&path).ok();
        let xattr = ["user.a", "user.b", "security.c"][usize::try_from(self.dice.roll(3)).unwrap()];
        let at = self.dice.roll(50) * [1, 4096, 10_000][usize::try_from(self.dice.roll(3)).unwrap()];
        match self.dice.roll(26) {
            0..3 => drop(fs::write(&path, self.bytes())),
            3..5 => {
                let bytes = self.bytes();
                drop(open().map(|file| file.write_all_at(&bytes, at)));
            }
            5 => drop(open().map(|file| file.set_len(at))),
            6 => drop(fs::rename(&path, &other)),
            7 => drop(fs::rename(&path, path.with_file_name("renamed"))),
            8 => drop(fs::remove_file(&path)),
            9 => drop(fs::hard_link(&path, &other)),
            10 => drop(fs::hard_link(&path, path.with_file_name(format!("link {at}")))),
            11 => drop(fs::create_dir(&path)),
            12 => drop(fs::remove_dir(&path)),
            13 => drop(fs::remove_dir_all(&path)),
            14 => drop(symlink(format!("target {at}"), &path)),
            15 => drop(rustix::fs::setxattr(&path, xattr, &self.bytes()[..3], XattrFlags::empty())),
            16 => drop(rustix::fs::removexattr(&path, xattr)),
            17 => {
                let flags = [
                    FallocateFlags::empty(),
                    FallocateFlags::KEEP_SIZE,
                    FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
                    FallocateFlags::ZERO_RANGE,
                ][usize::try_from(self.dice.roll(4)).unwrap()];
                let _ = open().map(|file| fallocate(file, flags, at, 30_000));
            }
            18 => {
                let mode = 0o600 | u32::try_from(self.dice.roll(64)).unwrap();
                drop(fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)));
            }
            19 => {
                let copy = Command::new("cp").arg("--reflink=always").args([&path, &other]).output();
                drop(copy.unwrap());
            }
            20..24 => Self::sync(&path),
            24 => Self::sync(&self.folder()),
            _ => {
                // As editors save a file.
                let new = path.with_file_name("new");
                let written = fs::write(&new, self.bytes());
                if written.is_ok() && path.is_file() {
                    Self::sync(&new);
                    drop(fs::rename(&new, &path));
                }
            }
        }
    }
}

fn is_logged(disk: &Path) -> bool {
    let mut address = [0; 8];
    File::open(disk).unwrap().read_exact_at(&mut address, LOG_ROOT).unwrap();
    address != [0; 8]
}

/// Compares a copy of a volume with what the kernel makes of it.
fn compare_recovered(sandbox: &Sandbox, copy: &Path) {
    let files = open(fs::read(copy).unwrap());
    assert_eq!(files.warning(), None);
    let clock = sandbox.path("clock");
    fs::write(&clock, "").unwrap();
    let now = fs::metadata(clock).unwrap();
    let recovered = Some(time(now.mtime(), now.mtime_nsec()).wide_nanoseconds());
    let mount = Mount::again(sandbox, copy, "noatime").expect("the kernel replays it");
    let mut compared = Compared { recovered, ..Compared::default() };
    assert!(compare(&*files, files.root(), &mount.0, &mut compared) > 5);
}

#[test]
fn every_kind_of_change_is_replayed() {
    let sandbox = Sandbox::new();
    let Some((mount, disk)) = Mount::new(&sandbox, 200 * MIB, &[], "commit=300") else { return };
    mount.run(
        "btrfs subvolume create sub >/dev/null
        for at in . sub; do (cd $at
            mkdir d
            for name in longer changed cut renamed over gone linked marked attr d/moved; do
                yes $name | head -c 50000 >$name; done
            for number in $(seq 200); do echo $number >d/$number; done
            setfattr -n user.old -v 1 attr; setfattr -n user.kept -v 2 attr); done
        sync -f .",
    );
    mount.run(
        "for at in . sub; do (cd $at
            printf more >>longer; sync longer
            printf new | dd of=changed bs=1 seek=12345 conv=notrunc status=none; sync changed
            truncate -s 777 cut; sync cut; truncate -s 90000 cut; sync cut
            printf created >created; sync created; mkdir e; printf f >e/f; sync e/f; ln -s target e/link; sync e
            mv renamed renamed-2; sync renamed-2; mv changed over; sync over; mv d/moved moved; sync moved
            ln linked linked-2; ln linked d/linked-3; sync linked; ln marked marked-2; sync marked-2
            setfattr -x user.old attr; setfattr -n user.new -v 3 attr; chmod 4711 attr; chown 7:8 attr; sync attr
            fallocate -l 300000 ahead; sync ahead
            fallocate -n -l 300000 longer; fallocate -p -o 4096 -l 9000 longer; sync longer
            for number in $(seq 30 60); do rm d/$number; done; rm gone; sync d .); done
        for at in . sub; do (cd $at; printf late >late; printf late >>longer; sync late longer); done",
    );
    let copy = sandbox.path("copy");
    fs::copy(&disk, &copy).unwrap();
    drop(mount);
    assert!(is_logged(&copy));
    let mut bytes = fs::read(&copy).unwrap();
    let files = open(bytes.clone());
    let exists = |path: &str| {
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        let folder = if folder == "." { files.root() } else { id_of(&*files, folder) };
        files.child(folder, name.as_bytes()).unwrap().is_some()
    };
    for name in [
        "created",
        "e/f",
        "e/link",
        "renamed-2",
        "moved",
        "linked-2",
        "d/linked-3",
        "d/29",
        "sub/created",
        "late",
        "sub/late",
    ] {
        assert!(exists(name), "{name}");
    }
    for name in ["gone", "changed", "renamed", "d/moved", "d/30", "d/60", "sub/gone", "sub/d/45"] {
        assert!(!exists(name), "{name}");
    }
    assert_eq!(files.free_places().unwrap(), None);
    assert_eq!(files.places(id_of(&*files, "moved")).unwrap(), None);
    compare_recovered(&sandbox, &copy);

    // A log that cannot be read is named, and the state of the last commit is shown.
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let log_root = number(usize::try_from(LOG_ROOT).unwrap());
    let is_log = |place: &usize| number(place + 88) == 6_u64.wrapping_neg();
    let logs: Vec<_> = damage::nodes(&bytes)
        .into_iter()
        .filter(|(address, _)| *address != log_root)
        .flat_map(|(_, places)| places)
        .filter(is_log)
        .collect();
    assert!(!logs.is_empty());
    logs.iter().for_each(|place| bytes[place + 3000] ^= 1);
    let files = open(bytes);
    let warning = files.warning().unwrap();
    assert!(warning.starts_with("it was in use: changes of an unknown number of files"), "{warning}");
    assert!(warning.contains("tree node at the address"), "{warning}");
    assert_eq!(content(&*files, id_of(&*files, "d/29"), 3), b"29\n");
    assert_eq!(files.child(files.root(), b"late").unwrap(), None);
    assert_eq!(files.child(id_of(&*files, "sub"), b"late").unwrap(), None);
}

#[test]
fn files_are_those_that_a_mount_shows_after_replay() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = number("VARVE_LOGS_FIRST").unwrap_or(0);
    let last = first + number("VARVE_LOGS_SEEDS").unwrap_or(2);
    let mut count = 0;
    for seed in first..last {
        let sandbox = Sandbox::new();
        let make: &[&[&str]] = &[&["-n", "4096"], &["-n", "16384", "-O", "^no-holes"]];
        let make = make[usize::try_from(seed % 2).unwrap()];
        let options =
            ["commit=300", "commit=300,compress-force=zstd"][usize::try_from(seed / 2 % 2).unwrap()];
        let Some((mount, disk)) = Mount::new(&sandbox, 130 * MIB, make, options) else { return };
        mount.run("btrfs subvolume create one >/dev/null; btrfs subvolume create two >/dev/null");
        for folder in FOLDERS {
            fs::create_dir_all(mount.path(folder)).unwrap();
        }
        let mut busy = Busy { mount: &mount, dice: Dice((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) };
        (0..150).for_each(|_| busy.step());
        let mut copies = Vec::new();
        for part in 0..8 {
            mount.run("sync -f .");
            for _ in 0..busy.dice.roll(60) + 5 {
                busy.step();
            }
            // An operation that no log can hold leads to a commit.
            let begins = (0..30).any(|_| {
                busy.step();
                is_logged(&disk)
            });
            for _ in 0..busy.dice.roll(10) {
                busy.step();
            }
            if begins && is_logged(&disk) {
                let copy = sandbox.path(&format!("copy-{part}"));
                sandbox.run(&["cp", "--sparse=always", disk.to_str().unwrap(), copy.to_str().unwrap()], "");
                copies.push(copy);
            }
        }
        drop(mount);
        println!("seed {seed}: {} disks with logs", copies.len());
        for copy in copies {
            compare_recovered(&sandbox, &copy);
            fs::remove_file(copy).unwrap();
            count += 1;
        }
    }
    assert!(count >= 2 * (last - first), "only {count} disks have logs");
}
