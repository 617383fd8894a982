//! Changes at a server, or to the credentials for it, while the program works.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::kinds;
use crate::proxy::{Fault, Proxy};
use crate::sandbox::{Run, Sandbox, noise};
use crate::second_home::Second;

const EXPIRED: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/xml\r\nContent-Length: 98\r\n\
    Connection: close\r\n\r\n<Error><Code>ExpiredToken</Code><Message>The provided token has expired at noon.</Message></Error>";
const SKEWED: &str = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: 97\r\n\
    Connection: close\r\n\r\n<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>  ";

/// Waits until the server has at least `count` segments.
fn wait_for_segments(second: &Second<'_>, count: usize) {
    let begun = Instant::now();
    while second.segments().len() < count {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ended(child: Child) -> Run {
    Run::new(child.wait_with_output().unwrap())
}

/// A replication that takes some seconds.
const SLOWLY: [&str; 8] = ["-q", "replicate", "URL", "--segment-size", "1M", "--limit-rate", "3M", "--jobs"];

fn slowly(second: &Second<'_>) -> Child {
    second.begin(&[&SLOWLY[..], &["1"]].concat())
}

#[test]
fn a_place_that_is_emptied_meanwhile_is_noticed_and_filled_again() {
    for kind in [kinds::s3(), kinds::sftp(), kinds::webdav(), kinds::ftp()].into_iter().flatten() {
        let second = Second::new(&kind);
        let disk = noise(41, 8_000_000);
        second.sandbox.snapshot_bytes("disk", &disk);
        let replicating = slowly(&second);
        wait_for_segments(&second, 2);
        let there = kind.at(&second.place);
        there.list("").unwrap().iter().for_each(|object| there.remove(&object.name).unwrap());
        let run = ended(replicating);
        assert_eq!(run.code, Some(1), "{}: {}", kind.name, run.stderr);
        assert!(run.stderr.contains("another program changes the target"), "{}: {}", kind.name, run.stderr);
        second.ok(&["replicate", "URL"]);
        assert!(
            second.ok(&["verify", "--replica", "URL", "--data"]).contains("all is well"),
            "{}",
            kind.name
        );

        // A clone from the incomplete replica makes no store. It continues when the replica is
        // complete.
        // The end of the log stays, since a replica that has lost it is refused as an older one.
        let mut objects = there.list("arenas").unwrap();
        objects.sort();
        for object in objects.iter().rev().skip(1).step_by(2) {
            there.remove(&object.name).unwrap();
        }
        // The missing arenas count as damage.
        let run = second.run(&["clone", "URL", "clone"]);
        assert_eq!(run.code, Some(5), "{}: {}", kind.name, run.stderr);
        assert!(run.stderr.contains("clone is not a store yet"), "{}: {}", kind.name, run.stderr);
        assert!(!second.sandbox.path("clone/config.toml").exists());
        second.run(&["replicate", "URL"]);
        second.ok(&["clone", "URL", "clone"]);
        assert!(
            second.run_at(&second.sandbox.path("clone"), &["cat", "disk"]).stdout == disk,
            "{}",
            kind.name
        );
    }
}

#[test]
fn credentials_that_expire_end_it_at_once_and_new_ones_go_on() {
    let Some(kind) = kinds::s3() else { return };
    let proxy = Proxy::to(kind.server.port);
    let second = Second::through(&kind, proxy.port);
    second.sandbox.snapshot_bytes("disk", &noise(42, 8_000_000));
    for (answer, code) in [(EXPIRED, "ExpiredToken"), (SKEWED, "RequestTimeTooSkewed")] {
        let before = second.segments().len();
        let replicating = slowly(&second);
        wait_for_segments(&second, before + 1);
        proxy.plan(&[Fault::Answer(answer); 500]);
        let begun = Instant::now();
        let run = ended(replicating);
        assert_eq!(run.code, Some(1), "{}", run.stderr);
        assert!(run.stderr.contains(code) && run.stderr.contains("refused"), "{}", run.stderr);
        assert!(begun.elapsed() < Duration::from_secs(20), "what will not pass is not tried for minutes");
        proxy.plan(&[]);
    }
    let arrived = second.segments().len() as u64;
    let rest = second.json(&["replicate", "URL", "--segment-size", "1M"]);
    assert!(arrived >= 2 && rest["objects"].as_u64().unwrap() < arrived + 8, "{arrived} arrived; {rest}");
    assert!(second.ok(&["verify", "--replica", "URL", "--data"]).contains("all is well"));
}

#[test]
fn a_password_that_is_changed_meanwhile_ends_it_at_once() {
    let Some(kind) = kinds::webdav() else { return };
    let second = Second::new(&kind);
    second.sandbox.snapshot_bytes("disk", &noise(43, 8_000_000));
    let replicating = slowly(&second);
    wait_for_segments(&second, 1);
    let users = kind.server.folder.path().join("users");
    let right = fs::read(&users).unwrap();
    fs::write(&users, "ann:{PLAIN}another\n").unwrap();
    let begun = Instant::now();
    let run = ended(replicating);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("401") && !run.stderr.contains("hunter2"), "{}", run.stderr);
    assert!(begun.elapsed() < Duration::from_secs(20));
    fs::write(&users, right).unwrap();
    second.ok(&["replicate", "URL"]);
    assert!(second.ok(&["verify", "--replica", "URL", "--data"]).contains("all is well"));
}

/// Two machines have copies of one store with different histories, and replicate at the same time.
#[test]
fn two_at_the_same_time_never_mix() {
    for kind in [kinds::s3(), kinds::sftp(), kinds::webdav()].into_iter().flatten() {
        let second = Second::new(&kind);
        let sandbox = Sandbox::copy_of(second.sandbox.store(), second.sandbox.key());
        second.sandbox.snapshot_bytes("near", &noise(44, 3_000_000));
        sandbox.snapshot_bytes("far", &noise(45, 3_000_000));
        let words = ["-q", "replicate", "URL", "--segment-size", "1M"];
        let one = second.begin(&words);
        let mut other = sandbox.command();
        other.envs(kind.environment(kind.server.port)).args([
            "-q",
            "replicate",
            &second.url,
            "--segment-size",
            "1M",
        ]);
        let other = Run::new(other.output().unwrap());
        let one = ended(one);
        let refused: Vec<_> = [&one, &other].into_iter().filter(|run| run.code != Some(0)).collect();
        assert!(!refused.is_empty(), "{}: two histories, and both are told that all is well", kind.name);
        for run in &refused {
            assert!(
                run.stderr.contains("another history") || run.stderr.contains("has more than"),
                "{}",
                run.stderr
            );
        }
        // A reader finds only one of the two histories, and each snapshot that it can read is
        // complete.
        let listed = second.run_at(second.url.as_ref(), &["snapshots"]);
        let shows = |name: &str| listed.text().contains(name);
        assert!(!(shows("near") && shows("far")), "{}: {}", kind.name, listed.text());
        for (name, bytes) in [("near", noise(44, 3_000_000)), ("far", noise(45, 3_000_000))] {
            let read = second.run_at(second.url.as_ref(), &["cat", name]);
            assert!(read.code != Some(0) || read.stdout == bytes, "{}: {name}", kind.name);
        }
        // Each history is intact at a place of its own.
        second.ok(&["replicate", &format!("{}-own", second.sandbox.arg("replica"))]);
        assert!(sandbox.ok(["verify", "--data"]).contains("all is well"));
    }
}
