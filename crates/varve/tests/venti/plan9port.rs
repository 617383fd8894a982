//! Foreign clients at our server, and our program at a foreign server. The foreign programs are
//! those of Plan 9 from User Space, if they are installed. Recordings of their messages are in the
//! tests of `varve-venti` and `varve-serve`, which run everywhere.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::plan9;
use crate::sandbox;
use crate::venti_server;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::nine_p::Files;
use crate::plan9::{Venti, run, run_at};
use crate::sandbox::{Sandbox, has, manifest, noise, sparse_image, tool};
use crate::venti_server::{Server, at, fails_at, make_store, measure};

/// Marks a symbolic link in the mode of a file, as in plan9port.
const LINK: u32 = 0x0200_0000;

/// A folder with files that vac can archive: no fractions of seconds, and no sockets. One file is
/// large enough for pointers to pointers to blocks of 8 KiB.
fn folder(at: &Path) {
    fs::create_dir_all(at.join("below/further")).unwrap();
    fs::write(at.join("large"), noise(7, 5_000_000)).unwrap();
    fs::write(at.join("empty"), []).unwrap();
    fs::write(at.join("below/small"), "a small file\n").unwrap();
    fs::write(at.join("below/further/text"), "line\n".repeat(10_000)).unwrap();
    sparse_image(&at.join("below/hole"), 1 << 20, &[(700_000, b"not a hole")]);
    symlink("../large", at.join("below/link")).unwrap();
    for number in 0..300 {
        fs::write(at.join(format!("below/further/file {number}")), noise(number, 100)).unwrap();
    }
}

