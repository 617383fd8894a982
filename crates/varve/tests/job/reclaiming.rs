//! `gc`: the space of forgotten snapshots comes back, and nothing else goes.

use std::fs;

use serde_json::Value;

use crate::sandbox::{Run, Sandbox, noise};

pub const MIB: usize = 1 << 20;

pub fn take(sandbox: &Sandbox, seed: u64, bytes: usize) {
    fs::write(sandbox.path("new"), noise(seed, bytes)).unwrap();
    sandbox.ok(["snapshot", "new", "--as", "file", "--name", "night"]);
}

pub fn arena_bytes(sandbox: &Sandbox) -> u64 {
    sandbox.arenas().iter().map(|file| file.metadata().unwrap().len()).sum()
}

#[test]
fn space_comes_back_once_undo_has_ended() {
    let sandbox = Sandbox::encrypted();
    for night in 1..=3 {
        take(&sandbox, night, 4 * MIB);
    }
    let full = arena_bytes(&sandbox);
    let ids = sandbox.ids();
    let nothing = sandbox.json(["gc", "--dry-run"]).remove(0);
    assert_eq!(nothing["type"], "gc_plan");
    assert!(nothing["freed_bytes"].as_u64().unwrap() < 100_000, "old catalogs at most: {nothing}");

    // The trash keeps everything.
    sandbox.ok(["forget", &ids[0]]);
    let kept = sandbox.json(["gc"]).remove(0);
    assert_eq!(kept["in_trash"], 1);
    assert!(kept["freed_bytes"].as_u64().unwrap() < 100_000, "{kept}");
    sandbox.ok(["forget", "--undo", &ids[0]]);

    sandbox.ok(["forget", "--undo-days", "0", &ids[0], &ids[1]]);
    let before = arena_bytes(&sandbox);
    let planned = sandbox.json(["gc", "--dry-run"]).remove(0);
    assert_eq!(planned["gone"].as_array().unwrap().len(), 2);
    assert_eq!(arena_bytes(&sandbox), before, "a dry run changes nothing");
    let done = sandbox.json(["gc"]).pop().unwrap();
    assert_eq!(done["type"], "gc_done");
    assert!(arena_bytes(&sandbox) < full / 2, "{} of {full} bytes are left", arena_bytes(&sandbox));
    assert_eq!(sandbox.run(["cat", "night"]).stdout, noise(3, 4 * MIB));
    assert_eq!(sandbox.json(["verify", "--data"])[0]["snapshots"], 1);
    for id in [&ids[0], &ids[0][..8]] {
        assert!(sandbox.fails(1, ["forget", "--undo", id]).contains("too late to undo"));
    }

    // A second run finds nothing, and the store goes on as before.
    let again = sandbox.json(["gc"]).remove(0);
    assert!(again["freed_bytes"].as_u64().unwrap() < 100_000, "{again}");
    take(&sandbox, 1, 4 * MIB);
    assert_eq!(sandbox.run(["cat", "night"]).stdout, noise(1, 4 * MIB), "dropped data is stored again");
    assert_eq!(sandbox.json(["verify", "--data"])[0]["snapshots"], 2);
}

#[test]
fn gc_leaves_what_would_not_pay_at_a_target() {
    let sandbox = Sandbox::encrypted();
    for night in 1..=3 {
        take(&sandbox, night, 4 * MIB);
    }
    let ids = sandbox.ids();
    sandbox.ok(["forget", "--undo-days", "0", &ids[0], &ids[1]]);
    let freed = |args: &[&str]| {
        let plan = sandbox.json([&["gc", "--dry-run"], args].concat()).remove(0);
        plan["freed_bytes"].as_u64().unwrap()
    };
    let all = freed(&[]);
    assert!(all > 7 * MIB as u64, "{all}");
    let set = |text: &str| fs::write(sandbox.store().join("targets.toml"), text).unwrap();
    set("['s3://bucket/x']\nstorage_gb_month = 0.02\n");
    assert_eq!(freed(&[]), all, "uploads for nothing pay");
    set("['s3://bucket/x']\nstorage_gb_month = 0.02\nput_1000 = 50\n");
    assert_eq!((freed(&[]), freed(&["--ignore-prices"])), (0, all));
    let printed = sandbox.ok(["gc"]);
    assert!(
        printed.contains("would not pay at the targets") && printed.contains("no arena is worth"),
        "{printed}"
    );
    set("['s3://bucket/x']\nstorage_gb_month = 0.02\nminimum_days = 90\n");
    assert_eq!((freed(&[]), freed(&["--ignore-prices"])), (0, all));
    assert!(sandbox.ok(["gc", "--dry-run"]).contains("for a minimum time anyway"));
    assert!(sandbox.ok(["stats", "--arenas"]).contains("for a minimum time anyway"));
    set("['s3://bucket/x']\nstorage_gb_month = 0.02\nminimum_day = 90\n");
    let said = sandbox.fails(1, ["gc"]);
    assert!(said.contains("minimum_day is not known here: did you mean minimum_days?"), "{said}");
    sandbox.ok(["gc", "--ignore-prices"]);
}

