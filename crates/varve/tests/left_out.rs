//! Swap and free blocks of disk images are archived as zeros, and what comes back is a disk as good as before.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

mod sandbox;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use sandbox::{Sandbox, has, noise, tool};

const MIB: u64 = 1 << 20;
/// A Linux partition and swap, as `make-days` has them; and swap that was made such.
const TABLE: &str = "label: dos\nstart=2048, size=49152, type=83\nstart=51200, size=8192, type=82\nstart=59392, size=8192, type=82\n";
const SIZE: u64 = 33 * MIB;

fn read(path: &Path, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    File::open(path).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A disk with an ext4 file system that has a swap file and remains of removed files, and two swap partitions full of secrets.
fn make_disk(sandbox: &Sandbox) -> std::path::PathBuf {
    let (disk, part, tree) = (sandbox.path("web.img"), sandbox.path("part"), sandbox.path("tree"));
    let run = |words: &[&str]| tool(words[0], words[1..].iter().copied());
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(
        tree.join("etc/fstab"),
        "LABEL=x / ext4 rw 0 1\n/other\\040place none swap\n/var/memory none swap sw 0 0\n",
    )
    .unwrap();
    fs::create_dir(tree.join("var")).unwrap();
    fs::write(tree.join("noise"), noise(1, 3_000_000)).unwrap();
    fs::write(tree.join("removed"), noise(2, 4_000_000)).unwrap();
    for name in ["var/memory", "swapfile", "var/swap"] {
        fs::write(tree.join(name), noise(3, 2 << 20)).unwrap();
        run(&["mkswap", "-q", tree.join(name).to_str().unwrap()]);
    }
    run(&[
        "mkfs.ext4",
        "-q",
        "-F",
        "-b",
        "4096",
        "-d",
        tree.to_str().unwrap(),
        part.to_str().unwrap(),
        "24M",
    ]);
    for command in [
        "rm removed",
        "set_inode_field var/memory mode 0100600",
        "set_inode_field var/memory uid 0",
        // Others may read this one, so it is no swap file, whatever is in it.
        "set_inode_field swapfile mode 0100644",
        // This one is not root's.
        "set_inode_field var/swap mode 0100600",
        "set_inode_field var/swap uid 1000",
    ] {
        run(&["debugfs", "-w", "-R", command, part.to_str().unwrap()]);
    }
    let table = sandbox.path("table");
    fs::write(&table, TABLE).unwrap();
    let file = File::create(&disk).unwrap();
    file.set_len(SIZE).unwrap();
    run(&["sh", "-c", &format!("sfdisk -q {} < {}", disk.display(), table.display())]);
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&fs::read(&part).unwrap(), MIB).unwrap();
    // Left over in the second, from the time when it was swap; the third says that it is.
    file.write_all_at(&noise(4, 1 << 20), 26 * MIB).unwrap();
    let swap = sandbox.path("swap");
    fs::write(&swap, noise(5, 4 << 20)).unwrap();
    run(&["mkswap", "-q", swap.to_str().unwrap()]);
    file.write_all_at(&fs::read(&swap).unwrap(), 29 * MIB).unwrap();
    disk
}

fn restored(sandbox: &Sandbox, name: &str) -> std::path::PathBuf {
    let path = sandbox.path(&format!("restored {name}"));
    sandbox.ok(["restore", name, path.to_str().unwrap()]);
    path
}

fn content(sandbox: &Sandbox, disk: &Path, name: &str) -> Vec<u8> {
    let (part, out) = (sandbox.path("looked at"), sandbox.path("content"));
    fs::write(&part, read(disk, MIB, 24 * MIB)).unwrap();
    tool("e2fsck", ["-fn", part.to_str().unwrap()]);
    let _ = fs::remove_file(&out);
    tool("debugfs", ["-R", &format!("dump {name} {}", out.display()), part.to_str().unwrap()]);
    fs::read(out).unwrap()
}

