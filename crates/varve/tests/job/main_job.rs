//! The main job, with the real program: two nights of a disk and of a folder are listed, browsed,
//! verified and restored.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::sandbox::{
    Run, Sandbox, bytes_on_disk, has, manifest, noise, sample_folder, sparse_image, tool, write_at,
};

const NIGHTS: [&str; 2] = ["2026-05-01T23:00:00Z", "2026-05-02T23:00:00Z"];

/// Archives an image twice, with `change` in between, and restores both snapshots.
fn two_nights_of_an_image(sandbox: &Sandbox, image: &Path, form: &[&str], change: &dyn Fn(&Path)) {
    let source = image.to_str().unwrap();
    let name = image.file_name().unwrap().to_str().unwrap();
    let mut nights = Vec::new();
    for time in NIGHTS {
        let taken = sandbox.json([&["snapshot", source, "--time", time], form].concat()).remove(0);
        assert_eq!((&taken["kind"], &taken["name"]), (&"image".into(), &name.into()));
        nights.push((taken, fs::read(image).unwrap(), bytes_on_disk(image)));
        change(image);
    }
    let new = |night: usize| nights[night].0["new_bytes"].as_u64().unwrap();
    assert!(
        new(1) < new(0) / 2 && new(1) > 0,
        "{} then {} bytes: a night costs what changed",
        new(0),
        new(1)
    );

    for (night, (taken, bytes, on_disk)) in nights.iter().enumerate() {
        let day = format!("{name}@{}", &NIGHTS[night][..10]);
        let restored = sandbox.path(&format!("{name}-{night}"));
        sandbox.ok(["restore", &day, restored.to_str().unwrap()]);
        assert!(fs::read(&restored).unwrap() == *bytes, "{day}");
        let bound = on_disk + on_disk / 4 + (256 << 10);
        assert!(
            bytes_on_disk(&restored) <= bound,
            "{} bytes on disk, not {on_disk}",
            bytes_on_disk(&restored)
        );
        assert!(sandbox.run(["cat", &taken["id"].as_str().unwrap()[..8]]).stdout == *bytes, "{day}");
        assert!(sandbox.run(["restore", &day, "-"]).stdout == *bytes, "{day}");
    }
    let (first, second) = (&nights[0].1, &nights[1].1);
    let (earlier, later) = (format!("{name}@2026-05-01:disk.raw"), format!("{name}:disk.raw"));
    let ranges = sandbox.json(["diff", &earlier, &later]);
    let within = |at: u64| {
        ranges
            .iter()
            .filter(|line| line["type"] == "range")
            .any(|range| (range["start"].as_u64().unwrap()..range["end"].as_u64().unwrap()).contains(&at))
    };
    assert!(ranges.len() > 1, "{ranges:?}");
    assert_eq!(ranges[ranges.len() - 1]["type"], "ranges");
    for (at, (a, b)) in first.iter().zip(second).enumerate() {
        assert!(a == b || within(at as u64), "byte {at} differs, and diff does not say so");
    }
    assert!(sandbox.ok(["diff", &earlier, &later]).contains("bytes "));
    assert!(sandbox.ok(["ls", name]).contains("all of the disk"));
}

/// A destination that can only be a folder receives the restored entry under the entry's own name.
#[test]
fn into_a_folder_things_come_under_their_own_names() {
    let sandbox = Sandbox::encrypted();
    fs::create_dir_all(sandbox.path("source/work/deep")).unwrap();
    fs::create_dir(sandbox.path("there")).unwrap();
    fs::write(sandbox.path("source/work/deep/notes.txt"), "buy milk").unwrap();
    fs::write(sandbox.path("disk.img"), vec![7; 100_000]).unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("source/work"), &sandbox.arg("disk.img")]);
    let there = format!("{}/", sandbox.arg("there"));
    for what in ["work:deep/notes.txt", "work:deep", "work", "disk.img"] {
        sandbox.ok(["restore", what, &there]);
    }
    for notes in ["notes.txt", "deep/notes.txt", "work/deep/notes.txt"] {
        assert_eq!(fs::read(sandbox.path("there").join(notes)).unwrap(), b"buy milk", "{notes}");
    }
    assert_eq!(fs::read(sandbox.path("there/disk.img")).unwrap(), vec![7; 100_000]);
    for again in ["work:deep", "disk.img"] {
        let exists = sandbox.fails(1, ["restore", again, &there]);
        assert!(exists.contains("exists") && exists.contains("hint: --dry-run shows"), "{exists}");
    }
    // A restore enters an existing folder only if the destination's name asks for it.
    assert!(sandbox.fails(1, ["restore", "work", &sandbox.arg("there")]).contains("exists"));
    let mut here = sandbox.command();
    here.args(["restore", "work:deep/notes.txt", "."]).current_dir(sandbox.path("source"));
    assert!(here.status().unwrap().success());
    assert_eq!(fs::read(sandbox.path("source/notes.txt")).unwrap(), b"buy milk");
}

