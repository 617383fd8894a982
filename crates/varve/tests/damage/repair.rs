//! Damaged data is named in a report. The next snapshot heals it, a copy supplies it, or a repair
//! removes it and leaves its neighbours as they are.

use crate::sandbox;
use crate::venti_server;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sandbox::{Run, Sandbox, copy_folder, noise, write_at};
use crate::venti_server::Server;
use serde_json::{Value, json};

/// Overwrites some bytes in the middle of a file, as bad sectors would.
fn damage_middle(path: &Path) {
    let middle = fs::metadata(path).unwrap().len() / 2;
    write_at(path, middle, &noise(middle, 600));
}

fn verify(sandbox: &Sandbox, code: i32) -> Value {
    let run = sandbox.run(["verify", "--data", "--json"]);
    assert_eq!(run.code, Some(code), "{}{}", run.text(), run.stderr);
    run.result()
}

fn harm_count(report: &Value) -> usize {
    report["harm"].as_array().unwrap().len()
}

/// Every file of a store except its hints and its lock.
fn contents(sandbox: &Sandbox) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in ["", "arenas", "keys"] {
        for entry in fs::read_dir(sandbox.store().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && path.file_name().unwrap() != "lock" {
                found.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn the_next_night_heals_an_image() {
    let sandbox = Sandbox::encrypted();
    let disk = noise(1, 6 << 20);
    sandbox.snapshot_bytes("disk", &disk);
    let first = sandbox.ids().remove(0);
    for arena in &sandbox.arenas()[..3] {
        damage_middle(arena);
    }
    let report = verify(&sandbox, 5);
    assert!(harm_count(&report) > 0, "{report}");
    assert_ne!(sandbox.run(["cat", &first]).code, Some(0), "what is damaged is never returned as data");

    sandbox.snapshot_bytes("disk", &disk);
    let healed = verify(&sandbox, 5);
    assert_eq!(harm_count(&healed), 0, "{healed}");
    assert!(!healed["damage"].as_array().unwrap().is_empty(), "the damaged copies are still there");
    assert!(sandbox.run(["cat", &first]).stdout == disk);

    sandbox.ok(["repair"]);
    verify(&sandbox, 0);
    assert!(sandbox.run(["cat", &first]).stdout == disk);
    assert_eq!(sandbox.ids().len(), 2);
    let again = sandbox.snapshot_bytes("disk", &disk);
    assert_eq!(again["new_bytes"].as_u64(), Some(0), "what was healed is known again");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a file is trusted to keep still only some time after its last change"
)]
fn the_next_night_heals_files_that_have_not_changed() {
    let sandbox = Sandbox::encrypted();
    let home = sandbox.path("home");
    fs::create_dir_all(home.join("deep")).unwrap();
    for number in 0..60 {
        fs::write(home.join(format!("deep/file-{number}")), noise(number, 90_000)).unwrap();
    }
    fs::write(home.join("large"), noise(99, 3 << 20)).unwrap();
    // The next snapshot reads files again that have just been written. These files are old.
    sandbox::tool("find", [home.to_str().unwrap(), "-exec", "touch", "-d", "2020-01-01", "{}", "+"]);
    std::thread::sleep(std::time::Duration::from_millis(2200));
    sandbox.ok(["snapshot", "home"]);
    let first = sandbox.ids().remove(0);
    for arena in sandbox.arenas().iter().step_by(2) {
        damage_middle(arena);
    }
    assert!(harm_count(&verify(&sandbox, 5)) > 0);
    let before = sandbox::manifest(&home);
    sandbox.ok(["snapshot", "home"]);
    let healed = verify(&sandbox, 5);
    assert_eq!(harm_count(&healed), 0, "{healed}");
    sandbox.ok(["restore", &first, &sandbox.arg("back")]);
    assert_eq!(sandbox::manifest(&sandbox.path("back")), before);
}

#[test]
fn what_is_lost_is_fetched_from_a_copy() {
    for words in [&[][..], &["--plaintext"], &["--score", "sha1"]] {
        let sandbox = Sandbox::made_with(words);
        let disk = noise(2, 7 << 20);
        sandbox.snapshot_bytes("disk", &disk);
        let copy = sandbox.path("copy");
        copy_folder(sandbox.store(), &copy);
        for (number, arena) in sandbox.arenas().iter().enumerate() {
            match number % 4 {
                0 => damage_middle(arena),
                1 => write_at(arena, 100, &[0xff; 8]),
                2 => fs::remove_file(arena).unwrap(),
                _ => {}
            }
        }
        // The arenas whose middle is damaged look intact from outside, so `--data` is needed.
        let run = sandbox.run(["repair", "--data", "--from", copy.to_str().unwrap()]);
        assert_eq!(run.code, Some(0), "{words:?}: {}{}", run.text(), run.stderr);
        verify(&sandbox, 0);
        let cat = sandbox.run(["cat", "disk"]);
        assert!(cat.stdout == disk, "{words:?}: {} bytes, {}", cat.stdout.len(), cat.stderr);
        assert_eq!(sandbox.snapshot_bytes("disk", &disk)["new_bytes"].as_u64(), Some(0));
    }
}

fn repair_from_replica(sandbox: &Sandbox) -> Value {
    let run = sandbox.run(["repair", "--from", "replica", "--json"]);
    assert_eq!(run.code, Some(0), "{}{}", run.text(), run.stderr);
    run.result()
}

/// The lost arenas are known, so `repair` reads nothing else. The log is afterwards the same as
/// before, so the replica still belongs to it.
#[test]
fn a_lost_arena_is_taken_from_a_replica_as_it_was() {
    let sandbox = Sandbox::encrypted();
    let disk = noise(9, 7 << 20);
    sandbox.snapshot_bytes("disk", &disk);
    sandbox.ok(["replicate", "replica"]);
    let before = contents(&sandbox);
    let arenas = sandbox.arenas();
    fs::remove_file(&arenas[1]).unwrap();
    write_at(&arenas[3], 20, b"XX");
    let damaged = contents(&sandbox);
    let plan = sandbox.run(["repair", "--plan", "--from", "replica", "--json"]).result();
    let ways = json!([{ "way": "copy", "from": "replica" }, { "way": "rewrite" }]);
    for (planned, number) in plan["planned"].as_array().unwrap().iter().zip([1, 3]) {
        assert_eq!((&planned["arena"], &planned["ways"]), (&json!(number), &ways), "{plan}");
    }
    assert!(contents(&sandbox) == damaged, "a plan changes nothing");
    let report = repair_from_replica(&sandbox);
    assert_eq!(report["planned"], plan["planned"], "what was planned was done");
    assert_eq!(report["copied"], json!([1, 3]), "{report}");
    assert_eq!((&report["all_checked"], &report["fetched_blocks"]), (&Value::Bool(false), &Value::from(0)));
    for arena in &arenas[..4] {
        assert!(fs::read(arena).unwrap() == before[arena], "{}", arena.display());
    }
    verify(&sandbox, 0);
    assert!(sandbox.run(["cat", "disk"]).stdout == disk);
    sandbox.snapshot_bytes("second", b"and it goes on");
    sandbox.ok(["replicate", "replica"]);
}

/// A failed read or a check has named the lost blocks. `repair` fetches only these, and does not
/// look for damage that is not known yet.
#[test]
fn what_is_known_to_be_lost_is_mended_and_no_more() {
    let sandbox = Sandbox::encrypted();
    let disk = noise(10, 7 << 20);
    sandbox.snapshot_bytes("disk", &disk);
    sandbox.ok(["replicate", "replica"]);
    let arenas = sandbox.arenas();
    damage_middle(&arenas[2]);
    verify(&sandbox, 5);
    damage_middle(&arenas[4]);
    let plan = sandbox.run(["repair", "--plan", "--from", "replica", "--json"]).result();
    let report = repair_from_replica(&sandbox);
    assert_eq!((&plan["planned"], &plan["arenas"]), (&report["planned"], &report["arenas"]));
    assert_eq!(plan["fetches"], report["fetches"], "what the replica supplies is planned");
    assert_eq!(plan["fetches"][0]["blocks"], report["fetched_blocks"], "{plan}");
    assert_eq!(report["all_checked"], Value::Bool(false), "{report}");
    assert_eq!(report["arenas"].as_array().unwrap().len(), 1, "{report}");
    assert!(report["fetched_blocks"].as_u64().unwrap() > 0, "{report}");
    let left = verify(&sandbox, 5);
    assert!(left["damage"].as_array().unwrap().iter().all(|damage| damage["arena"] == 4), "{left}");
    // The remaining damage is now known, too. After this repair no damage is known, so the next
    // repair reads everything.
    assert_eq!(repair_from_replica(&sandbox)["all_checked"], Value::Bool(false));
    verify(&sandbox, 0);
    assert!(sandbox.run(["cat", "disk"]).stdout == disk);
    damage_middle(&sandbox.arenas()[0]);
    assert_eq!(repair_from_replica(&sandbox)["all_checked"], Value::Bool(true));
    verify(&sandbox, 0);
}

/// A copy of an arena that is incomplete, or that has other contents at the damaged place, is not
/// put in place.
#[test]
fn a_damaged_copy_of_an_arena_is_not_taken() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(11, 5 << 20));
    let copy = sandbox.path("copy");
    copy_folder(sandbox.store(), &copy);
    let arena = sandbox.arenas().remove(1);
    fs::remove_file(&arena).unwrap();
    damage_middle(&copy.join("arenas").join(arena.file_name().unwrap()));
    let run = sandbox.run(["repair", "--json", "--from", copy.to_str().unwrap()]);
    let report: Value = run.result();
    assert_eq!((run.code, report["copied"].as_array().unwrap().len()), (Some(5), 0), "{report}");
    assert!(report["fetched_blocks"].as_u64().unwrap() > 0, "what is good in it is fetched: {report}");
    assert!(harm_count(&report) > 0, "{report}");
    assert_eq!(verify(&sandbox, 5)["damage"].as_array().unwrap().len(), 0, "the log is sound again");
}

