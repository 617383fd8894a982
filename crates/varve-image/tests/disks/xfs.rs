//! XFS, as `mkfs.xfs` and the kernel write it: in order, in use, and with damage.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel_view::compare;
use crate::sandbox::{Sandbox, missing, unmount};
use crate::walk::wade_damaged;
use varve_image::{Disk, FileId, FileKind, FileSystem, FileSystemError, LeaveOut, LeftOut, ReadAt};

const MIB: u64 = 1 << 20;
const TOOLS: [&str; 6] = ["mkfs.xfs", "mount", "xfs_io", "getfattr", "setfattr", "setfacl"];

fn shell(line: &str) -> bool {
    let line = format!("PATH=$PATH:/usr/sbin:/sbin; {line}");
    Command::new("sh").args(["-c", &line]).status().unwrap().success()
}

/// Makes a volume. The three settings remove a lower bound of 300 MB.
fn made(sandbox: &Sandbox, name: &str, size: u64, options: &str) -> PathBuf {
    let disk = sandbox.sparse(name, size);
    let line = "TEST_DIR=t TEST_DEV=t QA_CHECK_FS=t mkfs.xfs -q -f";
    assert!(shell(&format!("{line} {options} '{}' 2>/dev/null", disk.display())), "{options}");
    disk
}

