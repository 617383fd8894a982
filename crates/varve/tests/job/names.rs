//! The names of snapshots, how the program distinguishes them, and files and streams as sources.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

use crate::sandbox;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

use crate::sandbox::{Run, Sandbox, is_root, noise, sparse_image};
use serde_json::{Value, json};
use varve_archive::{Archive, SnapshotRequest};
use varve_content::Progress;
use varve_content::folder::{FolderOptions, Watch};
use varve_store::{Store, StoreAccess};
use varve_world::World;

/// Returns one field of each listed snapshot.
fn listed(sandbox: &Sandbox, args: &[&str], field: &str) -> Vec<Value> {
    let all = sandbox.json([&["snapshots"], args].concat());
    all.iter().map(|one| one[field].clone()).collect()
}

fn folder(sandbox: &Sandbox, path: &str, file: &str) -> String {
    fs::create_dir_all(sandbox.path(path)).unwrap();
    fs::write(sandbox.path(path).join(file), file).unwrap();
    sandbox.arg(path)
}

/// Archives a folder as a machine of another name.
fn from_host(sandbox: &Sandbox, host: &str, source: &str, name: &str) {
    let access = StoreAccess::Write { holder: "the test" };
    let store = Store::open(World::real(sandbox.store()), None, access, &mut |_| {}).unwrap();
    let mut archive = Archive::open(store).unwrap();
    let request = SnapshotRequest {
        name: name.into(),
        host: host.into(),
        source: source.as_bytes().to_vec(),
        ..SnapshotRequest::default()
    };
    let progress = Progress::new();
    let watch = Watch { progress: &progress, report: &|problem| panic!("{}", problem.error) };
    let options = FolderOptions { reread: true, ..FolderOptions::default() };
    archive.take_folder(Path::new(source), options, request, watch).unwrap();
    archive.close().unwrap();
}

#[test]
fn two_sources_of_one_name_are_a_usage_error() {
    let sandbox = Sandbox::encrypted();
    let (one, other) = (folder(&sandbox, "a/docs", "fa"), folder(&sandbox, "b/docs", "fb"));
    let refused = sandbox.fails(2, ["snapshot", &one, &other]);
    assert!(refused.contains("would both be called docs"), "{refused}");
    assert!(refused.contains("--name a-docs and --name b-docs"), "{refused}");
    let twice = sandbox.fails(2, ["snapshot", &one, &one]);
    assert!(twice.contains("they are the same source"), "{twice}");
    assert_eq!(sandbox.ids(), Vec::<String>::new(), "nothing is archived then");
    // File names keep their extensions, so these two differ.
    for name in ["notes.txt", "notes.pdf"] {
        fs::write(sandbox.path(name), name).unwrap();
    }
    sandbox.ok(["snapshot", "notes.txt", "notes.pdf"]);
    assert_eq!(listed(&sandbox, &[], "name"), ["notes.txt", "notes.pdf"]);
    assert_eq!(sandbox.ok(["cat", "notes.pdf"]), "notes.pdf");
}

#[test]
fn a_name_belongs_to_what_was_archived_under_it_last() {
    let sandbox = Sandbox::encrypted();
    let (one, other) = (folder(&sandbox, "a/docs", "fa"), folder(&sandbox, "b/docs", "fb"));
    sandbox.ok(["snapshot", &one]);
    let taken = sandbox.fails(1, ["snapshot", &other]);
    assert!(taken.contains("belongs to") && taken.contains("a/docs"), "{taken}");
    assert!(taken.contains("hint: --name"), "{taken}");
    // With several sources, nothing is archived if one of them is refused.
    let third = folder(&sandbox, "third", "x");
    sandbox.fails(1, ["snapshot", &third, &other]);
    assert_eq!(listed(&sandbox, &[], "name"), ["docs"]);
    // Other spellings of a path mean the same source.
    for same in ["a/docs", "a/docs/", "./a//docs", "a/../a/docs"] {
        sandbox.ok(["snapshot", same]);
    }
    std::os::unix::fs::symlink("a/docs", sandbox.path("link")).unwrap();
    sandbox.ok(["snapshot", "link"]);
    assert_eq!(listed(&sandbox, &["link"], "source"), [sandbox.arg("link")]);

    // An explicit name is accepted for a second source. A warning follows when the name alone is
    // used.
    let continued = || sandbox.run(["snapshot", &other, "--name", "docs"]).stderr;
    let said = format!("a/docs until now, and continues with {other}");
    let warned = continued();
    assert!(warned.contains("docs was a series of ") && warned.contains(&said), "{warned}");
    assert_eq!(continued(), "");
    let mixed = sandbox.run(["ls", "docs"]);
    assert_eq!((mixed.code, mixed.text().as_str()), (Some(0), "fb\n"));
    assert!(
        mixed.stderr.contains("a/docs") && mixed.stderr.contains("choose one with --path"),
        "{}",
        mixed.stderr
    );
    let quiet = sandbox.run(["-q", "ls", "docs"]);
    assert_eq!((quiet.stderr.as_str(), quiet.text().as_str()), ("", "fb\n"));
    let told = sandbox.run(["ls", "docs", "--path", "a/docs"]);
    assert_eq!((told.stderr.as_str(), told.text().as_str()), ("", "fa\n"));
    sandbox.fails(1, ["snapshot", &one]);
}