#[test]
fn two_nights_of_a_sparse_image() {
    for kind in
        [&[][..], &["--plaintext"], &["--score", "sha1"], &["--block-size", "512", "--clump-size", "4K"]]
    {
        let sandbox = Sandbox::made_with(kind);
        let image = sandbox.path("disk.img");
        let pieces =
            [(0, noise(3, 700_000)), (5 << 20, vec![b'x'; 100_000]), ((12 << 20) - 3000, noise(4, 3000))];
        let pieces: Vec<_> = pieces.iter().map(|(at, bytes)| (*at, bytes.as_slice())).collect();
        // The size is not a multiple of any block size.
        sparse_image(&image, (12 << 20) + 777, &pieces);
        two_nights_of_an_image(&sandbox, &image, &["--as", "image"], &|image| {
            write_at(image, 9_000_001, &noise(5, 40_000));
        });
        sandbox.ok(["verify"]);
        assert!(sandbox.ok(["verify", "--data"]).contains("all is well: 2 snapshots"));
    }
}

#[test]
fn two_nights_of_a_real_disk() {
    if !has("mkfs.ext4") || !has("debugfs") {
        eprintln!("skipped: a real disk, which needs mkfs.ext4 and debugfs");
        return;
    }
    let sandbox = Sandbox::encrypted();
    let (tree, image) = (sandbox.path("tree"), sandbox.path("web.img"));
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/motd"), "welcome\n").unwrap();
    fs::write(tree.join("noise"), noise(6, 2_000_000)).unwrap();
    fs::write(sandbox.path("new"), noise(7, 100_000)).unwrap();
    let (tree, disk) = (tree.to_str().unwrap(), image.to_str().unwrap());
    tool("mkfs.ext4", ["-q", "-F", "-d", tree, disk, "24M"]);
    let write = format!("write {} new", sandbox.arg("new"));
    two_nights_of_an_image(&sandbox, &image, &[], &|image| {
        tool("debugfs", ["-w", "-R", &write, image.to_str().unwrap()]);
    });
    sandbox.ok(["verify", "--data"]);
}

#[test]
fn two_nights_of_a_folder() {
    let sandbox = Sandbox::encrypted();
    let source = sandbox.path("home");
    sample_folder(&source);
    let mut nights = vec![manifest(&source)];
    let work = sandbox.arg("home");
    let first = sandbox.json(["snapshot", &work, "--time", NIGHTS[0], "--tag", "kind=test"]).remove(0);
    assert_eq!((&first["kind"], &first["problems"]), (&"folder".into(), &0.into()));
    fs::write(source.join("letter.txt"), "Dear archive, once more\n").unwrap();
    // A write by a user takes away the right to run as the owner.
    fs::set_permissions(source.join("letter.txt"), PermissionsExt::from_mode(0o4751)).unwrap();
    fs::write(source.join("added.conf"), "b = 2\n").unwrap();
    fs::remove_file(source.join("deep/link")).unwrap();
    nights.push(manifest(&source));
    let second = sandbox.json(["snapshot", &work, "--time", NIGHTS[1]]).remove(0);
    assert!(second["new_bytes"].as_u64().unwrap() < 50_000, "{second}");

    for (day, wanted) in ["home@2026-05-01", "home"].into_iter().zip(&nights) {
        let restored = sandbox.path(&format!("restored {day}"));
        sandbox.ok(["restore", day, restored.to_str().unwrap()]);
        pretty_eq(&manifest(&restored), wanted);
        assert!(bytes_on_disk(&restored.join("sparse")) < 1 << 20, "a sparse file comes back sparse");
    }
    looks_into(&sandbox, &first);
    parts_come_out(&sandbox);
    says_what_came_out(&sandbox, &first);
    sandbox.ok(["verify"]);
    sandbox.ok(["verify", "--data"]);
    let verified = sandbox.json(["verify", "--data"]).remove(0);
    assert_eq!((&verified["snapshots"], verified["damage"].as_array().unwrap().len()), (&2.into(), 0));
}

