//! Publications that are attached without being served: which edition is believed, and how the
//! program ends.
#![expect(clippy::disallowed_methods, reason = "runs are waited for in real time")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use varve_edition::{EditionHead, EditionSigner};
use varve_world::Timestamp;

use crate::sandbox::{Run, Sandbox, copy_folder, noise};

/// A sandbox with a disk that is published in the folder `www`.
fn published() -> Sandbox {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(1, 300_000));
    sandbox
}

/// Publishes an edition in a folder, signed with these key files, and returns its head.
fn edition(sandbox: &Sandbox, folder: &str, keys: &[&str]) -> Vec<u8> {
    let keys = keys.iter().flat_map(|key| ["--key", key]);
    sandbox.json(["publish", "disk", folder].into_iter().chain(keys));
    fs::read(sandbox.path(folder).join("head")).unwrap()
}

/// Attaches the publication in `www`, when it has this head.
fn attach(sandbox: &Sandbox, head: &[u8], address_key: &str) -> Run {
    fs::write(sandbox.path("www/head"), head).unwrap();
    sandbox.run(["attach", &format!("www/#{address_key}"), "disk", "--fill"])
}

fn public_key(sandbox: &Sandbox, file: &str) -> String {
    let text = fs::read_to_string(sandbox.path(file)).unwrap();
    text.lines().find_map(|line| line.strip_prefix("public = ")).unwrap().to_owned()
}

/// Returns the head without its last signature.
fn without_last_signature(head: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(head).unwrap();
    let (signed, _) = text.rsplit_once("signature = ").unwrap();
    assert!(signed.contains("signature = "), "another signature is left");
    signed.as_bytes().to_vec()
}

#[test]
fn no_edition_goes_back_over_a_change_of_key() {
    let sandbox = published();
    let first = edition(&sandbox, "www", &["old.key"]);
    copy_folder(&sandbox.path("www"), &sandbox.path("thief"));
    let both = edition(&sandbox, "www", &["old.key", "new.key"]);
    let both_again = edition(&sandbox, "www", &["old.key", "new.key"]);
    let last = edition(&sandbox, "www", &["new.key"]);
    let addresses = ["old.key", "new.key"].map(|file| public_key(&sandbox, file));

    for head in [&first, &both, &last, &last] {
        let run = attach(&sandbox, head, &addresses[0]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
    }
    // The server leaves out the line that the new key has signed.
    let stripped = without_last_signature(&both_again);
    for address in &addresses {
        for older in [&stripped, &both_again, &first] {
            let run = attach(&sandbox, older, address);
            assert_eq!(run.code, Some(1), "{}", run.stderr);
        }
    }
    let run = attach(&sandbox, &both_again, &addresses[0]);
    assert!(run.stderr.contains("this is edition 3, but edition 4 was seen before"), "{}", run.stderr);

    // A thief has the old key, and makes editions with higher numbers.
    let mut stolen = Vec::new();
    for _ in 0..5 {
        stolen = edition(&sandbox, "thief", &["old.key"]);
    }
    let run = attach(&sandbox, &stolen, &addresses[0]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let told = "edition 6 is signed with the key varve1-";
    assert!(run.stderr.contains(told) && run.stderr.contains("edition 4 has withdrawn"), "{}", run.stderr);
    let run = attach(&sandbox, &last, &addresses[0]);
    assert!(run.code == Some(0) && run.stderr.contains("has changed the key"), "{}", run.stderr);
}

/// Runs the program, and returns its output and the time that it took.
fn timed<'a>(sandbox: &Sandbox, words: impl IntoIterator<Item = &'a str>) -> (Run, Duration) {
    let begun = Instant::now();
    let run = sandbox.run(words);
    (run, begun.elapsed())
}

#[test]
fn a_fill_names_the_object_that_no_server_has() {
    let sandbox = published();
    edition(&sandbox, "www", &["publisher.key"]);
    let address = format!("www/#{}", public_key(&sandbox, "publisher.key"));
    let objects = fs::read_dir(sandbox.path("www/objects")).unwrap();
    let files = objects.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let files = files.map(|file| file.unwrap().path());
    let lost = files.max_by_key(|file| (fs::metadata(file).unwrap().len(), file.clone())).unwrap();
    let name = lost.file_name().unwrap().to_str().unwrap();
    let whole = fs::read(&lost).unwrap();
    for is_missing in [true, false] {
        match is_missing {
            true => fs::remove_file(&lost).unwrap(),
            false => fs::write(&lost, &whole[1..]).unwrap(),
        }
        let (run, time) = timed(&sandbox, ["attach", &address, "disk", "--fill", "--patience", "2s"]);
        assert_eq!(run.code, Some(1), "{}{}", run.text(), run.stderr);
        assert!(run.stderr.contains(name) && run.stderr.contains("2 of 3 blocks"), "{}", run.stderr);
        assert!(time < Duration::from_secs(30), "{time:?}");
        fs::write(&lost, &whole).unwrap();
    }
    sandbox.ok(["attach", &address, "disk", "--fill"]);
}

/// Starts a server that sends the beginning of an answer, and then one byte a second. Returns its
/// URL. Its threads end with the process.
fn trickling_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                if client.read(&mut [0; 4096]).unwrap_or(0) == 0 {
                    return;
                }
                drop(client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"));
                while client.write_all(b"v").is_ok() {
                    std::thread::sleep(Duration::from_secs(1));
                }
            });
        }
    });
    url
}

