//! `docs/guide/space.md`: a first session with forgetting, `gc` and a replica that shrinks, and the
//! tables of `stats`. The program prints what the page says.

use std::fs;

use crate::sandbox::{Sandbox, noise};

const PAGE: &str = include_str!("../../../../docs/guide/space.md");

/// The commands of a section, each with the output that the page shows.
fn session_of(title: &str) -> Vec<(&'static str, String)> {
    let (_, rest) =
        PAGE.split_once(&format!("## {title}\n")).unwrap_or_else(|| panic!("no section {title:?}"));
    let section = rest.split("\n## ").next().unwrap();
    let mut session = Vec::new();
    for block in section.split("```").filter_map(|block| block.strip_prefix("console\n")) {
        for line in block.lines() {
            match line.strip_prefix("$ varve -s st ") {
                Some(command) => session.push((command, String::new())),
                None => session.last_mut().unwrap().1 += &format!("{line}\n"),
            }
        }
    }
    session
}

/// Numbers, dates, ids and units differ from run to run, and so do the widths of columns. Workers
/// that share a large file decide which blocks lie in which arena, so the number of arenas of one
/// kind differs, too.
fn without_numbers(output: &str) -> Vec<String> {
    let is_id = |word: &str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let has_number = |word: &str| is_id(word) || word.bytes().any(|byte| byte.is_ascii_digit());
    let word = |word: &str| match word {
        "B" | "KiB" | "MiB" => "unit".to_owned(),
        "arena" | "arena:" | "arena," => word.replace("arena", "arenas"),
        "generation" => "generations".to_owned(),
        _ if has_number(word) => "#".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = output.lines().map(line).collect();
    lines.dedup();
    lines
}

/// Units of sizes are words, so the nights are as large as those of the page.
fn take_night(sandbox: &Sandbox, night: u64) {
    fs::create_dir_all(sandbox.path("srv/web")).unwrap();
    fs::write(sandbox.path("srv/web/stays"), noise(0, 20_000_000)).unwrap();
    fs::write(sandbox.path("srv/web/new"), noise(night, 60_000_000)).unwrap();
    let time = format!("2026-11-0{night}T22:00:00Z");
    sandbox.ok(["snapshot", "srv/web", "--name", "web", "--time", &time]);
}

#[test]
fn the_program_prints_what_the_page_on_space_says() {
    let sandbox = Sandbox::empty();
    sandbox.ok(["init"]);
    (1..=4).for_each(|night| take_night(&sandbox, night));
    let usb = sandbox.arg("usb");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let session = [session_of("A first time"), session_of("A replica shrinks")].concat();
    assert_eq!(session.len(), 10, "{session:?}");
    let ids = |listing: &str| -> Vec<String> {
        listing.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    let (on_page, here) = (ids(&session[0].1), sandbox.ids());
    let mut is_replicated = false;
    for (command, expected) in session {
        let mut command = command.replace("/mnt/usb", &usb);
        for (page, own) in on_page.iter().zip(&here) {
            command = command.replace(page.as_str(), own);
        }
        let printed = sandbox.ok(command.split_whitespace()).replace(&usb, "/mnt/usb");
        let printed =
            printed.replace(&sandbox.arg("srv/web"), "/srv/web").replace(&format!(" {host} "), " vm ");
        assert_eq!(without_numbers(&printed), without_numbers(&expected), "{command}");
        if !std::mem::replace(&mut is_replicated, true) {
            // Before anything is written anew; from now on the list has a column of copies.
            sandbox.ok(["replicate", &usb]);
        }
    }
}

/// A mailbox that has a part of a file of the folder in it, and changes in one place.
fn take_night_of_mail(sandbox: &Sandbox, night: u64) {
    fs::create_dir_all(sandbox.path("srv/mail")).unwrap();
    let (part, own) = (&noise(0, 20_000_000)[..10_000_000], noise(10, 20_000_000));
    let mailbox = [part, &own[..10_000_000], &noise(20 + night, 50_000), &own[10_050_000..]].concat();
    fs::write(sandbox.path("srv/mail/box"), mailbox).unwrap();
    let time = format!("2026-11-0{night}T23:00:00Z");
    sandbox.ok(["snapshot", "srv/mail", "--name", "mail", "--time", &time]);
}

#[test]
fn the_tables_of_the_space_are_those_of_the_page() {
    let sandbox = Sandbox::empty();
    sandbox.ok(["init"]);
    for night in 1..=4 {
        take_night(&sandbox, night);
        if night <= 2 {
            take_night_of_mail(&sandbox, night);
        }
    }
    let session = session_of("Where the space is");
    let [(arenas, arenas_shown), (snapshots, snapshots_shown)] = &session[..] else { panic!("{session:?}") };
    sandbox.ok(["forget", "web@2026-11-01"]);
    let printed = sandbox.ok(snapshots.split_whitespace());
    assert_eq!(without_numbers(&printed), without_numbers(snapshots_shown));
    sandbox.ok(["forget", "--undo", "web@2026-11-01"]);
    sandbox.ok(["forget", "web@2026-11-01", "web@2026-11-02", "--undo-days", "0"]);
    let printed = sandbox.ok(arenas.split_whitespace());
    assert_eq!(without_numbers(&printed), without_numbers(arenas_shown));
}