/// Old systems wrote such names. Two names beside each other would look the same.
#[test]
fn names_that_are_no_text_are_named_as_they_are() {
    let sandbox = Sandbox::encrypted();
    let folder = sandbox.path("old");
    let name = OsStr::from_bytes(b"caf\xe9");
    fs::create_dir_all(folder.join(name)).unwrap();
    fs::write(folder.join(name).join(name), "coffee").unwrap();
    fs::write(folder.join("caf\\xe9"), "a backslash").unwrap();
    symlink(name, folder.join("link")).unwrap();
    sandbox.ok(["snapshot", "old"]);
    let place = |path: &[u8]| OsStr::from_bytes(&[b"old:", path].concat()).to_owned();
    let within = place(b"/caf\xe9/caf\xe9");
    assert_eq!(sandbox.ok([OsStr::new("cat"), &within]), "coffee");
    assert_eq!(sandbox.ok(["cat", "old:caf\\xe9"]), "a backslash");
    assert_eq!(sandbox.ok([OsStr::new("ls"), &place(b"caf\xe9/")]), "caf\\xe9\n");
    assert_eq!(sandbox.ok(["ls", "old"]), "caf\\\\xe9\ncaf\\xe9/\nlink\n");
    sandbox.ok([OsStr::new("restore"), &within, OsStr::from_bytes(b"\xe9")]);
    assert_eq!(fs::read(sandbox.path("").join(OsStr::from_bytes(b"\xe9"))).unwrap(), b"coffee");
    let nodes = sandbox.json(["ls", "old"]);
    let bytes: Vec<_> = nodes.iter().map(|node| node["path_bytes"].as_str()).collect();
    assert_eq!(bytes, [None, Some("636166e9"), None], "{nodes:?}");
    assert_eq!((&nodes[1]["path"], &nodes[2]["target_bytes"]), (&"caf\u{fffd}".into(), &"636166e9".into()));
    let changes = sandbox.json([OsStr::new("diff"), OsStr::new("old"), &place(b"caf\xe9")]);
    assert!(changes.iter().any(|change| change["path_bytes"] == "636166e92f636166e9"), "{changes:?}");
    assert_eq!(sandbox.ok(["find", "caf?"]).lines().count(), 2);
}

fn says_what_came_out(sandbox: &Sandbox, first: &serde_json::Value) {
    let day = "home@2026-05-01";
    let said = sandbox.ok(["restore", day, "said"]);
    let there = sandbox.path("said");
    let is_folder = |path: &&PathBuf| fs::symlink_metadata(there.join(path)).unwrap().is_dir();
    let folders = manifest(&there).keys().filter(is_folder).count();
    assert!(
        said.starts_with("restored home of 2026-05-01 ")
            && said.contains(" to said: ")
            && said.contains(&format!(" and {folders} folders")),
        "{said}"
    );
    let letter = format!("{day}:letter.txt");
    let anew = sandbox.ok(["restore", &letter, "said/anew"]);
    assert!(anew.starts_with("restored home:letter.txt of 2026-05-01 "), "{anew}");
    assert!(anew.ends_with(" to said/anew: 14 B\n"), "{anew}");
    assert_eq!(sandbox.ok(["restore", &letter, "said/quiet", "-q"]), "");
    let told = sandbox.json(["restore", &letter, "said/told"]).remove(0);
    let wanted = serde_json::json!({
        "type": "restored", "snapshot": first["id"], "path": "said/told", "kind": "file", "files": 1, "folders": 0, "bytes": 14,
        "kept": 0, "attributes": 0, "lacking_flags": 0, "deleted": 0, "problems": 0, "left_out": [],
    });
    assert_eq!(told, wanted);
}

fn pretty_eq(found: &impl std::fmt::Debug, wanted: &impl std::fmt::Debug) {
    assert_eq!(format!("{found:#?}"), format!("{wanted:#?}"));
}

