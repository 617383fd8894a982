//! The web page about the state of an archive: promises, runs, and harm.
#![allow(clippy::disallowed_methods, reason = "waits for another process")]

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::sandbox::{Sandbox, noise, sample_folder, write_at};
use crate::web_page::{Page, link, links};

/// Loads a page until its text has this part, which the server finds out in the background.
fn page_with(page: &Page, session: &str, path: &str, part: &str) -> String {
    let begun = Instant::now();
    loop {
        let text = page.get(path, session).text();
        if text.contains(part) {
            return text;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no {part} in {text}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Writes a configuration with two sources.
fn configure(sandbox: &Sandbox, key: &str) {
    let store = sandbox.store().display().to_string();
    let [home, notes] = ["home", "notes"].map(|name| sandbox.arg(name));
    let config = format!(
        "state = \"run-state\"\n[store.main]\nat = \"{store}\"\nkey-file = \"{key}\"\n\
         [defaults]\nstore = \"main\"\nevery = \"day\"\n[source.home]\nfolder = \"{home}\"\n\
         [source.notes]\nfolder = \"{notes}\"\n[promise]\nsnapshot-within = \"30h\"\nverified-within = \"60d\"\n"
    );
    fs::write(sandbox.path("varve.toml"), config).unwrap();
}

/// A sandbox with two sources and a configuration.
fn configured() -> Sandbox {
    let sandbox = Sandbox::encrypted();
    for name in ["home", "notes"] {
        fs::create_dir(sandbox.path(name)).unwrap();
        fs::write(sandbox.path(name).join("letter"), format!("dear {name}")).unwrap();
    }
    configure(&sandbox, &sandbox.key().unwrap().display().to_string());
    sandbox
}

#[test]
fn the_state_of_the_archive_is_told_in_words() {
    let sandbox = Sandbox::encrypted();
    sample_folder(&sandbox.path("home"));
    for time in ["2026-03-01T10:00:00Z", "2026-03-02T10:00:00Z", "2026-04-02T10:00:00Z"] {
        sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", time]);
    }
    let key = sandbox.key().unwrap().display().to_string();
    let (store, home) = (sandbox.store().display().to_string(), sandbox.arg("home"));
    let config = format!(
        "[store.main]\nat = \"{store}\"\nkey-file = \"{key}\"\n[defaults]\nstore = \"main\"\nevery = \"day\"\n\
         [source.home]\nfolder = \"{home}\"\n[promise]\nsnapshot-within = \"30h\"\nverified-within = \"60d\"\n"
    );
    fs::write(sandbox.path("varve.toml"), config).unwrap();
    let page = Page::start(&sandbox, &["--config", &sandbox.arg("varve.toml")]);
    let session = page.log_in();
    let today = page.get("/", &session).text();
    assert!(today.contains("1 promise is broken.") && today.contains("a snapshot within 1d 6h"), "{today}");
    let health = page.get("/health", &session).text();
    assert!(health.contains("No damage is known.") && health.contains("never read since"), "{health}");
    assert!(page.get("/machines", &session).text().contains("3 snapshots"));
    // Of the two days in March, the policy keeps the newer one.
    let wish = "/space?keep_last=1&keep_daily=&keep_weekly=&keep_monthly=2&keep_yearly=";
    let begun = std::time::Instant::now();
    let space = loop {
        let space = page.get(wish, &session).text();
        if space.contains("and free at least") {
            break space;
        }
        assert!(begun.elapsed().as_secs() < 60, "{space}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert!(space.contains("would forget 1 snapshot,") && space.contains("2026-03"), "{space}");
    let wrong = page.get("/space?keep_last=x", &session).text();
    assert!(wrong.contains("Last must be a number"), "{wrong}");
    // Without a configuration nothing is promised.
    drop(page);
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    assert!(page.get("/", &session).text().contains("nothing is promised"));
}

#[test]
fn runs_are_listed_and_one_cause_is_told_once() {
    let sandbox = configured();
    let page = Page::start(&sandbox, &["--config", &sandbox.arg("varve.toml")]);
    let session = page.log_in();
    let none = page.get("/runs", &session).text();
    assert!(none.contains("No run is noted yet"), "{none}");
    sandbox.ok(["run", "--config", "varve.toml"]);
    // The list of snapshots is read again after two seconds.
    page_with(&page, &session, "/runs", "href=\"/look/");
    let runs = page.get("/runs", &session);
    let text = runs.text();
    let has_figures = text.contains("snapshot home") && text.contains("data-of=\"Stored\" class=\"number\">");
    assert!(has_figures && text.matches(">done</span>").count() == 2, "{text}");
    // A row leads to its snapshot, and the page of a source has its own rows only.
    let taken = link(&runs, "/look/");
    assert_eq!(page.get(&taken, &session).status, 200);
    let calendar = page.get("/calendar", &session);
    let source = page.get(&link(&calendar, "/source/"), &session).text();
    assert!(source.contains("Last runs") && source.matches(">done</span>").count() == 1, "{source}");
    let today = page.get("/", &session).text();
    assert!(!today.contains("Jobs whose last run had problems"), "{today}");
    let failed = page.get("/runs?failed=1", &session).text();
    assert!(failed.contains("There are no such runs"), "{failed}");

    // Without its key, both jobs fail for one reason.
    configure(&sandbox, &sandbox.arg("no-such-key"));
    sandbox.run(["run", "home", "notes", "--config", "varve.toml"]);
    for path in ["/runs?failed=1", "/"] {
        let text = page.get(path, &session).text();
        assert_eq!(text.matches(">failed</span>").count(), 1, "{text}");
        assert!(text.contains("snapshot home, snapshot notes") && text.contains("no-such-key"), "{text}");
    }
    // So do the promises.
    drop(page);
    let page = Page::start(&sandbox, &["--config", &sandbox.arg("varve.toml")]);
    let session = page.log_in();
    let today = page_with(&page, &session, "/", "1 promise is broken.");
    assert!(today.contains("3 more cannot be judged because of it"), "{today}");
    assert_eq!(today.split("<details>").next().unwrap().matches(">broken</span>").count(), 1, "{today}");
}

#[test]
fn the_run_log_is_text_whatever_it_has() {
    let sandbox = configured();
    fs::create_dir(sandbox.path("run-state")).unwrap();
    let hostile = "<script>alert(1)</script>\u{202e}\u{1b}[31m";
    let line = |number: usize, outcome: &str| {
        let message = format!("{hostile}{number}\n{hostile}");
        let time = format!("2026-05-01T02:00:00.{number:09}Z");
        json!({ "time": time, "job": format!("snapshot {hostile}"), "outcome": outcome, "message": message })
    };
    let odd =
        json!({ "time": hostile, "job": "", "outcome": hostile, "seconds": -1e300, "snapshot": hostile });
    let mut lines: Vec<_> = (0..250).map(|number| line(number, "failed").to_string()).collect();
    lines.extend([odd.to_string(), "no json".into(), "{\"time\":7}".into(), line(251, "done").to_string()]);
    fs::write(sandbox.path("run-state/runs.jsonl"), lines.join("\n")).unwrap();
    let page = Page::start(&sandbox, &["--config", &sandbox.arg("varve.toml")]);
    let session = page.log_in();
    let (mut path, mut rows) = ("/runs".to_owned(), 0);
    loop {
        let answer = page.get(&path, &session);
        let text = answer.text();
        assert!(
            !text.contains("<script") && !text.contains('\u{202e}') && !text.contains('\u{1b}'),
            "{text}"
        );
        rows += text.matches("data-of=\"Job\"").count();
        assert!(answer.body.len() < 100 << 10, "{} bytes", answer.body.len());
        match links(&answer).into_iter().find(|link| link.starts_with("/runs?skip=")) {
            Some(next) => path = next,
            None => break,
        }
    }
    assert_eq!(rows, 252);
    // Without a configuration, and at a folder that cannot be read, the page says why it is empty.
    fs::remove_dir_all(sandbox.path("run-state")).unwrap();
    fs::write(sandbox.path("run-state"), "").unwrap();
    let text = page.get("/runs", &session).text();
    assert!(text.contains("the run log in") && text.contains("cannot be read"), "{text}");
    drop(page);
    let page = Page::start(&sandbox, &[]);
    let text = page.get("/runs", &page.log_in()).text();
    assert!(text.contains("There is no configuration on this machine"), "{text}");
}

#[test]
fn harmed_files_are_marked_and_break_off_their_downloads() {
    let sandbox = Sandbox::encrypted();
    let deep = sandbox.path("home/deep");
    fs::create_dir_all(&deep).unwrap();
    let files: Vec<_> =
        (0..8_u64).map(|number| (format!("file-{number}"), noise(20 + number, 600_000))).collect();
    for (name, bytes) in &files {
        fs::write(deep.join(name), bytes).unwrap();
    }
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", "2026-05-01T10:00:00Z"]);
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", "2026-05-02T10:00:00Z"]);
    sandbox.ok(["replicate", &sandbox.arg("copy")]);
    let arena = &sandbox.arenas()[2];
    write_at(arena, fs::metadata(arena).unwrap().len() / 2, &[0x55; 64]);
    let found = sandbox.run(["verify", "--data"]);
    assert_eq!(found.code, Some(5), "{}", found.text());
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    let root = link(&page.get("/look", &session), "/look/");
    let place = root.trim_start_matches("/look");
    page_with(&page, &session, &root, "harmed files in it");
    let listed = page.get(&format!("{root}deep"), &session).text();
    // On a slow disk, the count may have ended early, and then says so.
    let whole = "In this folder and below: 8 entries, 4.58 MiB.";
    assert!(listed.contains(whole) || listed.contains("and below: at least "), "{listed}");
    let mut harmed = 0;
    for (name, bytes) in &files {
        let row = listed.split("<tr").find(|row| row.contains(&format!(">{name}</a>"))).unwrap();
        let is_marked = row.contains(">harmed</span>");
        let sent = page.get_part(&format!("/download{place}deep/{name}"), &session);
        assert_eq!(sent.is_whole, !is_marked, "{name}: {row}");
        assert!(bytes.starts_with(&sent.body) && (sent.body == *bytes) == sent.is_whole, "{name}");
        let of_file = page.get(&format!("{root}deep/{name}"), &session).text();
        assert_eq!(of_file.contains("Some bytes are lost in the store"), is_marked, "{of_file}");
        harmed += usize::from(is_marked);
    }
    assert!((1..=4).contains(&harmed), "{harmed}");
    let count = format!(">{harmed} harmed file{}</a>", if harmed == 1 { "" } else { "s" });
    assert!(listed.contains(&count), "no {count} in {listed}");
    let health = page.get("/health", &session).text();
    assert_eq!(health.matches("2 snapshots: <span").count(), harmed, "{health}");

    // A transfer of the folder has no end, so that no program takes it for whole.
    for form in ["tar", "zip"] {
        let sent = page.get_part(&format!("/{form}{place}"), &session);
        assert!(sent.status == 200 && !sent.is_whole && !sent.body.is_empty(), "{form}");
        let table = b"PK\x05\x06";
        assert!(!sent.body.windows(4).any(|part| part == table), "the zip file has its table");
    }

    // Nothing is marked after a repair.
    drop(page);
    sandbox.ok(["repair", "--from", &sandbox.arg("copy")]);
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    for path in [root.as_str(), &format!("{root}deep"), "/health"] {
        let text = page.get(path, &session).text();
        assert!(!text.contains("harm") && !text.contains(">damaged"), "{text}");
    }
}
