//! A disk with a sector that stays unreadable. Everything else is readable, nothing is written over
//! it, and the steps in `docs/guide/recovery.md` lead back. The test reads the page and follows it.
//!
//! Needs FUSE: as root, or with `fusermount3`.

use crate::recovery_page;
use std::fs;

use crate::forgetful_disk::machine::Machine;
use crate::sandbox::{Sandbox, copy_folder, noise};

const SECTION: &str = "The disk does not give a sector";

/// The place of the unreadable sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Data in a sealed arena.
    Data,
    /// The header of a sealed arena.
    Header,
    /// The end of a sealed arena.
    Seal,
    /// The header of the open arena.
    OpenHeader,
    /// The end of the open arena: the page with the newest catalog.
    OpenEnd,
}

fn nights() -> [(&'static str, Vec<u8>); 2] {
    [("first", noise(1, 3_600_000)), ("second", noise(2, 300_000))]
}

fn follow(machine: &mut Machine, place: Place) {
    let mut sandbox = Sandbox::encrypted();
    for (name, bytes) in nights() {
        sandbox.snapshot_bytes(name, &bytes);
    }
    sandbox.ok(["replicate", "replica"]);
    let arenas = sandbox.arenas();
    let (first, last) = (&arenas[0], arenas.last().unwrap());
    let length = |arena: &std::path::Path| fs::metadata(arena).unwrap().len();
    let (arena, offset) = match place {
        Place::Data => (first, length(first) / 2),
        Place::Header => (first, 0),
        Place::Seal => (first, length(first) - 1),
        Place::OpenHeader => (last, 0),
        Place::OpenEnd => (last, length(last) - 1),
    };
    let folder = format!("{place:?}");
    copy_folder(sandbox.store(), &machine.path(&folder));
    let file = arena.file_name().unwrap().to_str().unwrap();
    machine.disk.get().break_sector(&[&folder, "arenas", file], offset);
    machine.read_afresh();
    sandbox.set_store(machine.path(&folder));

    // The data beside the sector is readable.
    let listed = sandbox.run(["snapshots"]);
    let is_open = matches!(place, Place::OpenHeader | Place::OpenEnd);
    assert_eq!(listed.code, Some(0), "{place:?}: {}", listed.stderr);
    assert!(is_open || listed.text().contains("second"), "{place:?}: {}", listed.text());
    // The output warns that the list may be incomplete.
    assert_eq!(listed.stderr.contains("may be missing here"), is_open, "{place:?}: {}", listed.stderr);
    let stats = sandbox.json(["stats"]).remove(0);
    let withheld_in = stats["withheld"]["arena"].as_u64().map(|arena| format!("{arena:010}.arena"));
    assert_eq!(withheld_in.as_deref(), is_open.then_some(file), "{place:?}: {stats}");
    // A program can distinguish withheld data from changed data.
    let verified = sandbox.run(["verify", "--data", "--json"]);
    let verified: serde_json::Value = verified.result();
    let withheld = verified["damage"].as_array().unwrap().iter().filter(|damage| damage["withheld"] == true);
    let number: u64 = file.trim_end_matches(".arena").parse().unwrap();
    assert!(withheld.into_iter().any(|damage| damage["arena"] == number), "{place:?}: {verified}");
    // A further snapshot loses nothing: it is refused, or it is in the store in the end.
    let before = fs::read_dir(machine.path(&folder).join("arenas")).unwrap().count();
    let night = sandbox.run(["snapshot", "key", "--name", "third"]);
    if is_open {
        assert_eq!(night.code, Some(1), "{place:?}: {}", night.text());
        for quote in recovery_page::quotes_of(SECTION) {
            assert!(night.stderr.contains(&quote), "{place:?}: {quote:?} is not in: {}", night.stderr);
        }
        assert_eq!(fs::read_dir(machine.path(&folder).join("arenas")).unwrap().count(), before, "{place:?}");
    } else {
        assert_eq!(night.code, Some(0), "{place:?}: {}", night.stderr);
    }
    for line in recovery_page::commands_of(SECTION) {
        let run = sandbox
            .run(line.split_whitespace().skip(1).map(|word| if word == "COPY" { "replica" } else { word }));
        let is_check = line.contains(" verify ");
        assert_eq!(
            run.code,
            Some(if is_check { 5 } else { 0 }),
            "{place:?}: {line}: {}{}",
            run.text(),
            run.stderr
        );
        assert!(
            !is_check || run.text().contains(&format!("arena {}", file[..10].parse::<u64>().unwrap())),
            "{place:?}: {}",
            run.text()
        );
    }
    let verified = sandbox.run(["verify", "--data"]);
    assert_eq!((verified.code, verified.stderr.as_str()), (Some(0), ""), "{place:?}: {}", verified.text());
    for (name, bytes) in nights() {
        let read = sandbox.run(["cat", name]);
        assert!(read.stdout == bytes && read.stderr.is_empty(), "{place:?}: {name}: {}", read.stderr);
    }
    sandbox.snapshot_bytes("fourth", b"the next night");
    assert_eq!(sandbox.ids().len(), if is_open { 3 } else { 4 }, "{place:?}");
}

#[test]
fn a_sector_that_the_disk_does_not_give() {
    let Some(mut machine) = Machine::start("a sector that the disk does not give") else { return };
    for place in [Place::Data, Place::Header, Place::Seal, Place::OpenHeader, Place::OpenEnd] {
        follow(&mut machine, place);
    }
}