#[test]
fn a_series_that_began_without_its_ending_goes_on() {
    let sandbox = Sandbox::encrypted();
    let disk = |folder: &str| {
        fs::create_dir_all(sandbox.path(folder)).unwrap();
        sparse_image(&sandbox.path(folder).join("disk.img"), 2 << 20, &[(70_000, &noise(3, 500_000))]);
        sandbox.path(folder).join("disk.img").to_str().unwrap().to_owned()
    };
    let (old, new) = (disk("old"), disk("new"));
    // An earlier version used this name.
    sandbox.ok(["snapshot", &old, "--name", "disk", "--as", "image"]);
    let run = sandbox.run(["snapshot", &old]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("continues under its earlier name disk"), "{}", run.stderr);
    // The file is archived as a disk image because its last snapshot is one.
    assert!(run.text().contains("as a disk image") && run.text().contains(" 0 B new"), "{}", run.text());
    assert_eq!(listed(&sandbox, &[], "name"), ["disk", "disk"]);
    // Another path starts another series, under the whole file name.
    let taken = sandbox.json(["snapshot", &new]).remove(0);
    assert_eq!((&taken["name"], &taken["kind"]), (&json!("disk.img"), &json!("file")));
    assert!(taken["kind_because"].as_str().unwrap().contains("no partition table"), "{taken}");
    // A name that was given once stays the name of the series.
    sandbox.ok(["snapshot", &old, "--name", "disk.img"]);
    assert_eq!(sandbox.json(["snapshot", &old])[0]["name"], "disk.img");
}

#[test]
fn hosts_are_told_apart() {
    let sandbox = Sandbox::made_with(&["--plaintext"]);
    let etc = folder(&sandbox, "etc", "passwd");
    from_host(&sandbox, "web1", &etc, "etc");
    fs::write(sandbox.path("etc/shadow"), "s").unwrap();
    from_host(&sandbox, "web2", &etc, "etc");

    let table = sandbox.ok(["snapshots"]);
    assert!(table.contains("web1") && table.contains("web2") && table.contains(&etc), "{table}");
    let run = sandbox.run(["ls", "etc"]);
    assert_eq!(run.text(), "passwd\nshadow\n");
    assert!(run.stderr.contains("web1") && run.stderr.contains("HOST:etc"), "{}", run.stderr);
    for (args, expected) in [
        (&["ls", "web1:etc"][..], "passwd\n"),
        (&["ls", "web2:etc"], "passwd\nshadow\n"),
        (&["ls", "etc", "--host", "web1"], "passwd\n"),
        (&["cat", "web1:etc:passwd"], "passwd"),
        (&["cat", "web2:etc@2200-01-01T10:30:shadow"], "s"),
        (&["cat", "web1:etc@2200-01-01:passwd"], "passwd"),
        (&["find", "shadow", "web1:etc"], ""),
        (&["diff", "web1:etc", "web2:etc"], "M .\n+ shadow\n"),
    ] {
        let run = sandbox.run(args);
        // The sums of differences go to standard error.
        let is_quiet = args[0] == "diff" || run.stderr.is_empty();
        assert!(run.code == Some(0) && is_quiet, "{args:?}: {}", run.stderr);
        if args[0] != "diff" {
            assert_eq!(run.text(), expected, "{args:?}");
        } else {
            assert!(run.text().contains("+ shadow"), "{}", run.text());
        }
    }
    assert_eq!(listed(&sandbox, &["web2:etc"], "host"), ["web2"]);
    assert!(sandbox.fails(1, ["ls", "web3:etc"]).contains("no snapshot is called"));
    // A third machine begins a series of its own, without a question.
    let third = sandbox.run(["snapshot", &etc]);
    assert_eq!((third.code, third.stderr.as_str()), (Some(0), ""));
    // A snapshot whose name equals a host name has priority.
    from_host(&sandbox, "web1", &etc, "web2");
    let ambiguous = sandbox.fails(1, ["ls", "web2:etc"]);
    assert!(ambiguous.contains("there is no etc"), "{ambiguous}");
}