#[test]
fn a_lost_catalog_is_put_together_from_older_ones() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("first", &noise(5, 2 << 20));
    sandbox.snapshot_bytes("second", &noise(6, 2 << 20));
    // The newest catalog is at the end of the log. Nothing else there matters to the first
    // snapshot.
    let last = sandbox.arenas().pop().unwrap();
    let bytes = fs::metadata(&last).unwrap().len();
    write_at(&last, 512, &vec![0; usize::try_from(bytes - 512).unwrap()]);
    let run = sandbox.run(["repair"]);
    assert!(run.code.is_some(), "{}", run.stderr);
    assert!(!sandbox.ids().is_empty());
    assert!(sandbox.run(["cat", "first"]).stdout == noise(5, 2 << 20));
    sandbox.snapshot_bytes("third", b"and it goes on");
    assert_eq!(sandbox.ok(["cat", "third"]), "and it goes on");
}

#[test]
fn an_audit_is_spread_over_nights() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(7, 6 << 20));
    let night = |words: &[&str]| -> Value {
        let run = sandbox.run([&["verify", "--json"], words].concat());
        run.result()
    };
    assert_eq!(night(&[])["arenas_read"], 0);
    let arena_count = night(&["--share", "1%"])["arenas"].as_u64().unwrap();
    let mut nights = 1;
    while night(&["--share", "1%", "--since", "1h"])["all_read_since"].is_null() {
        nights += 1;
        assert!(nights <= arena_count, "each night reads another arena");
    }
    assert!(nights >= 3, "{nights} nights");
    let arenas = sandbox.arenas();
    damage_middle(&arenas[0]);
    assert_eq!(
        night(&["--since", "1h", "--share", "1%"])["damage"].as_array().unwrap().len(),
        0,
        "read before"
    );
    assert!(harm_count(&night(&["--data"])) > 0);
    assert!(harm_count(&night(&[])) > 0, "what was found is remembered");
    assert!(harm_count(&night(&["--share", "1%"])) > 0);
}