#[test]
fn gc_waits_for_the_minimum_time_of_objects() {
    let sandbox = Sandbox::encrypted();
    // The second one shares half of the first.
    let take = |name: &str, bytes: Vec<u8>, time: Option<&str>| {
        fs::write(sandbox.path("new"), bytes).unwrap();
        let time = time.map_or_else(Vec::new, |time| vec!["--time", time]);
        sandbox.ok([&["snapshot", "new", "--as", "file", "--name", name], &time[..]].concat());
    };
    // Each file is cut by one worker, so that its blocks are stored in order.
    let shared = noise(9, 3 * MIB);
    take("first", [noise(1, 3 * MIB), shared.clone()].concat(), Some("2020-01-01T22:00:00Z"));
    take("second", shared, Some("2020-01-02T22:00:00Z"));
    take("third", noise(3, 3 * MIB), Some("2020-01-03T22:00:00Z"));
    take("fourth", noise(4, 3 * MIB), None);
    fs::write(
        sandbox.store().join("targets.toml"),
        "['s3://bucket/x']\nstorage_gb_month = 0.02\nminimum_days = 90\n",
    )
    .unwrap();
    let freed = |args: &[&str]| {
        let plan = sandbox.json([&["gc", "--dry-run"], args].concat()).remove(0);
        // In parts of 3 MiB: where the content is cut is not known.
        (plan["freed_bytes"].as_u64().unwrap() + 3 * MIB as u64 / 2) / (3 * MIB as u64)
    };
    sandbox.ok(["forget", "--undo-days", "0", "first"]);
    assert_eq!(freed(&[]), 1);
    sandbox.ok(["gc"]);
    // One of these arenas was written anew just now, and the rest of it is dead.
    sandbox.ok(["forget", "--undo-days", "0", "second"]);
    let plan = sandbox.json(["gc", "--dry-run"]).remove(0);
    let waits = |left: &&Value| left["reason"].as_str().unwrap().contains("for a minimum time");
    let waiting = plan["left"].as_array().unwrap().iter().filter(waits);
    // Blocks at the cuts of the content may wait, too. They are smaller.
    let most = waiting.filter_map(|left| left["dead_bytes"].as_u64()).max();
    assert!(most.is_some_and(|most| most > 200_000), "{plan}");
    assert!(plan["freed_bytes"].as_u64() > Some(0), "{plan}");
    let all = sandbox.json(["gc", "--dry-run", "--ignore-prices"]).remove(0);
    assert!(all["freed_bytes"].as_u64() > plan["freed_bytes"].as_u64(), "{all}");
}

#[test]
fn gc_asks_for_foreign_roots_where_there_may_be_some() {
    let sandbox = Sandbox::made_with(&["--plaintext", "--score", "sha1"]);
    take(&sandbox, 1, MIB);
    assert!(sandbox.fails(1, ["gc", "--dry-run"]).contains("--no-foreign-roots"));
    // The list of a Venti server's catalogs says nothing of the archives of other programs.
    fs::write(sandbox.path("none"), "\n").unwrap();
    let run =
        Run::new(sandbox.command().env("VARVE_ROOTS", "none").args(["gc", "--dry-run"]).output().unwrap());
    assert!(run.code == Some(1) && run.stderr.contains("--no-foreign-roots"), "{}", run.stderr);
    assert!(sandbox.fails(2, ["gc", "--keep-roots", "none"]).contains("has no score"));
    fs::write(sandbox.path("some"), format!("{}\n", "5a".repeat(20))).unwrap();
    assert!(sandbox.fails(5, ["gc", "--keep-roots", "some"]).contains("5a5a"));
    sandbox.ok(["gc", "--no-foreign-roots"]);
    sandbox.ok(["gc", "--keep-all-roots"]);
}

#[test]
fn stats_shows_the_dead_bytes_of_each_arena() {
    let sandbox = Sandbox::encrypted();
    for night in 1..=3 {
        take(&sandbox, night, 3 * MIB);
    }
    let lines = |words: &[&str]| {
        let mut lines = sandbox.json([&["stats", "--arenas"], words].concat());
        let sum = lines.pop().unwrap();
        assert_eq!(sum["type"], "arena_use_sum");
        assert!(lines.iter().all(|line| line["type"] == "arena_use"));
        (lines, sum)
    };
    let (arenas, sum) = lines(&[]);
    assert_eq!((arenas.len(), sum["bytes"].as_u64()), (sandbox.arenas().len(), Some(arena_bytes(&sandbox))));
    assert!(sum["dead_bytes"].as_u64().unwrap() < 100_000, "{sum}");
    let last = arenas.last().unwrap();
    assert_eq!((&last["gc"], &last["dead_bytes"]), (&"leaves it: still growing".into(), &Value::Null));
    // A plan of `gc` finds the same.
    sandbox.ok(["forget", "--undo-days", "0", &sandbox.ids()[0]]);
    let (arenas, sum) = lines(&[]);
    let planned = sandbox.json(["gc", "--dry-run"]).remove(0);
    assert_eq!(sum["dead_bytes"], planned["dead_bytes"]);
    assert!(sum["dead_bytes"].as_u64().unwrap() > 2_500_000, "{sum}");
    let rewritten = planned["rewritten"].as_array().unwrap();
    let anew: Vec<_> = arenas.iter().filter(|arena| arena["gc"] == "writes it anew").collect();
    assert!(anew.len() > 1);
    assert_eq!(anew.len(), rewritten.len());
    for (arena, planned) in anew.iter().zip(rewritten) {
        assert_eq!((&arena["arena"], &arena["dead_bytes"]), (&planned["arena"], &planned["freed_bytes"]));
    }
    assert!(sandbox.ok(["stats", "--arenas"]).contains("leaves it: less than 10 % dead"));
    sandbox.fails(2, ["stats", "--no-foreign-roots"]);
}