#[test]
fn snapshots_are_filtered_grouped_and_tagged() {
    let sandbox = Sandbox::made_with(&["--plaintext"]);
    let (home, etc) = (folder(&sandbox, "home", "letter"), folder(&sandbox, "etc", "passwd"));
    let night = |source: &str, day: &str, tag: &str| {
        sandbox.ok(["snapshot", source, "--time", day, "--tag", tag, "--comment", "a night"]);
    };
    night(&home, "2026-05-01T23:00", "why=nightly");
    night(&etc, "2026-05-01T23:05", "why=nightly");
    night(&home, "2026-05-02T23:00", "why=upgrade");
    night(&home, "2026-05-03T23:00", "keep=always");
    let times = |args: &[&str]| -> Vec<String> {
        let times = listed(&sandbox, args, "time");
        times.iter().map(|time| time.as_str().unwrap()[8..10].to_owned()).collect()
    };
    for (args, days) in [
        (&["home"][..], &["01", "02", "03"][..]),
        (&["home", "--since", "2026-05-02"], &["02", "03"]),
        (&["--until", "2026-05-01"], &["01", "01"]),
        (&["--until", "2026-05-01T23:04"], &["01"]),
        (&["--tag", "why"], &["01", "01", "02"]),
        (&["--tag", "why=upgrade"], &["02"]),
        (&["--tag", "why=upgrade", "--tag", "keep"], &[]),
        (&["--path", "etc"], &["01"]),
        (&["--host", "nobody"], &[]),
        (&["--latest", "1"], &["01", "03"]),
        (&["home", "--latest", "2"], &["02", "03"]),
        (&["--latest", "1", "--until", "2026-05-02"], &["01", "02"]),
        (&["latest"], &["03"]),
        (&["home@2026-05-02"], &["02"]),
    ] {
        assert_eq!(times(args), days, "{args:?}");
    }
    assert!(sandbox.fails(1, ["snapshots", "NONESUCH"]).contains("no snapshot is called \"NONESUCH\""));
    assert!(sandbox.fails(1, ["ls", "latest", "--host", "nobody"]).contains("matches the conditions"));
    let groups = sandbox.ok(["snapshots", "--group-by", "name,path"]);
    let titles: Vec<_> = groups.lines().filter(|line| line.starts_with("name ")).collect();
    assert_eq!(titles, [format!("name etc, path {etc}:"), format!("name home, path {home}:")]);
    // The filters also apply to commands that pick or search snapshots.
    assert!(sandbox.ok(["find", "letter", "--tag", "keep"]).contains("2026-05-03"));
    assert_eq!(sandbox.ok(["find", "letter", "--until", "2026-04-30"]), "");
    assert_eq!(sandbox.ok(["cat", "latest:passwd", "--path", "etc"]), "passwd");

    let table = sandbox.ok(["snapshots", "home"]);
    assert!(table.contains("\"a night\"") && table.contains("keep=always"), "{table}");
    let changed = sandbox.ok([
        "tag",
        "home@2026-05-01",
        "home",
        "--remove",
        "why",
        "--set",
        "keep=year",
        "--add",
        "who=me",
        "--comment",
        "two",
    ]);
    assert_eq!(changed.matches("keep=year who=me \"two\"").count(), 2, "{changed}");
    assert_eq!(times(&["--tag", "keep=always"]), [""; 0]);
    assert_eq!(times(&["--tag", "keep=year"]), ["01", "03"]);
    let same = sandbox.json(["tag", "home", "--add", "who=me"]).remove(0);
    assert_eq!((&same["changed"], &same["type"]), (&json!(false), &json!("snapshot")));
    assert!(sandbox.ok(["tag", "home", "--comment", ""]).contains("keep=year who=me"));
    assert_eq!(listed(&sandbox, &["latest"], "comment"), [""]);
    assert!(sandbox.fails(2, ["tag", "home"]).contains("--add"));
    assert!(sandbox.fails(1, ["tag", "nothing", "--add", "a=b"]).contains("no snapshot is called"));
    assert!(sandbox.fails(1, ["tag", "home", "--add", "vac=00"]).contains("vac"));
    assert_eq!(sandbox.json(["verify"])[0]["snapshots"], 4);
}