#[test]
fn sealed_arenas_get_parity() {
    let sandbox = Sandbox::made_with(&["--parity", "10%", "--clump-size", "128K"]);
    sandbox.snapshot_bytes("disk", &noise(60, 3_500_000));
    let stats = sandbox.json(["stats"]).remove(0);
    let sealed = stats["arenas"].as_u64().unwrap() - 1;
    assert!(sealed >= 3);
    assert_eq!((&stats["parity_percent"], &stats["parity_arenas"]), (&10.into(), &sealed.into()));
    let files: Vec<_> =
        fs::read_dir(sandbox.store().join("parity")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(files.len() as u64, sealed);
    let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert_eq!(stats["parity_bytes"], bytes);
    assert!((sealed << 20) / 10 < bytes && bytes < (sealed << 20) / 8, "{bytes} bytes for {sealed} arenas");
    assert!(sandbox.ok(["stats"]).contains("parity"));
    assert!(!Sandbox::encrypted().ok(["stats"]).contains("parity"));
    sandbox.ok(["verify", "--data"]);
}

#[test]
fn a_seal_that_was_cut_off_is_told_once_and_mended() {
    let sandbox = Sandbox::made_with(&["--parity", "10%", "--clump-size", "128K"]);
    sandbox.snapshot_bytes("disk", &noise(61, 3_500_000));
    let file = sandbox.store().join("arenas/0000000001.arena");
    let good = fs::read(&file).unwrap();
    fs::write(&file, &good[..good.len() - 100]).unwrap();
    let found = sandbox.run(["verify"]);
    let text = found.text() + &found.stderr;
    assert_eq!(found.code, Some(5), "{text}");
    assert!(text.contains("arena 1, offset 0: the arena's seal is gone"), "{text}");
    assert!(!text.contains("cuts it off"), "nobody will: {text}");
    assert!(sandbox.ok(["repair"]).contains("arena 1 was mended from its parity"));
    assert!(fs::read(&file).unwrap() == good);
    sandbox.ok(["verify", "--data"]);
}

fn looks_into(sandbox: &Sandbox, first: &serde_json::Value) {
    let listed = sandbox.ok(["snapshots"]);
    assert!(
        listed.contains("home") && listed.contains("2026-05-01 23:00:00") && listed.contains("kind=test")
    );
    let tagged = sandbox.json(["snapshots", "--tag", "kind=test"]);
    assert_eq!(tagged.len(), 1);
    assert_eq!(tagged[0]["id"], first["id"]);
    let stats = sandbox.json(["stats"]).remove(0);
    assert_eq!(stats["snapshots"], 2);
    assert!(stats["stored_bytes"].as_u64().unwrap() > 0);
    assert!(sandbox.ok(["stats"]).contains("snapshots"));

    let names = sandbox.ok(["ls", "home"]);
    assert!(names.contains("letter.txt\n") && names.contains("deep/\n"), "{names}");
    assert!(names.contains(r"new\nline") && names.contains(r"not utf-8 \xff\xfe"), "{names}");
    assert!(!names.contains("noise.bin"), "only -R descends");
    let long = sandbox.ok(["ls", "-lR", "home"]);
    assert!(long.contains("-rwsr-x--x") && long.contains("deep/noise.bin") && long.contains("prw"), "{long}");
    assert!(sandbox.ok(["ls", "home:deep/er"]).contains("still/"));
    let nodes = sandbox.json(["ls", "-R", "home"]);
    let kind = |path: &str| nodes.iter().find(|node| node["path"] == path).map(|node| node["kind"].clone());
    assert_eq!(kind("dangling"), Some("symbolic link".into()), "{nodes:?}");
    assert_eq!(kind("deep/er/still/text.conf"), Some("file".into()));

    assert_eq!(sandbox.ok(["cat", "home@2026-05-01:letter.txt"]), "Dear archive,\n");
    assert_eq!(sandbox.ok(["cat", "home:letter.txt"]), "Dear archive, once more\n");
    sandbox.fails(1, ["cat", "home:deep"]);
    sandbox.fails(1, ["cat", "home:none/such"]);

    let diff = sandbox.ok(["diff", "home@2026-05-01", "home"]);
    for line in ["M letter.txt  14 B → 24 B", "+ added.conf  6 B", "- deep/link"] {
        assert!(diff.lines().any(|found| found == line), "{line} in {diff}");
    }
    let changes = sandbox.json(["diff", "home@2026-05-01", "home"]);
    assert!(changes.iter().any(|change| change["path"] == "added.conf" && change["change"] == "added"));
    assert_eq!(sandbox.ok(["diff", "home", "home"]), "");

    let found = sandbox.ok(["find", "*.conf"]);
    assert_eq!(found.lines().count(), 3, "{found}");
    assert_eq!(sandbox.ok(["find", "deep/**/*.conf", "home"]).lines().count(), 1);
    assert_eq!(sandbox.json(["find", "added.conf"])[0]["path"], "added.conf");
    let below: Vec<_> = sandbox.json(["find", "*.conf", "home:deep/er/"]);
    assert_eq!(below.len(), 1);
    assert_eq!(below[0]["path"], "deep/er/still/text.conf");
    assert_eq!((&below[0]["name"], &below[0]["time"]), (&"home".into(), &"2026-05-02T23:00:00Z".into()));
    assert_eq!((&below[0]["source"], &below[0]["host"]), (&first["source"], &first["host"]));
    assert_eq!(sandbox.ok(["find", "er", "home:deep/er"]).lines().count(), 1, "where it begins, too");
    assert!(sandbox.fails(1, ["find", "*", "home:none/such"]).contains("there is no none"));
}

fn parts_come_out(sandbox: &Sandbox) {
    sandbox.ok(["restore", "home:deep/er", &sandbox.arg("part")]);
    assert_eq!(fs::read_to_string(sandbox.path("part/still/text.conf")).unwrap(), "a = 1\n".repeat(9000));
    sandbox.ok(["restore", "home:letter.txt", &sandbox.arg("one")]);
    assert_eq!(fs::read_to_string(sandbox.path("one")).unwrap(), "Dear archive, once more\n");
    assert_eq!(sandbox.ok(["restore", "home@2026-05-01:letter.txt", "-"]), "Dear archive,\n");

    let refused = sandbox.fails(1, ["restore", "home@2026-05-01:letter.txt", &sandbox.arg("one")]);
    assert!(refused.contains("exists"), "{refused}");
    assert_eq!(fs::read_to_string(sandbox.path("one")).unwrap(), "Dear archive, once more\n");
    sandbox.ok(["restore", "home@2026-05-01:letter.txt", &sandbox.arg("one"), "--overwrite", "always"]);
    assert_eq!(fs::read_to_string(sandbox.path("one")).unwrap(), "Dear archive,\n");
    let refused = sandbox.fails(1, ["restore", "home", &sandbox.arg("part")]);
    assert!(refused.contains("exists"), "{refused}");
}

#[test]
fn standard_input_and_names() {
    let sandbox = Sandbox::encrypted();
    assert!(sandbox.fails(1, ["ls", "latest"]).contains("no snapshots yet"));
    let bytes = noise(8, 1_500_000);
    let taken = sandbox.snapshot_bytes("database", &bytes);
    assert_eq!(taken["size"], 1_500_000);
    let id = taken["id"].as_str().unwrap();
    for name in ["database", "latest", id, &id[..6], "@2199-01-01", "database@2199-01-01"] {
        assert!(sandbox.run(["cat", name]).stdout == bytes, "{name}");
    }
    assert_eq!(sandbox.snapshot_bytes("database", &bytes)["new_bytes"], 0, "all of it is known");
    let near = sandbox.fails(1, ["ls", "databse"]);
    assert!(near.contains("databse") && near.contains("similar names: database"), "{near}");
    assert!(sandbox.fails(1, ["ls", "database@1999-01-01"]).contains("no snapshot is that old"));
    assert!(sandbox.fails(2, ["ls", "database@tomorrow"]).contains("is not a time"));
    for (old, count) in [("2 days ago", 0), ("3d", 0), ("today", 2)] {
        assert_eq!(sandbox.json(["snapshots", "--until", old]).len(), count, "{old}");
    }
    assert!(sandbox.fails(1, ["ls", "database@3d"]).contains("no snapshot is that old"));
    assert_eq!(sandbox.json(["snapshots", "--since", "1d"]).len(), 2);
    assert!(sandbox.run(["cat", "database@today"]).stdout == bytes);
    assert!(sandbox.fails(2, ["snapshot", "-"]).contains("--name"));
    assert!(sandbox.fails(1, ["cat", "database:etc"]).contains("there is no etc"));

    let image = sandbox.path("out");
    fs::write(&image, "mine").unwrap();
    assert!(sandbox.fails(1, ["restore", "database", "out"]).contains("exists"));
    assert_eq!(fs::read(&image).unwrap(), b"mine");
    sandbox.ok(["restore", "database", "out", "--overwrite", "always"]);
    assert!(fs::read(&image).unwrap() == bytes);
}

#[test]
fn a_passphrase_opens_a_store() {
    let mut sandbox = Sandbox::empty();
    sandbox.set_key(None);
    let with = |passphrase: &str, words: &[&str]| {
        Run::new(sandbox.command().env("VARVE_PASSPHRASE", passphrase).args(words).output().unwrap())
    };
    fs::write(sandbox.path("file.img"), noise(9, 10_000)).unwrap();
    let made = with("open sesame", &["init"]);
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    let add = ["key", "add", "--memory", "8M", "--passes", "1"];
    let short = |new: &str, words: &[&str]| {
        let mut command = sandbox.command();
        let command = command.env("VARVE_PASSPHRASE", "open sesame").env("VARVE_NEW_PASSPHRASE", new);
        Run::new(command.args(add).args(words).output().unwrap())
    };
    let said = short("sesame", &[]);
    assert_eq!(said.code, Some(0));
    assert!(said.stderr.contains("a passphrase of 6 characters can soon be guessed"), "{}", said.stderr);
    assert_eq!(short("poppy", &["--quiet"]).stderr, "");
    assert_eq!(with("open sesame", &["snapshot", "file.img"]).code, Some(0));
    let wrong = with("open barley", &["snapshots"]);
    assert_eq!(wrong.code, Some(12), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("passphrase"), "{}", wrong.stderr);
    assert_eq!(with("open sesame", &["cat", "file.img"]).stdout, noise(9, 10_000));
}

#[test]
fn words_and_pages() {
    let sandbox = Sandbox::empty();
    for wrong in [
        &["bogus"][..],
        &["init", "--score", "md5"],
        &["init", "--block-size", "3K"],
        &["init", "--arena-size", "100"],
        &["init", "--clump-size", "4M"],
        &["init", "--compression", "20"],
        &["init", "--parity", "101%"],
        &["snapshot"],
        &["snapshot", "disk", "--name", "a:b"],
        &["snapshot", "disk", "--time", "soon"],
        &["snapshot", "disk", "--tag", "plain"],
        &["ls"],
    ] {
        let said = sandbox.fails(2, wrong);
        assert!(said.contains("Usage") || said.contains("help"), "{said}");
    }
    assert!(sandbox.fails(2, ["snapshot", "one", "two", "--name", "both"]).contains("there are 2 sources"));
    assert!(sandbox.ok(["--help"]).contains("Usage"));
    assert!(sandbox.ok(["completions", "bash"]).contains("-F _varve varve"));
    sandbox.ok(["man", "pages"]);
    let pages = fs::read_dir(sandbox.path("pages")).unwrap().count();
    assert!(pages >= 12 && sandbox.path("pages/varve-snapshot.1").is_file(), "{pages} pages");
    for entry in fs::read_dir(sandbox.path("pages")).unwrap() {
        let page = fs::read_to_string(entry.unwrap().path()).unwrap();
        let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        for section in ["NAME", "SYNOPSIS", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES", "\"SEE ALSO\""] {
            assert!(sections.contains(&section), "{section} is not in {sections:?}: {page}");
        }
        assert!(!page.contains("EXTRA"), "{page}");
    }
    let page = fs::read_to_string(sandbox.path("pages/varve-snapshot.1")).unwrap();
    assert!(page.contains("\\-\\-exclude") && page.contains("PATTERN"), "options have their values: {page}");
    let page = fs::read_to_string(sandbox.path("pages/varve.1")).unwrap();
    assert!(page.contains("VARVE_PASSPHRASE_COMMAND") && page.contains(".SH EXAMPLES"), "{page}");
    if has("man") {
        let arguments =
            ["--warnings", "-l", "pages/varve.1", "pages/varve-snapshot.1", "pages/varve-key-add.1"];
        let shown =
            std::process::Command::new("man").args(arguments).current_dir(sandbox.path("")).output().unwrap();
        assert!(
            shown.status.success() && shown.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&shown.stderr)
        );
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let sandbox = Sandbox::encrypted();
    let many = sandbox.path("many");
    fs::create_dir(&many).unwrap();
    for number in 0..3000 {
        fs::write(many.join(format!("a file whose name is rather long {number}")), []).unwrap();
    }
    sandbox.ok(["snapshot", "many"]);
    sandbox.snapshot_bytes("image", &noise(10, 3_000_000));
    for words in [&["ls", "-l", "many"][..], &["find", "a*"], &["cat", "image"]] {
        let mut child =
            sandbox.command().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = Vec::new();
        let mut head = BufReader::with_capacity(64, child.stdout.take().unwrap().take(64));
        head.read_until(b'\n', &mut line).unwrap();
        drop(head);
        let run = Run::new(child.wait_with_output().unwrap());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{words:?}");
    }
}

/// Runs the program with outputs that cannot be written to.
fn unheard(sandbox: &Sandbox, words: &[&str], stdout: Stdio, stderr: Stdio) -> Run {
    let child = sandbox.command().args(words).stdout(stdout).stderr(stderr).spawn().unwrap();
    Run::new(child.wait_with_output().unwrap())
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// Returns the write end of a pipe that has no reader any more.
fn unread() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

#[test]
fn what_is_all_that_was_asked_for_is_missed() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("line", b"no end of a line");
    for words in [&["--help"][..], &["ls", "-h"], &["--version"], &["snapshots"], &["cat", "line"]] {
        let run = unheard(&sandbox, words, full(), Stdio::piped());
        assert_eq!(run.code, Some(1), "{words:?}");
        assert!(run.stderr.contains("cannot write to standard output"), "{words:?}: {}", run.stderr);
        let run = unheard(&sandbox, words, unread(), Stdio::piped());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn what_nobody_is_told_of_is_done_all_the_same() {
    let sandbox = Sandbox::encrypted();
    for (name, seed) in [("a", 7), ("b", 8), ("c", 9)] {
        fs::write(sandbox.path(name), noise(seed, 100_000)).unwrap();
    }
    let names = |sandbox: &Sandbox| -> Vec<String> {
        sandbox.json(["snapshots"]).iter().map(|one| one["name"].as_str().unwrap().into()).collect()
    };
    // Each source is archived, although the first snapshot cannot be reported.
    let run = unheard(&sandbox, &["snapshot", "a", "b"], unread(), Stdio::piped());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert_eq!(names(&sandbox), ["a", "b"]);
    let run = unheard(&sandbox, &["snapshot", "b", "c"], full(), Stdio::piped());
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("cannot write to standard output"), "{}", run.stderr);
    assert_eq!(names(&sandbox), ["a", "b", "b", "c"]);
    let run = unheard(&sandbox, &["-vvv", "snapshot", "a"], full(), full());
    assert_eq!(run.code, Some(1));
    assert_eq!(names(&sandbox).len(), 5);
    for stderr in [full(), unread()] {
        assert_eq!(unheard(&sandbox, &["restore", "nothing", "-"], Stdio::piped(), stderr).code, Some(1));
    }
    // A command that only shows data fails if it cannot write.
    for words in [&["cat", "a"][..], &["ls", "-l", "a"]] {
        let run = unheard(&sandbox, words, full(), Stdio::piped());
        assert_eq!(run.code, Some(1), "{words:?}");
        assert!(run.stderr.contains("No space left"), "{words:?}: {}", run.stderr);
    }
    // Damage is a failure even if nobody reads the report.
    let arena = sandbox.store().join("arenas/0000000000.arena");
    write_at(&arena, 50_000, &[0x55; 64]);
    assert_eq!(sandbox.run(["verify", "--data"]).code, Some(5));
    assert_eq!(unheard(&sandbox, &["verify", "--data"], unread(), unread()).code, Some(5));
}

#[test]
fn a_night_that_shows_a_later_moment_hides_none_without_a_word() {
    let sandbox = Sandbox::encrypted();
    let night = |text: &str, time: &[&str]| {
        fs::write(sandbox.path("file"), text).unwrap();
        let words = [&["-q", "snapshot", "file", "--name", "one"], time].concat();
        sandbox.run(words).stderr
    };
    assert_eq!(night("first", &[]), "");
    assert_eq!(night("from a clock that is ahead", &["--time", "2200-03-01T10:00:00Z"]), "");
    let said = night("third", &[]);
    assert!(said.contains("varve: one alone still means ") && said.contains("2200-03-01"), "{said}");
    assert_eq!(sandbox.ok(["cat", "one"]), "from a clock that is ahead");
    assert_eq!(sandbox.ok(["cat", "one@2199-01-01"]), "third");
    assert_eq!(night("on purpose", &["--time", "2026-05-01T10:00:00Z"]), "");
}

/// Commands print one object of `docs/guide/json/varve.schema.json` per line, and nothing else:
/// results, warnings and errors alike. `Sandbox::json` checks each line against it.
#[test]
fn programs_are_answered_in_lines_of_json() {
    let mut sandbox = Sandbox::empty();
    let types = |lines: Vec<serde_json::Value>| -> Vec<String> {
        lines.iter().map(|line| line["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(types(sandbox.json(["init", "--arena-size", "1M"])), ["store"]);
    fs::create_dir_all(sandbox.path("home/below")).unwrap();
    fs::write(sandbox.path("home/below/letter"), "Dear archive,\n").unwrap();
    fs::write(sandbox.path("home").join(OsStr::from_bytes(b"caf\xe9")), noise(80, 300_000)).unwrap();
    sparse_image(&sandbox.path("disk.img"), 4 << 20, &[(1 << 20, &noise(81, 100_000))]);
    let taken = sandbox.json(["snapshot", "home", "disk.img", "--as", "image"]);
    assert_eq!((taken[0]["entries"].as_u64(), taken[1]["entries"].as_u64()), (Some(4), Some(0)));
    write_at(&sandbox.path("disk.img"), 2 << 20, b"changed");
    fs::write(sandbox.path("home/added"), "").unwrap();
    assert_eq!(types(sandbox.json(["snapshot", "home", "disk.img"])), ["snapshot", "snapshot"]);
    let key = sandbox.key().unwrap().to_path_buf();
    for name in ["second", "third", "fourth"] {
        fs::write(sandbox.path(name), noise(name.len() as u64, 32)).unwrap();
        fs::set_permissions(sandbox.path(name), PermissionsExt::from_mode(0o600)).unwrap();
    }
    let first_key = sandbox.json(["key", "list"])[0]["id"].as_str().unwrap().to_owned();
    let other = Sandbox::encrypted();
    let (own, others) = (sandbox.store().to_str().unwrap().to_owned(), other.store().to_str().unwrap());
    let disk = sandbox.arg("");
    for (words, expected) in [
        (&["snapshots"][..], &["snapshot"; 4][..]),
        (&["stats"], &["stats"]),
        (&["stats", "--arenas"], &["arena_use", "arena_use_sum"]),
        (
            &["stats", "--snapshots"],
            &[
                "snapshot_space",
                "snapshot_space",
                "snapshot_space",
                "snapshot_space",
                "name_space",
                "name_space",
                "space_sum",
            ],
        ),
        (&["ls", "-R", "home"], &["node"; 4]),
        (&["ls", "disk.img"], &["volume", "image"]),
        (&["ls", "disk.img:disk.raw"], &["image"]),
        (&["tag", "home", "disk.img", "--add", "why=test"], &["snapshot"; 2]),
        (&["hold", "home", "--label", "test"], &["snapshot"]),
        (&["release", "home", "--label", "test"], &["snapshot"]),
        (&["forget", "home", "--dry-run"], &["forget_verdict", "forget_sum"]),
        (&["find", "letter"], &["found"; 2]),
        (&["diff", &taken[0]["id"].as_str().unwrap()[..12], "home"], &["change"; 2]),
        (&["diff", &taken[1]["id"].as_str().unwrap()[..12], "disk.img"], &["range", "ranges"]),
        (&["restore", "home", "out"], &["restored"]),
        (&["verify"], &["verified"]),
        (&["verify", "--data"], &["verified"]),
        (&["key", "list"], &["key"]),
        (&["key", "export"], &["paper_key"]),
        (&["key", "add", "--new-key-file", "second"], &["key_made"]),
        (&["repair", "--plan"], &["repair_plan"]),
        (&["repair", "--data"], &["repaired"]),
        (&["reindex"], &["reindexed"]),
        (&["replicate", "replica", "--dry-run"], &["replication_plan"]),
        (&["replicate", "replica", "--remember"], &["replicated"]),
        (&["verify", "--replica", "replica", "--data"], &["replica_verified"]),
        (&["clone", "replica", "clone"], &["cloned"]),
        (&["copy", "--all", &own, others], &["copied"; 4]),
    ] {
        let lines = if words[0] == "copy" {
            sandbox::json_lines(&sandbox.ok([&["--json"], words].concat()))
        } else {
            sandbox.json(words)
        };
        assert_eq!(types(lines), expected, "{words:?}");
    }
    for (words, expected) in [
        (&["predict", "--disk-size", "1T"][..], "plan"),
        (&["bench", "device", &disk, "--size", "4M", "--seconds", "0.01"], "device_benchmark"),
    ] {
        assert_eq!(types(sandbox.planner().json(words)), [expected], "{words:?}");
    }
    sandbox.set_key(Some(sandbox.path("second")));
    assert_eq!(
        types(sandbox.json(["key", "change", "--new-key-file", "third"])),
        ["key_removed", "key_made"]
    );
    sandbox.set_key(Some(key));
    let keys = sandbox.json(["key", "list"]);
    let id = keys.iter().find_map(|key| key["id"].as_str().filter(|id| *id != first_key)).unwrap();
    assert_eq!(types(sandbox.json(["key", "remove", id])), ["key_removed"]);

    // Errors are objects too, and standard error is empty.
    for (code, words) in [
        (1, &["ls", "nonesuch"][..]),
        (1, &["snapshots", "nonesuch"]),
        (2, &["snapshot", "-"]),
        (2, &["ls", "--nonesuch"]),
        (10, &["key", "list"]),
    ] {
        let store = if code == 10 { sandbox.path("nowhere") } else { sandbox.store().to_path_buf() };
        let run = Run::new(sandbox.command_at(&store).arg("--json").args(words).output().unwrap());
        assert_eq!((run.code, run.stderr.as_str()), (Some(code), ""), "{words:?}");
        let lines = sandbox::all_json_lines(&run.text());
        assert_eq!(lines.len(), 1, "{words:?}");
        assert_eq!((&lines[0]["type"], &lines[0]["status"]), (&"error".into(), &code.into()), "{words:?}");
    }
    // Standard output is reserved for the bytes of the file, so the error goes to standard error.
    let run = sandbox.run(["--json", "cat", "home:nonesuch"]);
    assert_eq!((run.code, run.text().as_str()), (Some(1), ""));
    assert_eq!(types(sandbox::all_json_lines(&run.stderr)), ["error"]);
    // The problem names a file of a folder, with the bytes of its name.
    fs::remove_dir_all(sandbox.path("replica")).unwrap();
    write_at(&sandbox.arenas()[0], 100_000, &[0x55; 64]);
    let run = sandbox.run(["--json", "restore", "home", "harmed"]);
    let lines = sandbox::all_json_lines(&run.text());
    let problem = lines.iter().find(|line| line["type"] == "problem");
    let problem = problem.unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!((run.code, &problem["path_bytes"]), (Some(5), &"636166e9".into()), "{lines:?}");
}