/// A mounted volume, which is unmounted in the end.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a volume. Returns `None` if this machine cannot.
    #[expect(clippy::print_stdout, reason = "a test that does not run says so")]
    fn new(sandbox: &Sandbox, disk: &Path, options: &str) -> Option<Self> {
        let mount = sandbox.path("mount");
        fs::create_dir_all(&mount).unwrap();
        let line =
            format!("mount -t xfs -o loop,noatime{options} '{}' '{}' 2>&1", disk.display(), mount.display());
        if !shell(&line) {
            println!("SKIPPED: XFS cannot be mounted here");
            return None;
        }
        Some(Self(mount))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

/// A disk in a file, which is not read as a whole.
fn open_file(disk: &Path) -> Arc<dyn FileSystem> {
    let disk = Disk::open(Arc::new(File::open(disk).unwrap()));
    disk.volume("p0").expect("no table").open_file_system().unwrap()
}

fn noise(bytes: usize, seed: usize) -> Vec<u8> {
    let next = |at: usize| (at + seed * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29;
    (0..bytes).map(|at| next(at).to_le_bytes()[0]).collect()
}

/// Fills a folder with every kind of file, name and attribute.
fn fill(folder: &Path, has_clones: bool) {
    let put = |path: &str, bytes: &[u8]| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    put("empty", b"");
    put("one byte", b"x");
    put("large", &noise(3_000_001, 1));
    put("short/a", b"1");
    let deep: String = (0..40).map(|level| format!("d{level}/")).collect();
    put(&format!("{deep}end"), b"end");
    for number in 0..30 {
        put(&format!("block/name {number}"), &noise(number * 100, 2));
    }
    for number in 0..400 {
        put(&format!("leaf/name {number:03} {}", "y".repeat(number % 90)), b"leaf");
    }
    for number in (0..400).step_by(3) {
        fs::remove_file(folder.join(format!("leaf/name {number:03} {}", "y".repeat(number % 90)))).unwrap();
    }
    for name in
        [&b"a%2Fb"[..], b"\xff\xfe", b"new\nline", b" ", &[b'x'; 255], "é蟹".as_bytes(), b"...", b"\\041"]
    {
        fs::create_dir_all(folder.join("odd")).unwrap();
        fs::write(folder.join("odd").join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    for (name, length) in [("link", 5), ("link of a block", 400), ("longest link", 1023)] {
        symlink("t".repeat(length), folder.join(name)).unwrap();
    }
    fs::hard_link(folder.join("large"), folder.join("short/the same")).unwrap();
    // Two files in turn, so that each is in very many pieces, which need a tree.
    let both = ["one", "two"].map(|name| File::create(folder.join(name)).unwrap());
    for number in 0..800_u64 {
        for (file, at) in both.iter().zip([number * 8192, number * 12288]) {
            file.write_all_at(&noise(4096, usize::try_from(number).unwrap()), at).unwrap();
        }
        if number % 32 == 0 {
            both.iter().for_each(|file| file.sync_data().unwrap());
        }
    }
    let sparse = File::create(folder.join("sparse")).unwrap();
    sparse.set_len(50 * MIB).unwrap();
    sparse.write_all_at(b"in the middle", 20 * MIB + 5).unwrap();
    let script = "
        cd \"$1\" && mkfifo fifo && mknod char c 5 1 && mknod block\\ device b 259 70000 &&
        chown 1234:70000 'one byte' && chmod 6751 'one byte' && chmod 1777 short &&
        touch -d '1969-12-31T23:59:59.25Z' 'one byte' && touch -h -d 2001-02-03T04:05:06.000000007Z link &&
        fallocate -l 3M 'never written' && printf written | dd of='never written' bs=1M seek=1 conv=notrunc status=none &&
        fallocate -n -l 2M empty &&
        setfattr -n user.small -v value short/a && setfattr -n user.empty short/a &&
        setfattr -n trusted.t -v t short/a && setfattr -n security.s -v s short/a &&
        setfacl -m u:1000:r,g:5:rwx,o::- short/a && setfacl -m u:77:r -d -m u:1000:rw block";
    let status = Command::new("sh").args(["-ec", script, "sh"]).arg(folder).status().unwrap();
    assert!(status.success());
    set_many_xattrs(folder);
    if has_clones {
        let script =
            "cd \"$1\" && cp --reflink=always large clone && cp --reflink=always one 'clone of one' &&
            printf changed | dd of=clone bs=1000000 seek=1 conv=notrunc status=none";
        assert!(Command::new("sh").args(["-ec", script, "sh"]).arg(folder).status().unwrap().success());
    }
}

/// Sets so many attributes that they need blocks, a tree of them, and blocks for long values.
fn set_many_xattrs(folder: &Path) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut text = "# file: one\n".to_owned();
    let mut add = |name: &str, value: &[u8]| text += &format!("user.{name}=0x{}\n", hex(value));
    (1..60).for_each(|number| add(&format!("number-{number}"), &noise(number * 5, number)));
    text += "\n# file: two\n";
    let mut add = |name: &str, value: &[u8]| text += &format!("user.{name}=0x{}\n", hex(value));
    (0..350).for_each(|number| add(&format!("number-{number}"), &noise(100, number)));
    [3000, 9000, 60_000].into_iter().for_each(|length| add(&format!("long-{length}"), &noise(length, 3)));
    let mut child = Command::new("setfattr")
        .args(["--restore=-"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let script = "for n in $(seq 9 30 300); do setfattr -x user.number-$n two; done";
    assert!(Command::new("sh").args(["-ec", script]).current_dir(folder).status().unwrap().success());
}

#[test]
fn files_are_those_that_the_kernel_shows() {
    if missing(&TOOLS) {
        return;
    }
    let old = "-m bigtime=0,finobt=0,inobtcount=0,reflink=0 -i sparse=0 -s size=4096";
    for (options, has_clones) in [
        ("-m reflink=1,bigtime=1", true),
        ("-b size=1024 -m reflink=1 -i nrext64=1,size=512", true),
        ("-n size=16384 -i size=2048 -m rmapbt=1,reflink=1 -d agcount=4", true),
        (old, false),
    ] {
        let sandbox = Sandbox::new();
        let disk = made(&sandbox, "disk", 96 * MIB, options);
        {
            let Some(mount) = Mounted::new(&sandbox, &disk, "") else { return };
            fill(&mount.0, has_clones);
        }
        let mount = Mounted::new(&sandbox, &disk, ",ro").unwrap();
        let files = open_file(&disk);
        assert_eq!(files.warning(), None, "{options}");
        assert!(compare(&*files, &mount.0, true) > 350, "{options}");
        assert_free_as_xfs_db(&disk, &*files);
        let child = |name: &[u8]| files.child(files.root(), name).unwrap().unwrap().id;
        // The bytes of a file lie where it says, unless others may have the same blocks.
        let places = files.places(child(b"one")).unwrap();
        assert_eq!(places.is_none(), has_clones, "{options}");
        let places = files.places(child(b"two")).unwrap().unwrap();
        assert!(places.len() > 40, "{options}: {} pieces", places.len());
        let bytes = fs::read(&disk).unwrap();
        let total: u64 = places.iter().map(|place| place.end - place.start).sum();
        assert_eq!(total, 800 * 4096, "{options}");
        let index = |at: u64| usize::try_from(at).unwrap();
        let content: Vec<u8> =
            places.iter().flat_map(|place| bytes[index(place.start)..index(place.end)].to_vec()).collect();
        assert!(
            content.chunks(4096).enumerate().all(|(number, block)| block == noise(4096, number)),
            "{options}"
        );
        // A part that was never written is a hole.
        let first = files.next_data(child(b"never written"), 0).unwrap().unwrap();
        assert_eq!((first.start, first.end <= MIB + 65536), (MIB, true), "{options}");
        let first = files.next_data(child(b"sparse"), 0).unwrap().unwrap();
        assert!(first.start <= 20 * MIB + 5 && first.start > 19 * MIB, "{options}: {first:?}");
    }
}

/// Checks that free blocks are those of `xfs_db`, but for the ones that groups keep for their
/// trees.
fn assert_free_as_xfs_db(disk: &Path, files: &dyn FileSystem) {
    let read = |commands: &[&str]| {
        let mut command = Command::new("/usr/sbin/xfs_db");
        commands.iter().for_each(|text| _ = command.args(["-c", text]));
        String::from_utf8(command.args(["-r"]).arg(disk).output().unwrap().stdout).unwrap()
    };
    let numbers = |text: &str| -> Vec<Vec<u64>> {
        let words = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect();
        text.lines().filter_map(words).collect()
    };
    let field = |name: &str| -> u64 {
        let text = read(&["sb 0", &format!("p {name}")]);
        text.split('=').nth(1).unwrap().trim().parse().unwrap()
    };
    let (block, group_blocks) = (field("blocksize"), field("agblocks"));
    let mut free = BTreeSet::new();
    for extent in numbers(&read(&["freesp -d"])).iter().filter(|numbers| numbers.len() == 3) {
        let start = extent[0] * group_blocks + extent[1];
        free.extend(start..start + extent[2]);
    }
    let places = files.free_places().unwrap().expect("the volume was left in order");
    let found: BTreeSet<u64> =
        places.iter().flat_map(|place| place.start / block..place.end / block).collect();
    assert!(!found.is_empty() && found.is_subset(&free), "{}", disk.display());
    let kept = free.len() - found.len();
    assert!(kept as u64 <= 16 * field("agcount"), "{kept} blocks are kept");
}

#[test]
fn what_is_only_in_the_log_is_shown() {
    if missing(&TOOLS) {
        return;
    }
    let copy = |from: &Path, to: &Path| {
        assert!(shell(&format!("cp --sparse=always '{}' '{}'", from.display(), to.display())));
    };
    let sandbox = Sandbox::new();
    // A short log begins anew many times.
    let disk = made(&sandbox, "disk", 128 * MIB, "-m reflink=1 -l size=6m");
    for round in 0..3 {
        {
            let Some(mount) = Mounted::new(&sandbox, &disk, "") else { return };
            let folder = mount.0.join(format!("round {round}"));
            fill(&folder.join("first"), true);
            shell(&format!("sync -f '{}'", mount.0.display()));
            fs::create_dir(folder.join("second")).unwrap();
            for number in 0..1500 {
                let name = folder.join(format!("second/file {number}"));
                fs::write(&name, noise(number % 300, number)).unwrap();
                if number % 5 == 0 {
                    fs::rename(&name, folder.join(format!("first/moved {number}"))).unwrap();
                }
            }
            fs::remove_dir_all(folder.join("first/leaf")).unwrap();
            fs::remove_file(folder.join("first/one")).unwrap();
            match round {
                // A disk that is copied while it is in use.
                0 => {
                    shell(&format!("sync -f '{}'", mount.0.display()));
                    copy(&disk, &sandbox.path("copy"));
                }
                // A power cut: with the newest changes in the log, and without.
                1 => assert!(shell(&format!("xfs_io -x -c 'shutdown -f' '{}'", mount.0.display()))),
                _ => assert!(shell(&format!("xfs_io -x -c shutdown '{}'", mount.0.display()))),
            }
        }
        if round > 0 {
            copy(&disk, &sandbox.path("copy"));
        }
        copy(&sandbox.path("copy"), &sandbox.path("recovered"));
        let mount = Mounted::new(&sandbox, &sandbox.path("recovered"), "").unwrap();
        let files = open_file(&sandbox.path("copy"));
        assert_eq!(files.warning(), None);
        assert!(compare(&*files, &mount.0, true) > 400);
        assert_eq!(files.free_places().unwrap(), None, "a log is to be replayed");
        let left_out = left_out(&sandbox.path("copy"));
        assert!(left_out.ranges().is_empty() && left_out.parts()[0].kept_because.is_some());
        // Without its newest records, the log shows an older state, or is named.
        let without_log = fs::read(sandbox.path("copy")).unwrap();
        if round == 1 {
            let (disk, log) = torn(without_log);
            let files = Disk::open(Arc::new(disk)).volume("p0").unwrap().open_file_system().unwrap();
            let warning = files.warning().expect("the log is damaged");
            assert!(warning.contains("log"), "{warning} {log:?}");
            assert!(files.status(files.root()).is_ok());
        }
    }
}

/// Destroys all of the log but for its first block, which says in which cycle it is.
fn torn(mut disk: Vec<u8>) -> (Vec<u8>, std::ops::Range<usize>) {
    let number = |at: usize, length: usize| {
        disk[at..at + length].iter().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let (block, group_blocks) = (number(4, 4), number(84, 4));
    let bits = group_blocks.next_power_of_two().ilog2();
    let start = number(48, 8);
    let start = ((start >> bits) * group_blocks + (start & ((1 << bits) - 1))) * block;
    let log = start..start + number(96, 4) * block;
    for (at, byte) in disk[log.start + 512..log.end].iter_mut().enumerate() {
        if at % 512 > 8 {
            *byte ^= 0x55;
        }
    }
    (disk, log)
}

fn left_out(disk: &Path) -> LeftOut {
    LeftOut::find(Arc::new(File::open(disk).unwrap()), LeaveOut { swap: true, free: true })
}

#[test]
fn free_blocks_can_be_zeros() {
    if missing(&TOOLS) || missing(&["xfs_repair"]) {
        return;
    }
    let sandbox = Sandbox::new();
    for options in ["-m reflink=1,rmapbt=1 -d agcount=4", "-m reflink=0 -b size=1024"] {
        let disk = made(&sandbox, "disk", 96 * MIB, options);
        {
            let Some(mount) = Mounted::new(&sandbox, &disk, "") else { return };
            fill(&mount.0, options.contains("reflink=1"));
            // Content that is removed stays in free blocks.
            for number in 0..40 {
                fs::write(mount.0.join(format!("secret {number}")), [0x5e; 500_000]).unwrap();
            }
            shell(&format!("sync -f '{}'", mount.0.display()));
            for number in (0..40).filter(|number| number % 4 != 0) {
                fs::remove_file(mount.0.join(format!("secret {number}"))).unwrap();
            }
        }
        let found = left_out(&disk);
        let [part] = found.parts() else { panic!("{found:?}") };
        assert_eq!((part.what.as_str(), &part.kept_because), ("free blocks", &None));
        let bytes = fs::read(&disk).unwrap();
        let mut zeroed = bytes.clone();
        for range in found.ranges().iter() {
            zeroed[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].fill(0);
        }
        let lost = bytes.chunks(512).zip(zeroed.chunks(512)).filter(|(one, other)| one != other).count();
        assert!(lost > 20_000, "{options}: only {lost} sectors had content");
        fs::write(sandbox.path("zeroed"), &zeroed).unwrap();
        assert!(shell(&format!("xfs_repair -f -n '{}' 2>/dev/null >&2", sandbox.path("zeroed").display())));
        let mount = Mounted::new(&sandbox, &sandbox.path("zeroed"), ",ro").unwrap();
        assert!(compare(&*open_file(&disk), &mount.0, true) > 300);
        drop(mount);
        // A contradiction keeps everything. The place of a byte in the header of the free blocks of
        // the first group, of the second, and in the superblock.
        let group = usize::try_from(u32::from_be_bytes(bytes[84..88].try_into().unwrap())).unwrap()
            * usize::try_from(u32::from_be_bytes(bytes[4..8].try_into().unwrap())).unwrap();
        for place in [512 + 54, group + 512 + 54, 150, group + 36] {
            let mut doubtful = bytes.clone();
            doubtful[place] ^= 1;
            let found = LeftOut::find(Arc::new(doubtful), LeaveOut { swap: true, free: true });
            assert!(found.ranges().is_empty(), "{options}: {place}");
        }
    }
}

/// A disk that counts how often it is read.
struct Counted(File, Arc<AtomicU64>);

impl ReadAt for Counted {
    fn size(&self) -> u64 {
        ReadAt::size(&self.0)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        ReadAt::read_at(&self.0, offset, into)
    }
}

#[test]
fn a_folder_of_20_000_names_is_listed_in_parts() {
    if missing(&TOOLS) {
        return;
    }
    const COUNT: usize = 20_000;
    let sandbox = Sandbox::new();
    let disk = made(&sandbox, "disk", 96 * MIB, "-n size=8192");
    {
        let Some(mount) = Mounted::new(&sandbox, &disk, "") else { return };
        let folder = mount.0.join("many");
        fs::create_dir(&folder).unwrap();
        for number in 0..COUNT {
            File::create(folder.join(format!("a rather long name, number {number:05}"))).unwrap();
        }
    }
    let reads = Arc::new(AtomicU64::new(0));
    let disk = Disk::open(Arc::new(Counted(File::open(&disk).unwrap(), Arc::clone(&reads))));
    let files = disk.volume("p0").unwrap().open_file_system().unwrap();
    let folder = files.child(files.root(), b"many").unwrap().unwrap().id;
    let mut names = BTreeSet::new();
    reads.store(0, Ordering::Relaxed);
    while names.len() < COUNT {
        let (before, mut taken) = (names.len(), 0);
        let mut take = |child: varve_image::FolderChild| {
            names.insert(child.name);
            taken += 1;
            if taken == 50 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        files.children(folder, before as u64, &mut take).unwrap();
        assert!(names.len() > before, "{before}");
    }
    // The names fill 140 blocks of 8 KiB, which are read in pieces of 16 KiB.
    let count = reads.swap(0, Ordering::Relaxed);
    assert!(count < 400, "{count} reads");
    for name in names.iter().step_by(997) {
        assert_eq!(files.child(folder, name).unwrap().unwrap().name, *name);
    }
    assert_eq!(files.child(folder, b"a rather long name, number 20000").unwrap(), None);
    let count = reads.load(Ordering::Relaxed);
    assert!(count < 100, "{count} reads for 21 names");
}

/// CRC-32C, as slow as it is short.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |code, byte| {
        (0..8).fold(code ^ u32::from(*byte), |code, _| code >> 1 ^ (0x82f6_3b78 & (code & 1).wrapping_neg()))
    })
}

/// Sets the checksum of bytes that were changed.
fn seal(bytes: &mut [u8], at: usize) {
    bytes[at..at + 4].fill(0);
    let code = crc32c(bytes);
    bytes[at..at + 4].copy_from_slice(&code.to_le_bytes());
}

fn feature_of(disk: Vec<u8>) -> String {
    match Disk::open(Arc::new(disk)).volume("p0").unwrap().open_file_system().err() {
        Some(FileSystemError::Unsupported { feature, .. }) => feature,
        other => panic!("{other:?}"),
    }
}

/// Returns the offset of an inode on a volume of one group.
fn inode_at(disk: &[u8], inode: FileId) -> usize {
    usize::try_from(inode.0).unwrap() * usize::from(u16::from_be_bytes([disk[104], disk[105]]))
}

/// A description of files for `mkfs.xfs`, which puts them into a new volume without a mount.
fn described(sandbox: &Sandbox, size: u64, options: &str) -> PathBuf {
    // In version 5, `mkfs.xfs` stores long targets without their header.
    let target_length = if options.contains("crc=0") { 400 } else { 200 };
    let source = sandbox.path("source");
    fs::write(&source, noise(70_000, 9)).unwrap();
    let file = |name: &str| format!("{name} ---644 5 6 {}\n", source.display());
    let many: String = (0..900).map(|number| file(&format!("a-name-of-some-length-{number:04}"))).collect();
    let text = [
        "boot\n0 0\nd--755 0 0\n",
        &file("plain"),
        &format!("link l--777 0 0 {}\n", "t/".repeat(target_length / 2)),
        "short d--750 7 8\n",
        &file("inner"),
        "$\nblock d--755 0 0\n",
        &many.lines().take(20).map(|line| format!("{line}\n")).collect::<String>(),
        "$\nnode d--755 0 0\n",
        &many,
        "$\n$\n",
    ];
    fs::write(sandbox.path("description"), text.concat()).unwrap();
    made(sandbox, "disk", size, &format!("-p '{}' {options}", sandbox.path("description").display()))
}

#[test]
fn version_4_is_read() {
    if missing(&["mkfs.xfs"]) {
        return;
    }
    for options in ["-m crc=0", "-m crc=0 -n ftype=0", "-m crc=0 -b size=512 -i size=256", "-b size=65536"] {
        let sandbox = Sandbox::new();
        let disk = described(&sandbox, 700 * MIB, options);
        let files = open_file(&disk);
        assert_eq!(files.warning(), None, "{options}");
        let child = |folder, name: &str| files.child(folder, name.as_bytes()).unwrap().unwrap().id;
        let mut bytes = vec![1; 80_000];
        let node = child(files.root(), "node");
        let inner = child(child(files.root(), "short"), "inner");
        let last = child(node, "a-name-of-some-length-0899");
        for file in [child(files.root(), "plain"), inner, last] {
            assert_eq!(files.read_at(file, 0, &mut bytes).unwrap(), 70_000);
            assert!(bytes[..70_000] == noise(70_000, 9), "{options}");
            let status = files.status(file).unwrap();
            assert_eq!((status.kind, status.mode, status.uid, status.gid), (FileKind::File, 0o644, 5, 6));
        }
        let link = child(files.root(), "link");
        let target = files.link_target(link).unwrap();
        assert!(target == "t/".repeat(target.len() / 2).as_bytes() && target.len() >= 200, "{options}");
        for (folder, expected) in [(node, 900), (child(files.root(), "block"), 20)] {
            let mut count = 0;
            let mut take = |child: varve_image::FolderChild| {
                count += usize::from(child.kind == FileKind::File);
                ControlFlow::Continue(())
            };
            files.children(folder, 0, &mut take).unwrap();
            assert_eq!(count, expected, "{options}");
        }
        if Path::new("/usr/sbin/xfs_db").exists() {
            assert_free_as_xfs_db(&disk, &*files);
        }
    }
}

#[test]
fn damage_is_named() {
    if missing(&["mkfs.xfs"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let disk = fs::read(described(&sandbox, 128 * MIB, "-d agcount=1")).unwrap();
    let open = |disk: Vec<u8>| Disk::open(Arc::new(disk)).volume("p0").unwrap().open_file_system().unwrap();
    let files = open(disk.clone());
    let child = |name: &str| files.child(files.root(), name.as_bytes()).unwrap().unwrap().id;
    let (plain, node) = (child("plain"), child("node"));
    // An inode.
    let mut damaged = disk.clone();
    damaged[inode_at(&disk, plain) + 40] ^= 1;
    match open(damaged).status(plain) {
        Err(FileSystemError::Damaged { problem, .. }) => assert!(problem.contains("checksum"), "{problem}"),
        other => panic!("{other:?}"),
    }
    // A block of names: the others are shown.
    let block = (0..disk.len()).step_by(4096).filter(|at| disk[*at..].starts_with(b"XDD3")).nth(2).unwrap();
    let mut damaged = disk.clone();
    damaged[block + 200] ^= 1;
    let mut count = 0;
    let listed = open(damaged).children(node, 0, &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    });
    assert!(listed.is_err() && (700..900).contains(&count), "{count}");
    // The superblock.
    let mut damaged = disk.clone();
    damaged[60] ^= 1;
    assert!(Disk::open(Arc::new(damaged)).volume("p0").unwrap().open_file_system().is_err());
    // A feature that no reader knows, and one that is not supported.
    for (bits, expected) in [(1_u32 << 8, "folder of metadata"), (1 << 25, "0x2000000")] {
        let mut changed = disk.clone();
        let features = u32::from_be_bytes(changed[216..220].try_into().unwrap()) | bits;
        changed[216..220].copy_from_slice(&features.to_be_bytes());
        seal(&mut changed[..512], 224);
        let feature = feature_of(changed);
        assert!(feature.contains(expected), "{feature}");
    }
    // A file on a realtime device; the others are shown.
    let mut changed = disk.clone();
    let at = inode_at(&disk, plain);
    changed[at + 91] |= 1;
    seal(&mut changed[at..at + 512], 100);
    let files = open(changed);
    match files.read_at(plain, 0, &mut [0; 10]) {
        Err(FileSystemError::Unsupported { feature, .. }) => {
            assert!(feature.contains("realtime"), "{feature}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((files.status(plain).unwrap().size, files.places(plain).unwrap()), (70_000, None));
    // A volume to be repaired, and one whose log is elsewhere.
    for (at, bytes, expected) in
        [(216, &[0, 0, 0, disk[219] | 0x10][..], "repaired"), (48, &[0; 8], "another volume")]
    {
        let mut changed = disk.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        seal(&mut changed[..512], 224);
        let files = open(changed);
        let warning = files.warning().unwrap();
        assert!(warning.contains(expected), "{warning}");
        assert_eq!(files.free_places().unwrap(), None);
    }
}

#[test]
fn damage_does_no_harm() {
    if missing(&["mkfs.xfs"]) {
        return;
    }
    // Without checksums, more of the damage is looked at.
    for options in ["-m crc=0 -d agcount=1", "-d agcount=1"] {
        let sandbox = Sandbox::new();
        let disk = fs::read(described(&sandbox, 128 * MIB, options)).unwrap();
        let is_metadata = |at: &usize| {
            let block = &disk[*at..];
            [&b"IN"[..], b"XD", b"AB", b"IAB", b"XAG", b"BMA"].iter().any(|magic| block.starts_with(magic))
        };
        let mut hot: Vec<_> = (0..usize::try_from(8 * MIB).unwrap())
            .step_by(4096)
            .filter(is_metadata)
            .map(|at| at..at + 4096)
            .collect();
        hot.truncate(60);
        hot.push(0..512);
        wade_damaged(&disk[..usize::try_from(8 * MIB).unwrap()], &hot, 60);
    }
}