#[test]
fn only_a_full_key_changes_tags() {
    let mut sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(1, 10_000));
    sandbox.add_limited_keys();
    let full = sandbox.key().map(Path::to_path_buf);
    for key in ["writer", "adder"] {
        sandbox.set_key(Some(sandbox.path(key)));
        let run = sandbox.run(["tag", "disk", "--add", "keep=always"]);
        assert!(matches!(run.code, Some(1 | 12)), "{key}: {:?} {}", run.code, run.stderr);
    }
    sandbox.set_key(full);
    assert_eq!(listed(&sandbox, &[], "tags"), [json!([])]);
    sandbox.ok(["tag", "disk", "--add", "keep=always"]);
    // A tag of the full key and a snapshot of a write-only key both stay.
    let full = sandbox.key().map(Path::to_path_buf);
    sandbox.set_key(Some(sandbox.path("writer")));
    sandbox.snapshot_bytes("tonight", b"from a write-only machine");
    sandbox.set_key(full);
    sandbox.ok(["tag", "tonight", "--set", "keep=day"]);
    assert_eq!(listed(&sandbox, &[], "tags"), [json!(["keep=always"]), json!(["keep=day"])]);
    assert_eq!(sandbox.ok(["cat", "tonight"]), "from a write-only machine");
}

#[test]
fn a_file_by_itself_is_a_file() {
    let sandbox = Sandbox::encrypted();
    let file = sandbox.path("hostname");
    fs::write(&file, noise(5, 300_000)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&file, Some(1000), Some(1001)).unwrap();
    }
    let modified = std::time::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 123_456_789);
    fs::File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
    let taken = sandbox.ok(["snapshot", "hostname"]);
    assert!(taken.contains("as a file: no partition table"), "{taken}");
    let row = sandbox.json(["snapshots"]).remove(0);
    assert_eq!((&row["kind"], &row["size"], &row["entries"]), (&json!("file"), &json!(300_000), &json!(1)));

    sandbox.ok(["restore", "hostname", "back"]);
    let (before, after) = (fs::metadata(&file).unwrap(), fs::metadata(sandbox.path("back")).unwrap());
    let shown = |of: &fs::Metadata| (of.mode(), of.uid(), of.gid(), of.mtime(), of.mtime_nsec(), of.len());
    assert_eq!(shown(&after), shown(&before));
    assert!(fs::read(sandbox.path("back")).unwrap() == noise(5, 300_000));
    fs::create_dir(sandbox.path("there")).unwrap();
    sandbox.ok(["restore", "hostname", "there/"]);
    assert!(sandbox.path("there/hostname").is_file());

    assert!(sandbox.run(["cat", "hostname"]).stdout == noise(5, 300_000));
    assert_eq!(sandbox.ok(["ls", "hostname"]), "hostname\n");
    assert!(sandbox.ok(["ls", "-l", "hostname"]).starts_with("-rw-r-----"));
    assert!(sandbox.ok(["find", "host*"]).contains("hostname  hostname"));
    assert_eq!(sandbox.json(["ls", "hostname:hostname"])[0]["size"], 300_000, "as earlier versions show it");
    assert!(sandbox.fails(1, ["ls", "hostname:etc"]).contains("not a folder"));

    // An unchanged file is not read again, and snapshots of files can be compared.
    assert_eq!(
        sandbox.json(["snapshot", "hostname"])[0]["new_bytes"].as_u64().map(|new| new < 2000),
        Some(true)
    );
    assert_eq!(sandbox.ok(["diff", "hostname", "hostname"]), "");
    let ids = sandbox.ids();
    fs::write(&file, noise(6, 300_000)).unwrap();
    sandbox.ok(["snapshot", "hostname"]);
    assert!(!sandbox.ok(["diff", &ids[0], "hostname"]).is_empty());
    assert!(sandbox.ok(["verify", "--data"]).contains("all is well: 3 snapshots"));
    // A file that cannot be read gives no snapshot.
    assert!(sandbox.fails(1, ["snapshot", "absent"]).contains("absent"));
    if !is_root() {
        fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
        sandbox.fails(1, ["snapshot", "hostname"]);
    }
    assert_eq!(sandbox.ids().len(), 3);
}