#[test]
fn a_head_that_trickles_stops_no_reader_with_a_mirror() {
    let sandbox = published();
    edition(&sandbox, "www", &["publisher.key"]);
    let address = format!("{}/#{}", trickling_server(), public_key(&sandbox, "publisher.key"));
    let fill = ["attach", &address, "disk", "--fill", "--patience", "2s"];
    let (run, time) = timed(&sandbox, fill.into_iter().chain(["--mirror", "www"]));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(time < Duration::from_secs(20), "{time:?}");
    fs::remove_dir_all(sandbox.path("cache")).unwrap();
    let (run, time) = timed(&sandbox, fill);
    let is_named = ["has not come within 2 s", "fewer than"].iter().any(|text| run.stderr.contains(text));
    assert!(run.code == Some(1) && is_named, "{}", run.stderr);
    assert!(time < Duration::from_secs(20), "{time:?}");
}

#[test]
fn a_signal_ends_it_while_it_waits_for_a_server() {
    let sandbox = published();
    let address = format!("{}/#varve1-6kpsY-KcUgq-9VB7Ey7F-ZVHdq6-vnuSQh7qaRRG0iw", trickling_server());
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut attach = sandbox.command();
        attach.args(["attach", &address, "disk", "--fill", "--patience", "forever"]);
        let mut attach = attach.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(attach.try_wait().unwrap(), None, "it waits");
        rustix::process::kill_process(rustix::process::Pid::from_child(&attach), signal).unwrap();
        let begun = Instant::now();
        while attach.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(attach.kill());
        assert_eq!(attach.wait().unwrap().code(), Some(130), "{signal:?}");
    }
}

#[test]
fn an_answer_that_is_no_head_is_named() {
    let sandbox = published();
    edition(&sandbox, "www", &["publisher.key"]);
    let key = public_key(&sandbox, "publisher.key");
    for (answer, what, hint) in [
        (&b"<!doctype html><title>Welcome to our network</title>"[..], "a page of HTML", "browser"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "compressed with gzip", "turn compression off"),
    ] {
        let run = attach(&sandbox, answer, &key);
        assert!(
            run.code == Some(1) && run.stderr.contains(what) && run.stderr.contains(hint),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn a_check_reports_an_edition_that_has_expired() {
    let sandbox = published();
    let head = edition(&sandbox, "www", &["publisher.key"]);
    let signer = fs::read_to_string(sandbox.path("publisher.key")).unwrap();
    let signer = EditionSigner::from_text(&signer).unwrap();
    let mut fields = EditionHead::open(&head, &[signer.key()]).unwrap().head.into_fields();
    (fields.time, fields.expires) = (Timestamp(0), Timestamp(1));
    let head = EditionHead::new(fields).unwrap().sign(&[signer]).unwrap();
    fs::write(sandbox.path("www/head"), head).unwrap();
    let address = format!("www/#{}", public_key(&sandbox, "publisher.key"));
    let run = sandbox.run(["verify", "--publication", &address]);
    assert!(run.code == Some(0) && run.stderr.contains("edition 1 has expired"), "{}", run.stderr);
}
