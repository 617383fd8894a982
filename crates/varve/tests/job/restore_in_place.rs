//! `varve restore --in-place`, and destinations that a slash at their end changes.

use std::fs;

use crate::sandbox::{Sandbox, manifest, sparse_image};

/// A folder with an archived state, and changes after it.
fn changed() -> Sandbox {
    let sandbox = Sandbox::encrypted();
    fs::create_dir_all(sandbox.path("home/anna/drafts")).unwrap();
    for name in ["letter", "anna/thesis", "anna/drafts/one"] {
        fs::write(sandbox.path("home").join(name), name).unwrap();
    }
    sandbox.ok(["snapshot", "home"]);
    fs::write(sandbox.path("home/letter"), "spoiled by accident").unwrap();
    fs::remove_dir_all(sandbox.path("home/anna/drafts")).unwrap();
    fs::write(sandbox.path("home/new"), "written since").unwrap();
    sandbox
}

#[test]
fn a_folder_comes_back_to_its_place() {
    let sandbox = changed();
    let home = sandbox.arg("home");
    // Nothing is changed without consent.
    let before = manifest(&sandbox.path("home"));
    let refused = sandbox.fails(1, ["restore", "home", "--in-place"]);
    assert!(refused.contains(&format!("replace     {home}/letter  (")), "{refused}");
    assert!(refused.contains(&format!("create      {home}/anna/drafts/one  (")), "{refused}");
    assert!(refused.contains("but there is no terminal to ask: nothing was changed; --yes"), "{refused}");
    let planned = sandbox.ok(["restore", "home", "--in-place", "--dry-run"]);
    assert!(planned.contains("2 to create, 1 to replace"), "{planned}");
    assert_eq!(manifest(&sandbox.path("home")), before);

    let output = sandbox.ok(["restore", "home:anna", "--in-place", "--yes"]);
    assert!(
        output.starts_with("restored home:anna of ") && output.contains(&format!(" to {home}/anna: ")),
        "{output}"
    );
    assert_eq!(fs::read(sandbox.path("home/anna/drafts/one")).unwrap(), b"anna/drafts/one");
    assert_eq!(fs::read(sandbox.path("home/letter")).unwrap(), b"spoiled by accident", "it was not named");
    sandbox.ok(["restore", "home:letter", "--in-place", "--yes"]);
    assert_eq!(fs::read(sandbox.path("home/letter")).unwrap(), b"letter");
    assert_eq!(fs::read(sandbox.path("home/new")).unwrap(), b"written since");
    sandbox.ok(["restore", "home", "--in-place", "--yes"]);
    let again = sandbox.ok(["restore", "home", "--in-place"]);
    assert!(again.contains("is as the snapshot has it: nothing was changed"), "{again}");
    // A removal is asked for, too.
    sandbox.ok(["restore", "home", "--in-place", "--yes", "--delete"]);
    assert!(!sandbox.path("home/new").exists());
}

#[test]
fn a_single_file_comes_back_to_its_place() {
    let sandbox = Sandbox::encrypted();
    fs::write(sandbox.path("notes"), "first").unwrap();
    sandbox.ok(["snapshot", "notes", "--as", "file"]);
    fs::remove_file(sandbox.path("notes")).unwrap();
    sandbox.ok(["restore", "notes", "--in-place", "--yes"]);
    assert_eq!(fs::read(sandbox.path("notes")).unwrap(), b"first");
}

#[test]
fn what_has_no_place_here_is_refused() {
    let sandbox = changed();
    let refused = |words: &[&str]| sandbox.fails(2, words);
    assert!(refused(&["restore", "home"]).contains("name a destination after the snapshot; or --in-place"));
    fs::rename(sandbox.path("home"), sandbox.path("moved")).unwrap();
    let output = refused(&["restore", "home", "--in-place", "--yes"]);
    assert!(output.contains("is not there, so its file system may not be mounted"), "{output}");
    sandbox.snapshot_bytes("stream", b"bytes");
    assert!(refused(&["restore", "stream", "--in-place"]).contains("name a destination"));
    let disk = sandbox.path("disk.img");
    sparse_image(&disk, 1 << 20, &[(5000, b"bytes")]);
    sandbox.ok(["snapshot", "disk.img", "--as", "image"]);
    assert!(refused(&["restore", "disk.img", "--in-place"]).contains("only files and folders"));
    let mut command = sandbox.command();
    command.env("VARVE_HOST", "elsewhere").args(["snapshot", "moved", "--name", "far"]);
    assert!(command.status().unwrap().success());
    let output = refused(&["restore", "far", "--in-place"]);
    assert!(output.contains("far was archived on elsewhere, and this is "), "{output}");
}

/// The shell adds a slash when it completes the name of a folder.
#[test]
fn a_slash_does_not_nest_a_folder_in_itself() {
    let sandbox = changed();
    let home = format!("{}/", sandbox.arg("home"));
    let output = sandbox.fails(2, ["restore", "home", &home, "--overwrite", "if-changed"]);
    assert!(output.contains("with the slash at its end, this would make"), "{output}");
    assert!(!sandbox.path("home/home").exists());
    sandbox.ok(["restore", "home", &sandbox.arg("home/home")]);
    // It is there now, so the slash means what it says.
    sandbox.ok(["restore", "home", &home, "--overwrite", "if-changed"]);
    fs::create_dir(sandbox.path("other")).unwrap();
    sandbox.ok(["restore", "home", &format!("{}/", sandbox.arg("other"))]);
    assert!(sandbox.path("other/home/letter").exists());
}