#[test]
fn swap_is_zeros_and_the_rest_is_as_it_was() {
    if !["mkfs.ext4", "debugfs", "e2fsck", "sfdisk", "mkswap"].into_iter().all(has) {
        eprintln!("skipped: disks with swap, which need e2fsprogs, sfdisk and mkswap");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let disk = make_disk(&sandbox);
    let said = sandbox.ok(["snapshot", disk.to_str().unwrap(), "--name", "lean"]);
    let expected = ["left out: swap of p2, ", "left out: swap of p3, ", "left out: /var/memory of p1, "];
    assert!(expected.iter().all(|line| said.contains(line)), "{said}");
    assert_eq!(said.matches("left out").count(), 3, "{said}");
    let whole =
        sandbox.json(["snapshot", disk.to_str().unwrap(), "--name", "whole", "--keep-swap"]).remove(0);
    assert_eq!(whole["left_out_bytes"], 0);
    let thin = sandbox.json(["snapshot", disk.to_str().unwrap(), "--name", "thin", "--skip-free"]).remove(0);
    let page = 4096;
    assert!(thin["left_out_bytes"].as_u64().unwrap() > 8 * MIB + 2 * MIB + 4_000_000, "{thin}");

    assert!(
        fs::read(restored(&sandbox, "whole")).unwrap() == fs::read(&disk).unwrap(),
        "all is kept if asked"
    );
    for name in ["lean", "thin"] {
        let lean = restored(&sandbox, name);
        assert!(is_zero(&read(&lean, 25 * MIB, 4 * MIB)), "what the table calls swap");
        assert!(is_zero(&read(&lean, 29 * MIB + page, 4 * MIB - page)), "what says that it is swap");
        assert_eq!(read(&lean, 29 * MIB, page), read(&disk, 29 * MIB, page), "its header stays");
        let volumes = varve_image::Disk::open(Arc::new(File::open(&lean).unwrap()));
        assert_eq!(volumes.volume("p3").unwrap().content(), varve_image::VolumeContent::Swap);
        for file in ["noise", "swapfile", "var/swap", "etc/fstab"] {
            assert!(
                content(&sandbox, &lean, file) == fs::read(sandbox.path("tree").join(file)).unwrap(),
                "{name}: {file}"
            );
        }
        let (memory, before) =
            (content(&sandbox, &lean, "var/memory"), fs::read(sandbox.path("tree/var/memory")).unwrap());
        assert_eq!(memory[..4096], before[..4096]);
        assert!(is_zero(&memory[4096..]) && memory.len() == before.len());
        assert_eq!(read(&lean, 0, MIB), read(&disk, 0, MIB), "the table and what is beside it");
    }
    let (lean, removed) = (fs::read(sandbox.path("restored thin")).unwrap(), noise(2, 4096));
    let finds = |bytes: &[u8]| bytes.chunks_exact(1024).any(|chunk| chunk == &removed[..1024]);
    assert!(finds(&fs::read(&disk).unwrap()) && !finds(&lean), "what was removed is gone");
    sandbox.ok(["verify", "--data"]);
}

#[test]
fn nothing_is_left_out_of_a_file_system_that_waits_for_recovery() {
    if !["mkfs.ext4", "debugfs", "e2fsck", "sfdisk", "mkswap"].into_iter().all(has) {
        eprintln!("skipped: disks with swap, which need e2fsprogs, sfdisk and mkswap");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let disk = make_disk(&sandbox);
    let part = sandbox.path("part");
    tool("debugfs", ["-w", "-R", "feature needs_recovery", part.to_str().unwrap()]);
    File::options().write(true).open(&disk).unwrap().write_all_at(&fs::read(&part).unwrap(), MIB).unwrap();
    let output = sandbox.run([
        "snapshot",
        disk.to_str().unwrap(),
        "--name",
        "web",
        "--skip-free",
        "--keep-swap",
        "--json",
    ]);
    let said = output.complaints();
    assert_eq!(output.code, Some(0), "{said}");
    assert!(said.contains("free blocks of p1 is kept: which are free is not certain"), "{said}");
    assert!(fs::read(restored(&sandbox, "web")).unwrap() == fs::read(&disk).unwrap());
}

#[test]
fn what_is_read_only_once_is_kept_whole() {
    let sandbox = Sandbox::encrypted();
    let output = sandbox.run(["snapshot", "-", "--name", "x", "--skip-free"]);
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("give a file or a device"), "{}", output.stderr);
}