/// The exit status that reports damage or loss.
const DAMAGE: i32 = 5;

/// A store that another program has filled, so no catalog names its blocks. Also returns the path
/// of the file with their root score.
fn filled_by_others(words: &[&str], file_count: u64) -> (Sandbox, String) {
    let sandbox = Sandbox::made_with(&[&["--plaintext", "--score", "sha1"], words].concat());
    let tree = sandbox.path("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    for number in 0..file_count {
        fs::write(tree.join(format!("below/file-{number:02}")), noise(number + 50, 120_000)).unwrap();
    }
    fs::write(tree.join("small"), "a small file\n").unwrap();
    let (other, vac) = (sandbox.path("other"), sandbox.arg("tree.vac"));
    for words in [&["init", "--plaintext", "--score", "sha1"][..], &["snapshot", "tree", "--vac", &vac]] {
        let made = sandbox.command_at(&other).args(words).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    store_again(&sandbox, &vac);
    (sandbox, vac)
}

/// Puts every block again, as a second run of vac does.
fn store_again(sandbox: &Sandbox, vac: &str) {
    sandbox.ok(["copy", &sandbox.arg("other"), vac, sandbox.store().to_str().unwrap()]);
}

fn lost_names(report: &Value) -> Vec<String> {
    let blocks = report["lost"]["blocks"].as_array().unwrap();
    blocks.iter().map(|block| block["score"].as_str().unwrap().to_owned()).collect()
}

/// Runs `verify` without reading the data, and returns its result.
fn verify_lightly(sandbox: &Sandbox, code: i32) -> Value {
    let run = sandbox.run(["verify", "--json"]);
    assert_eq!(run.code, Some(code), "{}{}", run.text(), run.stderr);
    serde_json::from_slice(&run.stdout).unwrap()
}

#[test]
fn lost_blocks_that_no_catalog_names_stay_known_until_they_are_stored_again() {
    let (sandbox, vac) = filled_by_others(&[], 24);
    sandbox.ok(["verify", &vac]);
    damage_middle(&sandbox.arenas()[0]);
    let lost = lost_names(&verify(&sandbox, DAMAGE));
    assert!(!lost.is_empty());
    assert_eq!(lost_names(&verify_lightly(&sandbox, DAMAGE)), lost, "found once, known from then on");

    let plan = sandbox.run(["repair", "--plan"]);
    assert!(plan.code == Some(DAMAGE) && plan.text().contains(&lost[0]), "{}", plan.text());
    let repaired = sandbox.run(["repair"]);
    assert_eq!(repaired.code, Some(DAMAGE), "{}", repaired.text());
    let is_called_well = ["whole", "all known damage"].iter().any(|text| repaired.text().contains(text));
    assert!(repaired.text().contains(&lost[0]) && !is_called_well, "{}", repaired.text());
    // The log itself records the loss. It does not depend on a hint.
    fs::remove_dir_all(sandbox.store().join("index")).unwrap();
    for _ in 0..2 {
        let report = verify(&sandbox, DAMAGE);
        assert_eq!(lost_names(&report), lost);
        assert_eq!(report["damage"].as_array().unwrap().len(), 0, "the log is sound again");
        assert_eq!(lost_names(&verify_lightly(&sandbox, DAMAGE)), lost);
    }
    // The loss stays on record after a new catalog, and after another repair.
    sandbox.snapshot_bytes("disk", &noise(7, 100_000));
    assert_eq!(lost_names(&verify_lightly(&sandbox, DAMAGE)), lost);
    assert_eq!(sandbox.run(["repair", "--data"]).code, Some(DAMAGE));
    assert_eq!(lost_names(&verify_lightly(&sandbox, DAMAGE)), lost);
    let copy = sandbox.path("copy");
    copy_folder(sandbox.store(), &copy);
    let there = sandbox.command_at(&copy).arg("verify").output().unwrap();
    assert_eq!(there.status.code(), Some(DAMAGE), "a copy has it as well");

    let harmed = sandbox.run(["verify", &vac]);
    assert_eq!(harmed.code, Some(DAMAGE), "{}", harmed.text());
    assert!(harmed.text().contains("below/file-"), "{}", harmed.text());
    store_again(&sandbox, &vac);
    verify(&sandbox, 0);
    sandbox.ok(["verify", &vac]);
    let repaired = sandbox.ok(["repair", "--data"]);
    assert!(!repaired.contains("lost"), "{repaired}");
    verify_lightly(&sandbox, 0);
}

#[test]
fn parity_brings_back_what_no_catalog_names() {
    let (sandbox, vac) = filled_by_others(&["--parity", "10%"], 24);
    damage_middle(&sandbox.arenas()[0]);
    assert_eq!(sandbox.run(["verify", &vac]).code, Some(DAMAGE));
    verify(&sandbox, DAMAGE);
    let repaired = sandbox.ok(["repair"]);
    assert!(repaired.contains("mended from its parity"), "{repaired}");
    verify(&sandbox, 0);
    sandbox.ok(["verify", &vac]);
    sandbox.ok(["restore", &vac, &sandbox.arg("back")]);
    assert_eq!(fs::read(sandbox.path("back/tree/small")).unwrap(), b"a small file\n");
}

#[test]
fn a_place_whose_blocks_nobody_can_name_stays_known_until_a_copy_tells_or_somebody_accepts_it() {
    let (sandbox, vac) = filled_by_others(&[], 24);
    let copy = sandbox.path("copy");
    copy_folder(sandbox.store(), &copy);
    // The damage covers clumps and the pages that name them, but not the seal.
    let arena = &sandbox.arenas()[0];
    let length = usize::try_from(fs::metadata(arena).unwrap().len()).unwrap();
    write_at(arena, 300_000, &noise(3, length - 300_000 - 200));
    let run = sandbox.run(["repair"]);
    assert_eq!(run.code, Some(DAMAGE), "{}", run.text());
    fs::remove_dir_all(sandbox.store().join("index")).unwrap();
    let report = verify(&sandbox, DAMAGE);
    assert!(report["lost"]["place_count"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(sandbox.run(["verify", &vac]).code, Some(DAMAGE));

    // The user accepts the loss. The first call makes a plan, and only this plan is executed.
    let planned = sandbox.run(["repair", "--accept-loss"]);
    assert_eq!(planned.code, Some(DAMAGE), "{}", planned.text());
    let name = planned.text().split("plan ").nth(1).unwrap()[..8].to_owned();
    verify(&sandbox, DAMAGE);
    let refused = sandbox.fails(1, ["repair", "--accept-loss", "0badf00d"]);
    assert!(refused.contains(&name), "{refused}");
    let accepted = Sandbox::copy_of(sandbox.store(), None);
    accepted.ok(["repair", "--accept-loss", &name]);
    verify(&accepted, 0);
    accepted.ok(["repair"]);
    assert!(accepted.ok(["repair", "--accept-loss"]).contains("nothing to accept"));
    assert_eq!(accepted.run(["verify", &vac]).code, Some(DAMAGE), "the archive is what it is");

    // Without acceptance, storing everything again does not prove that the lost block is back. A
    // copy of the store proves it.
    store_again(&sandbox, &vac);
    sandbox.ok(["verify", &vac]);
    assert!(verify(&sandbox, DAMAGE)["lost"]["place_count"].as_u64().unwrap() > 0);
    sandbox.ok(["repair", "--from", copy.to_str().unwrap()]);
    verify(&sandbox, 0);
    assert!(sandbox.ok(["repair"]).contains("nothing to repair"));
}

/// Stores another folder as a vac archive. It comes from the same store as the other blocks.
fn store_more(sandbox: &Sandbox, store: &Path, (seed, length): (u64, usize)) {
    let (other, vac) = (sandbox.path("other"), sandbox.arg("more.vac"));
    fs::create_dir_all(sandbox.path("more")).unwrap();
    fs::write(sandbox.path("more/file"), noise(seed, length)).unwrap();
    drop(fs::remove_file(&vac));
    for words in [&["snapshot", "more", "--vac", &vac][..], &["copy", ".", &vac, store.to_str().unwrap()]] {
        let words = words.iter().map(|word| if *word == "." { other.to_str().unwrap() } else { word });
        let made = sandbox.command_at(&other).args(words).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
}

/// A copy that was written to separately is longer, and never had the block that is lost here. This
/// holds for an open and for a sealed arena.
#[test]
fn only_a_copy_that_went_the_same_way_settles_a_lost_place() {
    for more_count in [1, 4] {
        let (sandbox, _) = filled_by_others(&[], 2);
        let (elsewhere, copy) = (sandbox.path("elsewhere"), sandbox.path("copy"));
        copy_folder(sandbox.store(), &elsewhere);
        (0..more_count).for_each(|seed| store_more(&sandbox, &elsewhere, (700 + seed, 400_000)));
        store_more(&sandbox, sandbox.store(), (800, 200_000));
        let vac = fs::read_to_string(sandbox.path("more.vac")).unwrap().trim().to_owned();
        sandbox.ok(["verify", &vac]);
        copy_folder(sandbox.store(), &copy);
        let arena = &sandbox.arenas()[0];
        let length = |arena: &Path| fs::metadata(arena).unwrap().len();
        assert!(length(&elsewhere.join("arenas/0000000000.arena")) > length(arena));
        write_at(arena, 0, &noise(9, 512));
        let repair_from = |from: &Path| sandbox.run(["repair", "--from", from.to_str().unwrap()]);
        for _ in 0..2 {
            let run = repair_from(&elsewhere);
            let said = format!("{}{}", run.text(), run.stderr);
            assert!(run.code == Some(DAMAGE) && said.contains("lost: arena 0"), "{more_count}: {said}");
            assert_eq!(verify(&sandbox, DAMAGE)["lost"]["place_count"], 1, "{more_count}");
            assert_eq!(sandbox.run(["verify", &vac]).code, Some(DAMAGE));
        }
        let run = repair_from(&copy);
        assert_eq!(run.code, Some(0), "{more_count}: {}{}", run.text(), run.stderr);
        verify(&sandbox, 0);
        sandbox.ok(["verify", &vac]);
    }
}

/// The same for blocks that are written and read through the Venti server.
#[test]
fn what_came_through_the_venti_door_stays_known_and_comes_back_through_it() {
    let (sandbox, vac) = filled_by_others(&[], 24);
    let served = sandbox.path(venti_server::STORE);
    venti_server::make_store(&sandbox);
    let other = sandbox.arg("other");
    let write = || {
        let server = Server::start(&sandbox);
        venti_server::at(&sandbox, server.address(), &["copy", &other, &vac, server.address()]);
        venti_server::at(&sandbox, server.address(), &["verify", &vac]);
        server.end();
    };
    write();
    damage_middle(&served.join("arenas/0000000000.arena"));
    let said = |words: &[&str]| Run::new(sandbox.command_at(&served).args(words).output().unwrap());
    for words in [&["verify", "--data"][..], &["repair"], &["verify"]] {
        let run = said(words);
        assert!(run.code == Some(DAMAGE) && run.text().contains("lost: "), "{words:?}: {}", run.text());
    }
    let server = Server::start(&sandbox);
    let through =
        venti_server::command_at(&sandbox, server.address()).args(["verify", &vac]).output().unwrap();
    assert_eq!(through.status.code(), Some(DAMAGE));
    assert!(String::from_utf8_lossy(&through.stdout).contains("below/file-"));
    server.end();
    write();
    assert_eq!(said(&["verify", "--data"]).code, Some(0));
}

#[test]
fn an_archive_is_checked_as_a_whole() {
    let (sandbox, vac) = filled_by_others(&[], 12);
    let line = fs::read_to_string(&vac).unwrap().trim().to_owned();
    let said = sandbox.ok(["verify", &vac, &line]);
    assert_eq!(said.matches("all is well").count(), 2, "{said}");
    let found = sandbox.json(["verify", &line]).remove(0);
    assert_eq!((&found["type"], &found["files"]), (&"verified_archive".into(), &16.into()), "{found}");
    assert!(found["checked_bytes"].as_u64().unwrap() > 12 * 120_000, "{found}");
    for wrong in [&format!("{line}:below"), "nothing-like-it", "vac:12"] {
        sandbox.fails(2, ["verify", wrong]);
    }
    let none = format!("vac:{}", "ab".repeat(20));
    let said = sandbox.run(["verify", &none]);
    assert!(said.code == Some(DAMAGE) && said.text().contains("is not in the store"), "{}", said.text());
    let other = line.replace("vac:", "ext2:");
    sandbox.fails(1, ["verify", &other]);
    sandbox.fails(2, ["verify", &line, "--share", "3%"]);
    // The loss of an arena damages some files, and only these are named.
    fs::remove_file(&sandbox.arenas()[0]).unwrap();
    let run = Run::new(sandbox.command().args(["--json", "verify", &line]).output().unwrap());
    assert_eq!(run.code, Some(DAMAGE));
    let found: Value = serde_json::from_slice(&run.stdout).unwrap();
    let harm = found["harm"].as_array().unwrap();
    assert!(!harm.is_empty() && harm.iter().all(|harm| harm["path"].is_string()), "{found}");
}

/// Parity is made up for by later writers. So a store that is to have it may lack it for a while,
/// and nothing of it is damaged.
#[test]
fn a_clone_of_a_store_with_parity_is_well() {
    let sandbox = Sandbox::made_with(&["--parity", "25%"]);
    sandbox.snapshot_bytes("disk", &noise(1, 3_500_000));
    sandbox.ok(["replicate", "replica"]);
    sandbox.ok(["clone", "replica", "clone"]);
    let mut clone = sandbox;
    clone.set_store(clone.path("clone"));
    let sealed = clone.arenas().len() as u64 - 1;
    let report = verify(&clone, 0);
    assert_eq!(report["without_parity"], sealed);
    assert_eq!(report["damage"].as_array().unwrap().len(), 0);
    let text = clone.ok(["verify"]);
    assert!(text.contains("arenas without parity yet") && text.contains("all is well"), "{text}");
    assert_eq!(fs::read_dir(clone.store().join("parity")).map_or(0, Iterator::count), 0);
    clone.ok(["repair", "--data"]);
    assert_eq!(verify(&clone, 0)["without_parity"], 0);
    // One that a disk has lost is made again.
    let parity = fs::read_dir(clone.store().join("parity")).unwrap().next().unwrap().unwrap().path();
    let good = fs::read(&parity).unwrap();
    fs::remove_file(&parity).unwrap();
    assert_eq!(verify(&clone, 0)["without_parity"], 1);
    clone.snapshot_bytes("disk", b"the next night");
    assert!(fs::read(&parity).unwrap() == good);
}

/// A folder's list has many leaves. Each name before a lost one is there, for each way to read.
#[test]
fn the_names_before_a_lost_part_of_a_folder_are_there() {
    let sandbox = Sandbox::made_with(&["--clump-size", "64K"]);
    let home = sandbox.path("home");
    fs::create_dir(&home).unwrap();
    let hex = |number: u64| noise(number, 110).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut names: Vec<_> = (0..900).map(|number| format!("{number:04}{}", hex(number))).collect();
    for name in &names {
        fs::write(home.join(name), &name[..20]).unwrap();
    }
    sandbox.ok(["snapshot", "home"]);
    names.sort();
    let arena = sandbox.arenas().remove(0);
    let good = fs::read(&arena).unwrap();
    let mut partial_count = 0;
    for place in (2000..good.len() - 2000).step_by(good.len() / 24) {
        let mut bytes = good.clone();
        bytes[place] ^= 1;
        fs::write(&arena, bytes).unwrap();
        let listed = sandbox.run(["ls", "home"]);
        let listed: Vec<_> = listed.text().lines().map(str::to_owned).collect();
        assert!(names.starts_with(&listed), "{place}: a list ends at the first lost range");
        if listed.is_empty() || listed.len() == names.len() {
            continue;
        }
        partial_count += 1;
        let out = sandbox.path(&format!("out {place}"));
        let restored = sandbox.run(["restore", "home", out.to_str().unwrap(), "--keep-damaged"]);
        assert_eq!(restored.code, Some(5), "{place}: {}", restored.stderr);
        let mut found: Vec<_> = fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(found, listed, "{place}: restore");
        let found = sandbox.run(["find", "*", "home"]).text();
        let found = found.lines().filter(|line| names.iter().any(|name| line.contains(name)));
        assert_eq!(found.count(), listed.len(), "{place}: find");
        let path = format!("home:{}", listed.last().unwrap());
        let read = sandbox.run(["cat", &path]);
        assert!(read.code == Some(0) || read.code == Some(5), "{place}: {}", read.stderr);
        assert!(read.code == Some(5) || read.text() == listed.last().unwrap()[..20], "{place}");
    }
    assert!(partial_count > 1, "the damage has met lists");
}

/// A file that did not change for days is one harm, however many snapshots have it.
#[test]
fn a_damaged_file_of_many_days_is_one_line() {
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/photo"), noise(1, 900_000)).unwrap();
    for day in 10..15 {
        fs::write(sandbox.path("home/diary"), format!("day {day}")).unwrap();
        sandbox.ok(["snapshot", "home", "--time", &format!("2026-05-{day}T12:00:00Z")]);
    }
    damage_middle(&sandbox.arenas()[0]);
    assert_eq!(harm_count(&verify(&sandbox, 5)), 5, "for programs it is one harm each day");
    let text = sandbox.run(["verify", "--data"]).text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("harms: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains("home:photo (bytes "), "{text}");
    assert!(lines[0].contains(" in 5 snapshots from 2026-05-10 to 2026-05-14: "), "{text}");
}

#[test]
fn verify_says_what_it_has_not_read() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(1, 1000));
    assert!(sandbox.ok(["verify"]).contains("contents not read: `verify --data` reads them"));
    assert!(!sandbox.ok(["verify", "--data"]).contains("not read"));
}
