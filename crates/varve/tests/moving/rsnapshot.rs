//! Folders of the real rsnapshot, and folders with dates.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::changing_folder::{DAYS, change, checksums, copy, differences, has_all, make, text};
use crate::sandbox::{Sandbox, tool};

#[test]
fn every_day_of_rsnapshot_is_imported() {
    if !has_all(&["rsnapshot", "rsync"]) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let (home, root) = (sandbox.path("home"), sandbox.path("rsnapshot"));
    fs::create_dir(&root).unwrap();
    let config = format!(
        "config_version\t1.2\nsnapshot_root\t{}/\nno_create_root\t1\ncmd_rsync\t/usr/bin/rsync\ninterval\tdaily\t3\n\
         rsync_short_args\t-aHAX\nlink_dest\t1\nlockfile\t{}\nbackup\t{}/\tlocalhost/\n",
        root.display(),
        sandbox.arg("rsnapshot.pid"),
        home.display()
    );
    fs::write(sandbox.path("rsnapshot.conf"), config).unwrap();
    make(&home);
    let run = |day: u64| {
        let status =
            Command::new("rsnapshot").arg("-c").arg(sandbox.path("rsnapshot.conf")).arg("daily").status();
        assert!(status.unwrap().success());
        tool("touch", ["-d", &format!("2025-06-0{} 03:00:00", day + 1), &text(root.join("daily.0"))]);
    };
    let import = || sandbox.ok(["import", "rsnapshot", &text(root.clone()), "--by-mtime", "--name", "home"]);
    for day in 0..3 {
        if day > 0 {
            change(&home, day);
        }
        run(day);
    }
    let before = checksums(&root);
    let told = sandbox.fails(1, ["import", "rsnapshot", &text(root.clone())]);
    assert!(told.contains("--by-mtime"), "{told}");
    import();
    assert_eq!(checksums(&root), before);
    let listed = sandbox.json(["snapshots"]);
    assert_eq!(listed.len(), 3);
    assert!(listed[1]["new_bytes"].as_u64().unwrap() < 400_000, "{}", listed[1]);
    for (place, id) in sandbox.ids().iter().enumerate() {
        let ours = sandbox.arg(&format!("ours-{place}"));
        sandbox.ok(["restore", id, &ours]);
        assert_eq!(differences(&root.join(format!("daily.{}", 2 - place)), Path::new(&ours)), "", "{place}");
    }

    // The folders are renamed, and the oldest is removed. Only the new ones are imported.
    for day in 3..DAYS {
        change(&home, day);
        run(day);
    }
    let text = import();
    assert!(text.contains("1 snapshot imported before"), "{text}");
    let listed = sandbox.json(["snapshots"]);
    assert_eq!(listed.len(), 5);
    assert!(listed[3]["new_bytes"].as_u64().unwrap() < 400_000, "known from an earlier run: {}", listed[3]);
    let ours = sandbox.arg("ours-new");
    sandbox.ok(["restore", "home", &ours]);
    assert_eq!(differences(&root.join("daily.0"), Path::new(&ours)), "");
}

#[test]
fn folders_with_dates_are_snapshots() {
    if !has_all(&["rsync"]) {
        return;
    }
    let sandbox = Sandbox::encrypted();
    let (home, root) = (sandbox.path("home"), sandbox.path("dated"));
    make(&home);
    copy(&home, &root.join("2025-06-01_0300"));
    change(&home, 1);
    copy(&home, &root.join("2025-06-02_0300"));
    fs::create_dir(root.join("_delete.1234")).unwrap();
    fs::write(root.join("log"), b"").unwrap();
    let run = sandbox.run(["import", "rsnapshot", "dated"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("_delete.1234") && run.stderr.contains("log"), "{}", run.stderr);
    let listed = sandbox.json(["snapshots"]);
    let times: Vec<_> = listed.iter().map(|one| one["time"].as_str().unwrap()).collect();
    assert_eq!(times, ["2025-06-01T03:00:00Z", "2025-06-02T03:00:00Z"]);
    sandbox.ok(["restore", "dated", "ours"]);
    assert_eq!(differences(&home, &sandbox.path("ours")), "");
}