#[test]
fn what_is_dead_is_not_known_where_other_programs_may_have_roots() {
    let sandbox = Sandbox::made_with(&["--plaintext", "--score", "sha1"]);
    take(&sandbox, 1, 3 * MIB);
    let run = sandbox.run(["stats", "--arenas"]);
    assert!(run.text().contains("what is dead is not known"), "{}", run.text());
    assert!(run.stderr.contains("--no-foreign-roots"), "{}", run.stderr);
    let sum = sandbox.json(["stats", "--arenas"]).into_iter().find(|line| line["type"] == "arena_use_sum");
    let sum = sum.unwrap();
    assert_eq!((&sum["dead_bytes"], &sum["foreign_roots_known"]), (&Value::Null, &false.into()));
    for decided in ["--no-foreign-roots", "--keep-all-roots"] {
        let sum = sandbox.json(["stats", "--arenas", decided]).pop().unwrap();
        assert!(sum["dead_bytes"].is_u64() && sum["foreign_roots_known"] == true, "{sum}");
    }
}

#[test]
fn stats_shows_what_forgetting_a_snapshot_would_free() {
    let sandbox = Sandbox::encrypted();
    for night in 1..=3 {
        take(&sandbox, night, 3 * MIB);
    }
    let lines = sandbox.json(["stats", "--snapshots"]);
    let of_type = |kind: &'static str| lines.iter().filter(move |line| line["type"] == kind).cloned();
    let own: Vec<u64> = of_type("snapshot_space").map(|line| line["own_bytes"].as_u64().unwrap()).collect();
    let expected = 3 * MIB as u64..4 * MIB as u64;
    assert!(own.len() == 3 && own.iter().all(|bytes| expected.contains(bytes)), "{own:?}");
    let name = of_type("name_space").next().unwrap();
    assert_eq!((&name["name"], &name["snapshots"]), (&"night".into(), &3.into()));
    assert_eq!(name["of_one_bytes"], own.iter().sum::<u64>());
    // No other name, and an empty trash.
    assert_eq!((&name["shared_bytes"], &name["freed_bytes"]), (&0.into(), &name["own_bytes"]));
    for (snapshot, own) in of_type("snapshot_space").zip(&own) {
        assert_eq!(snapshot["freed_bytes"], *own);
        assert!(snapshot["shared_bytes"].as_u64().unwrap() <= name["of_several_bytes"].as_u64().unwrap());
    }
    // Several workers pack the blocks of 3 MiB.
    let places = name["newest_places"].as_u64().unwrap();
    assert!((1..=8).contains(&places), "{name}");
    let gib = u128::from(name["newest_content_bytes"].as_u64().unwrap());
    assert_eq!(u128::from(name["places_per_gib"].as_u64().unwrap()), (u128::from(places) << 30) / gib);
    let sum = of_type("space_sum").next().unwrap();
    assert_eq!(sum["bytes"], arena_bytes(&sandbox));
    // A collection frees its own bytes.
    let first = sandbox.ids()[0].clone();
    sandbox.ok(["forget", &first]);
    let printed = sandbox.ok(["stats", "--snapshots"]);
    assert!(printed.contains("in the trash") && printed.contains("PLACES/GIB"), "{printed}");
    let lines = sandbox.json(["stats", "--snapshots"]);
    assert_eq!(lines[0]["freed_bytes"], Value::Null, "it is in the trash already");
    sandbox.ok(["forget", "--undo", &first]);
    sandbox.ok(["forget", "--undo-days", "0", &first]);
    let planned = sandbox.json(["gc", "--dry-run"]).remove(0);
    let dead = planned["dead_bytes"].as_u64().unwrap();
    assert!(dead.abs_diff(own[0]) < 100_000, "{dead} and {own:?}");
    sandbox.fails(2, ["stats", "--snapshots", "--arenas"]);
    assert!(sandbox.fails(1, ["stats", "--snapshots", "--memory", "1K"]).contains("--memory allows more"));
}