#[test]
fn what_a_file_holds_decides_unless_it_is_said() {
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("text"), "just text").unwrap();
    // The signature of a partition table, and one partition in it.
    let mut disk = vec![0; 1 << 20];
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&64_u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&1024_u32.to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(sandbox.path("disk"), &disk).unwrap();
    let kind = |args: &[&str]| sandbox.json([&["snapshot"], args].concat())[0]["kind"].clone();
    assert_eq!([kind(&["text"]), kind(&["disk"])], ["file", "image"]);
    assert_eq!([kind(&["text", "--as", "image"]), kind(&["disk", "--as", "file"])], ["image", "file"]);
    assert!(sandbox.ok(["snapshot", "disk"]).contains("as a disk image: it holds a partition table (MBR)"));
    // A source that was archived as an image stays one.
    assert!(sandbox.ok(["snapshot", "text"]).contains("its newest snapshot is one of a disk image"));
    fs::create_dir(sandbox.path("folder")).unwrap();
    assert!(sandbox.fails(2, ["snapshot", "folder", "--as", "file"]).contains("--as"));
    assert!(sandbox.fails(2, ["snapshot", "text", "--as", "file", "--format", "raw"]).contains("--format"));
    assert!(
        sandbox.fails(1, ["snapshot", "/proc/self/status", "--as", "file"]).contains("reports a size of 0")
    );
    assert_eq!(sandbox.ok(["cat", "text"]), "just text");
}

#[test]
fn only_the_whole_output_of_a_program_is_archived() {
    let sandbox = Sandbox::encrypted();
    let command =
        |name: &str, script: &str| sandbox.run(["snapshot", "--command", name, "--", "sh", "-c", script]);
    let done = command("db.sql", "echo dump; echo a warning >&2");
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), "a warning\n"));
    let row = sandbox.json(["snapshots"]).remove(0);
    assert_eq!(
        (&row["kind"], &row["source"], &row["size"]),
        (&json!("file"), &json!("command:sh"), &json!(5))
    );
    assert_eq!(sandbox.ok(["cat", "db.sql"]), "dump\n");
    sandbox.ok(["restore", "db.sql", "out"]);
    assert_eq!(fs::metadata(sandbox.path("out")).unwrap().permissions().mode() & 0o777, 0o600);

    for (script, why) in [
        ("echo part; exit 3", "exit status: 3"),
        ("echo part; kill -9 $$", "signal: 9"),
        ("exit 0", "the output of sh is closed or empty"),
    ] {
        let failed = command("db.sql", script);
        assert_eq!(failed.code, Some(1), "{script}");
        assert!(failed.stderr.contains(why), "{script}: {}", failed.stderr);
    }
    assert_eq!(command("db.sql", "test -z \"$VARVE_PASSPHRASE\"").code, Some(1), "nothing comes of it");
    assert_eq!(sandbox.ok(["cat", "db.sql"]), "dump\n");
    assert_eq!(sandbox.ids().len(), 1);
    assert!(
        sandbox.fails(1, ["snapshot", "--command", "x", "--", "/no/such/program"]).contains("cannot start")
    );
    sandbox.fails(2, ["snapshot", "--command", "x"]);
    sandbox.ok(["snapshot", "--command", "none", "--allow-empty", "--", "true"]);
    assert_eq!(sandbox.ok(["cat", "none"]), "");
    // The output of a program becomes an image on request.
    let image =
        sandbox.json(["snapshot", "--as", "image", "--command", "raw", "--", "echo", "bytes"]).remove(0);
    assert_eq!(image["kind"], "image");
    sandbox.ok(["verify", "--data"]);
}

#[test]
fn standard_input_that_has_nothing_is_refused() {
    let sandbox = Sandbox::encrypted();
    let piped = |args: &[&str], bytes: &[u8]| {
        let mut command = sandbox.command();
        command.args(["--json", "snapshot", "-", "--name", "db"]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        Run::new(child.wait_with_output().unwrap())
    };
    for args in [&[][..], &["--as", "file"]] {
        let run = piped(args, b"");
        assert_eq!(run.code, Some(1));
        assert!(run.complaints().contains("closed or empty"), "{}", run.text());
    }
    assert_eq!(sandbox.ids(), Vec::<String>::new());
    let kind = |run: Run| sandbox::json_lines(&run.text()).remove(0)["kind"].clone();
    assert_eq!(kind(piped(&["--allow-empty"], b"")), "image");
    assert_eq!(kind(piped(&["--as", "file"], b"dump")), "file");
    assert_eq!(sandbox.ok(["cat", "db"]), "dump");
}