/// The names and the bytes of the files below a folder. Links are omitted, because the vac of some
/// systems cuts their targets.
fn bytes_below(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// The first position where two images differ, and their lengths. `None` if they are equal.
fn first_difference(one: &[u8], other: &[u8]) -> Option<(usize, usize, usize)> {
    let at = one.iter().zip(other).position(|(one, other)| one != other);
    (one != other).then(|| (at.unwrap_or(one.len().min(other.len())), one.len(), other.len()))
}

fn score_in(file: &Path) -> String {
    fs::read_to_string(file).unwrap().trim().strip_prefix("vac:").unwrap().to_owned()
}

#[test]
fn a_server_that_is_not_ours_is_a_store() {
    if !plan9::has("a server that is not ours is a store", &Venti::PROGRAMS) {
        return;
    }
    let sandbox = Sandbox::empty();
    folder(&sandbox.path("home"));
    let image = sandbox.path("disk.raw");
    sparse_image(&image, 24 << 20, &[(0, &noise(2, 1 << 20)), (9 << 20, &noise(3, 3 << 20))]);
    let server = Venti::start(&sandbox);
    let ask = |words: &[&str]| at(&sandbox, &server.address, words);

    ask(&["snapshot", &sandbox.arg("home"), &sandbox.arg("disk.raw"), "--as", "image"]);
    fs::write(sandbox.path("home/below/small"), "another small file\n").unwrap();
    ask(&["snapshot", &sandbox.arg("home")]);
    assert_eq!(ask(&["snapshots"]).lines().count(), 4);
    assert!(ask(&["ls", "-R", "home"]).contains("below/further/file 299"));
    assert_eq!(ask(&["cat", "home:below/small"]), "another small file\n");
    assert_eq!(ask(&["find", "file 17"]).lines().count(), 2);
    let first = ask(&["--json", "snapshots"]);
    let first = sandbox::json_lines(&first);
    let first = first[0]["id"].as_str().unwrap();
    assert!(ask(&["diff", first, "home"]).contains("M below/small"));
    ask(&["restore", "home", &sandbox.arg("out")]);
    assert_eq!(manifest(&sandbox.path("out")), manifest(&sandbox.path("home")));
    ask(&["restore", "disk.raw", &sandbox.arg("out.raw")]);
    assert!(fs::read(sandbox.path("out.raw")).unwrap() == fs::read(&image).unwrap());
    assert!(ask(&["verify"]).contains("all is well: 3 snapshots"));
    assert!(ask(&["verify", "--data"]).contains("read and checked"));

    assert!(measure(&server.address, &["--count", "1000"]).contains("MB/s"));
    for order in ["sequential", "permuted", "random", "same"] {
        measure(&server.address, &["--count", "1000", "--action", "read", "--order", order]);
    }
    let refused = fails_at(&sandbox, &server.address, 1, &["cat", &format!("vac:{}", "5".repeat(40))]);
    assert!(refused.contains("is not in the store"), "{refused}");
}

#[test]
fn archives_move_between_our_servers_and_others_and_are_read_by_both() {
    let programs = [&Venti::PROGRAMS[..], &["vac", "unvac", "venti/copy"]].concat();
    if !plan9::has("archives move between our servers and others", &programs) {
        return;
    }
    let sandbox = Sandbox::empty();
    folder(&sandbox.path("home"));
    make_store(&sandbox);
    let theirs = Venti::start(&sandbox);
    let ours = Server::start(&sandbox);
    let here = sandbox.path("");

    // The foreign vac writes to the foreign server, and our program reads the archive there.
    run("vac", ["-h", &theirs.address, "-f", "theirs.vac", "home"], &here);
    at(&sandbox, &theirs.address, &["restore", &sandbox.arg("theirs.vac"), &sandbox.arg("read")]);
    assert!(bytes_below(&sandbox.path("read/home")) == bytes_below(&sandbox.path("home")));
    // The foreign tool copies it to our server, which was empty. Our tool finds nothing left to
    // copy.
    run("venti/copy", [&theirs.address, ours.address(), &score_in(&sandbox.path("theirs.vac"))], &here);
    let copy = |from: &str, file: &str, to: &str| at(&sandbox, to, &["copy", from, &sandbox.arg(file), to]);
    assert!(copy(&theirs.address, "theirs.vac", ours.address()).contains(": 0 blocks copied"));

    // Our program writes to our server and copies the archive to the foreign server. The foreign
    // tool unpacks it there.
    fs::write(sandbox.path("home/large"), noise(8, 3_000_000)).unwrap();
    at(&sandbox, ours.address(), &["snapshot", "--vac", &sandbox.arg("ours.vac"), &sandbox.arg("home")]);
    copy(ours.address(), "ours.vac", &theirs.address);
    fs::create_dir(sandbox.path("unpacked")).unwrap();
    run("unvac", ["-h", &theirs.address, &sandbox.arg("ours.vac")], &sandbox.path("unpacked"));
    assert!(bytes_below(&sandbox.path("unpacked/home")) == bytes_below(&sandbox.path("home")));
    run("venti/copy", ["-f", ours.address(), &theirs.address, &score_in(&sandbox.path("ours.vac"))], &here);
    ours.end();
}

#[test]
fn clients_that_are_not_ours_work_with_our_server_unchanged() {
    let programs = ["vac", "unvac", "venti/write", "venti/read", "venti/sync"];
    if !plan9::has("clients that are not ours work with our server", &programs) {
        return;
    }
    let sandbox = Sandbox::empty();
    folder(&sandbox.path("home"));
    make_store(&sandbox);
    let mut server = Server::start(&sandbox);
    let here = sandbox.path("");

    run("vac", ["-h", server.address(), "-f", "one.vac", "home"], &here);
    fs::write(sandbox.path("home/below/small"), "another small file\n").unwrap();
    // The second run of vac uses the first archive as its base.
    run("vac", ["-h", server.address(), "-d", "one.vac", "-f", "two.vac", "home"], &here);
    // vac has synced, so all acknowledged blocks are durable even if the server is killed.
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::start(&sandbox);
    for archive in ["one.vac", "two.vac"] {
        let out = sandbox.path(archive).with_extension("out");
        fs::create_dir(&out).unwrap();
        run("unvac", ["-h", server.address(), &sandbox.arg(archive)], &out);
    }
    assert_eq!(fs::read(sandbox.path("one.out/home/below/small")).unwrap(), b"a small file\n");
    assert!(bytes_below(&sandbox.path("two.out/home")) == bytes_below(&sandbox.path("home")));
    let listed = run("unvac", ["-h", server.address(), "-t", &sandbox.arg("two.vac")], &here);
    assert!(String::from_utf8(listed).unwrap().contains("home/below/further/file 299"));

    let mut write = plan9::command("venti/write", ["-h", server.address()], &here);
    fs::write(sandbox.path("block"), "one block").unwrap();
    write.stdin(fs::File::open(sandbox.path("block")).unwrap());
    let written = write.output().unwrap();
    let score = String::from_utf8(written.stdout).unwrap().trim().to_owned();
    run("venti/sync", ["-h", server.address()], &here);
    assert_eq!(run("venti/read", ["-h", server.address(), &score], &here), b"one block");
    server.end();
}

/// Runs `varve` on the store of our server. Returns its exit status and its output.
fn at_store(sandbox: &Sandbox, words: &[&str]) -> (Option<i32>, String) {
    let output = sandbox.command_at(&sandbox.path(venti_server::STORE)).args(words).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// No catalog names the blocks that vac has written. A loss of them is still known until vac writes
/// them again.
#[test]
fn what_vac_has_written_and_the_disk_has_lost_stays_known() {
    if !plan9::has("what vac has written stays known", &["vac", "unvac"]) {
        return;
    }
    let mut sandbox = Sandbox::empty();
    sandbox.set_key(None);
    folder(&sandbox.path("home"));
    make_store(&sandbox);
    let here = sandbox.path("");
    let write = || {
        let server = Server::start(&sandbox);
        run("vac", ["-h", server.address(), "-f", "home.vac", "home"], &here);
        server.end();
    };
    write();
    let archive = sandbox.arg("home.vac");
    assert_eq!(at_store(&sandbox, &["verify", &archive]).0, Some(0));
    let arena = sandbox.path(venti_server::STORE).join("arenas/0000000000.arena");
    let middle = fs::metadata(&arena).unwrap().len() / 2;
    sandbox::write_at(&arena, middle, &noise(5, 3000));
    for words in [&["verify", "--data"][..], &["verify"], &["repair"], &["verify"], &["verify", "--data"]] {
        let (code, said) = at_store(&sandbox, words);
        assert!(code == Some(5) && said.contains("lost: "), "{words:?}: {said}");
    }
    let (code, said) = at_store(&sandbox, &["verify", &archive]);
    assert!(code == Some(5) && said.contains("home/large"), "{said}");
    let server = Server::start(&sandbox);
    fails_at(&sandbox, server.address(), 2, &["verify", "no archive"]);
    let there = venti_server::command_at(&sandbox, server.address()).args(["verify", &archive]).output();
    assert_eq!(there.unwrap().status.code(), Some(5), "seen through the door as well");
    server.end();
    write();
    for words in [&["verify", "--data"][..], &["verify", &archive]] {
        let (code, said) = at_store(&sandbox, words);
        assert_eq!(code, Some(0), "{words:?}: {said}");
    }
}

#[test]
fn images_of_vbackup_come_back_from_our_server_by_either() {
    if !plan9::has("images of vbackup come back", &["vbackup", "vcat"]) {
        return;
    }
    if !has("mkfs.ext2") {
        eprintln!("skipped: images of vbackup come back, which needs mkfs.ext2");
        return;
    }
    let sandbox = Sandbox::empty();
    folder(&sandbox.path("home"));
    let image = sandbox.path("disk.img");
    sparse_image(&image, 32 << 20, &[]);
    // The cache of vbackup is too small for smaller blocks.
    tool("mkfs.ext2", ["-q", "-F", "-b", "4096", "-d", &sandbox.arg("home"), &sandbox.arg("disk.img")]);
    make_store(&sandbox);
    let server = Server::start(&sandbox);
    let said = run_at("vbackup", server.address(), ["disk.img"], &sandbox.path(""));
    let said = String::from_utf8(said).unwrap();
    let score = said.split_whitespace().find(|word| word.starts_with("ext2:")).unwrap();

    // vcat writes at several positions, so its output cannot be a pipe.
    let mut vcat = plan9::command("vcat", [score], &sandbox.path(""));
    let out = fs::File::create(sandbox.path("vcat.img")).unwrap();
    assert!(vcat.env("venti", server.address()).stdout(out).status().unwrap().success());
    let read = fs::read(sandbox.path("vcat.img")).unwrap();
    assert_eq!(first_difference(&read, &fs::read(&image).unwrap()), None, "vcat");
    at(&sandbox, server.address(), &["restore", score, &sandbox.arg("out.img")]);
    let found = at(&sandbox, server.address(), &["cat", &format!("{score}:p0/below/small")]);
    assert_eq!(found, "a small file\n");
    assert_eq!(first_difference(&fs::read(sandbox.path("out.img")).unwrap(), &read), None, "restored");
    server.end();
}

/// All files below a folder of a 9P server, without links, in the form of [`bytes_below`].
fn bytes_served(files: &mut Files, root: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(next) = open.pop() {
        for listed in files.list(&format!("{root}/{next}")) {
            let path = if next.is_empty() { listed.name } else { format!("{next}/{}", listed.name) };
            if listed.is_folder {
                open.push(path);
            } else if listed.mode & LINK == 0 {
                let bytes = files.read(&format!("{root}/{path}"));
                assert_eq!(bytes.len() as u64, listed.length, "{path}");
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_file_server_that_is_not_ours_shows_what_is_at_our_server() {
    let name = "a file server that is not ours shows what is at our server";
    if !plan9::has(name, &["vac", "vacfs"]) {
        return;
    }
    let sandbox = Sandbox::empty();
    folder(&sandbox.path("home"));
    make_store(&sandbox);
    let server = Server::start(&sandbox);
    let here = sandbox.path("");
    run("vac", ["-h", server.address(), "-f", "theirs.vac", "home"], &here);
    at(&sandbox, server.address(), &["snapshot", "--vac", &sandbox.arg("ours.vac"), &sandbox.arg("home")]);
    let expected = bytes_below(&sandbox.path("home"));
    for archive in ["theirs.vac", "ours.vac"] {
        // vacfs uses its standard input and output, so nothing has to be mounted.
        let mut command = plan9::command("vacfs", ["-i", "-h", server.address(), archive], &here);
        let said = sandbox.path("vacfs.log");
        command.stderr(fs::File::create(&said).unwrap());
        let Some(mut files) = Files::start(command) else {
            let said = fs::read_to_string(said).unwrap();
            assert!(said.contains("threadmaybackground"), "{said}");
            eprintln!("skipped: {name}, which needs a vacfs that does not end by itself ({})", said.trim());
            break;
        };
        assert_eq!(files.list("").iter().map(|listed| &*listed.name).collect::<Vec<_>>(), ["home"]);
        assert!(bytes_served(&mut files, "home") == expected, "{archive}");
    }
    server.end();
}
