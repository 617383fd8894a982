//! Traces: recorded by a snapshot, made from a store, shown, and profiled.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, noise, python};

/// The disk on three days. Some of it changes each day.
fn take_three_days(sandbox: &Sandbox) {
    let mut disk = noise(1, 4 << 20);
    for day in 0..3 {
        let at = 1 << 20;
        disk[at..at + 200_000].copy_from_slice(&noise(10 + day, 200_000));
        fs::write(sandbox.path("disk"), &disk).unwrap();
        let time = format!("2026-05-0{}T23:00:00Z", day + 1);
        let words = ["snapshot", &sandbox.arg("disk"), "--as", "image", "--name", "disk", "--time", &time];
        sandbox.ok(words);
    }
}

#[test]
fn a_snapshot_is_recorded_and_its_trace_is_shown() {
    let sandbox = Sandbox::encrypted();
    let secret = noise(7, 500_000);
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/HiddenName"), &secret).unwrap();
    fs::write(sandbox.path("home/again"), &secret).unwrap();
    let (trace, home) = (sandbox.arg("home.vtrace"), sandbox.arg("home"));
    sandbox.ok(["snapshot", &home, "--trace", &trace]);
    sandbox.ok(["verify", "--data"]);

    let shown = sandbox.planner().json(["trace", "show", &trace]);
    let [header, rest @ .., end] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!((&header["type"], &header["seed"]), (&json!("trace"), &Value::Null));
    assert_eq!((&end["type"], &end["complete"]), (&json!("trace_end"), &json!(true)));
    let of = |kind: &str| -> Vec<&Value> { rest.iter().filter(|one| one["record"] == kind).collect() };
    assert_eq!(of("snapshot").len(), 1);
    assert_eq!(of("snapshot")[0]["source"], "folder");
    assert_eq!((of("open").len(), of("sync").len(), of("close").len()), (1, 1, 1));
    let data = of("put").into_iter().filter(|put| put["block_type"] == "data");
    let bytes: u64 =
        data.map(|put| put["block_count"].as_u64().unwrap() * put["block_bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, 1_000_000, "both files are put");

    let bytes = fs::read(&trace).unwrap();
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(!has(b"HiddenName") && !has(b"home"));
    assert!(secret.windows(6).step_by(101).all(|part| !has(part)));
    let lines = sandbox.planner().ok(["trace", "show", &trace]);
    assert!(lines.starts_with("recorded by varve "), "{lines}");

    // The program in Python prints the same lines.
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rosetta/vtrace.py");
    let other = python().arg(script).arg(&trace).output().unwrap();
    if other.status.success() {
        let other = String::from_utf8(other.stdout).unwrap();
        let middle: Vec<_> = other.lines().skip(1).take_while(|line| *line != "complete").collect();
        assert_eq!(middle, lines.lines().skip(1).collect::<Vec<_>>());
    }

    // An old trace is never overwritten, and the store is then not written either.
    let refused = sandbox.fails(1, ["snapshot", &home, "--trace", &trace]);
    assert!(refused.contains("cannot make"), "{refused}");
    assert_eq!(sandbox.ids().len(), 1);
    fs::write(&trace, &bytes[..bytes.len() - 30]).unwrap();
    let cut = sandbox.planner().json(["trace", "show", &trace]);
    assert_eq!(cut.last().unwrap()["complete"], false);
    fs::write(&trace, "no trace").unwrap();
    assert!(sandbox.planner().fails(1, ["trace", "show", &trace]).contains("not a trace"));
}

/// On a fresh file system a block is often followed by its equal, and that by a new one.
#[test]
fn every_disk_has_a_trace() {
    const BLOCK: usize = 16 << 10;
    let sandbox = Sandbox::encrypted();
    let (b, c) = (noise(1, BLOCK), noise(2, BLOCK));
    for (number, disk) in [vec![&b, &b, &c], vec![&c, &c, &b, &b], vec![&b, &c, &b, &c]].iter().enumerate() {
        let bytes: Vec<u8> = disk.iter().flat_map(|block| block.iter().copied()).collect();
        sandbox.snapshot_bytes(&format!("disk{number}"), &bytes);
    }
    sandbox.planner().ok(["trace", "from-store", "all.vtrace"]);
    let shown = sandbox.planner().json(["trace", "show", "all.vtrace"]);
    assert_eq!(shown.last().unwrap()["complete"], true);
    let ids: Vec<u64> = shown
        .iter()
        .filter(|record| record["record"] == "put")
        .flat_map(|put| {
            let first = put["first_id"].as_u64().unwrap();
            first..first + put["block_count"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(ids, [0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 1]);
}

/// A trace that cannot be made leaves no file that looks like one.
#[test]
fn a_trace_that_fails_leaves_no_file() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(1, 300_000));
    let arena = sandbox.arenas().pop().unwrap();
    let mut bytes = fs::read(&arena).unwrap();
    let end = bytes.len() - 1000;
    bytes[4096..end].fill(0x55);
    fs::write(&arena, bytes).unwrap();
    let before = fs::read_dir(sandbox.path("")).unwrap().count();
    let run = sandbox.planner().run(["trace", "from-store", "--read", "all.vtrace"]);
    assert_ne!(run.code, Some(0), "{}", run.text());
    assert_eq!(fs::read_dir(sandbox.path("")).unwrap().count(), before, "{}", run.stderr);
}

#[test]
fn a_profile_is_that_of_the_snapshots() {
    let sandbox = Sandbox::encrypted();
    take_three_days(&sandbox);
    let profile = |words: &[&str]| sandbox.planner().json(words)[0]["profile"].clone();
    let of_store = profile(&["trace", "profile"]);
    let count =
        |of: &Value| of.as_array().unwrap().iter().map(|one| one["count"].as_u64().unwrap()).sum::<u64>();
    let sum = |of: &Value| of.as_array().unwrap().iter().map(|one| one["sum"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(of_store["series_count"], 1);
    assert_eq!(sum(&of_store["first"]["put_bytes"]), 4 << 20);
    assert_eq!(sum(&of_store["later"]["put_bytes"]), 8 << 20);
    let changed = 13 * (16 << 10);
    assert_eq!(sum(&of_store["later"]["new_bytes"]), 2 * changed);
    assert_eq!(
        (count(&of_store["later"]["new_runs"]), sum(&of_store["later"]["new_runs"])),
        (2, 2 * changed)
    );
    assert_eq!(sum(&of_store["intervals"]), 2 * 86_400);
    assert_eq!(of_store["first"]["size_classes"][0], 4 << 20, "nothing was read");

    let trace = sandbox.arg("store.vtrace");
    assert_eq!(sandbox.planner().json(["trace", "from-store", &trace])[0]["snapshots"], 3);
    assert_eq!(profile(&["trace", "profile", &trace]), of_store, "the trace says the same");
    let read = profile(&["trace", "profile", "--read"]);
    assert_eq!(read["first"]["size_classes"][8], 4 << 20, "noise does not compress");
    let shown = sandbox.planner().ok(["trace", "profile", &trace]);
    assert!(shown.contains("3 snapshots") && shown.contains("LATER SNAPSHOTS"), "{shown}");
}

/// The history of a store is the workload of a plan.
#[test]
fn the_workload_of_a_store_is_an_input_of_a_plan() {
    let sandbox = Sandbox::encrypted();
    let none = sandbox.planner().fails(1, ["trace", "workload"]);
    assert!(none.contains("no second snapshot"), "{none}");
    take_three_days(&sandbox);
    let found = sandbox.planner().json(["trace", "workload"]);
    let workload = &found[0]["workload"];
    assert_eq!((&workload["source_bytes"], &workload["block_bytes"]), (&json!(4_194_304.0), &json!(16384)));
    assert_eq!((&workload["snapshots_per_day"], &workload["growth_per_year"]), (&json!(1.0), &json!(0.0)));
    let changed = f64::from(13 * (16 << 10)) / f64::from(4 << 20);
    assert!((workload["changed_share"].as_f64().unwrap() / changed - 1.0).abs() < 0.01, "{workload}");
    let stored = workload["stored_share"].as_f64().unwrap();
    assert!((0.95..1.1).contains(&stored), "noise does not compress: {stored}");
    let read = sandbox.planner().json(["trace", "workload", "--read"]);
    assert!(read[0]["workload"]["stored_share"].as_f64().unwrap() > 0.9, "{read:?}");

    let text = sandbox.planner().ok(["trace", "workload"]);
    assert!(text.contains("of too few days") && text.contains("3 snapshots of 2 days"), "{text}");
    assert_eq!(found[0]["text"].as_str().unwrap().trim_end(), text.trim_end());
    let (file, devices, sla) =
        (sandbox.path("workload.toml"), sandbox.path("devices.toml"), sandbox.path("sla.toml"));
    // The speed of this machine is of no interest.
    let processor = "[processor]\nput = 250e6\nduplicate = 900e6\nget = 600e6\ncompare = 350e6\n";
    fs::write(&file, format!("{text}\n{processor}")).unwrap();
    fs::write(&devices, sandbox.planner().ok(["predict", "--example", "devices"])).unwrap();
    fs::write(&sla, sandbox.planner().ok(["predict", "--example", "sla"])).unwrap();
    let [file, devices, sla] = [&file, &devices, &sla].map(|path| path.to_str().unwrap());
    let planned = sandbox.planner().ok(["predict", "--workload", file, "--devices", devices, "--sla", sla]);
    assert!(planned.contains("The cheapest design"), "{planned}");
}
