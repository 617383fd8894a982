//! A bucket in which nothing can be changed or removed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::kinds::{self, Kind};
use crate::lonely_server::program;
use crate::recovery_page;
use crate::sandbox::{json_lines, noise};
use crate::second_home::Second;

const RULE: &str = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
    <Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
const RULE_MD5: &str = "Content-MD5: bAtV4GhRHjlhyrqo+OfhYg==";
const RULE_SHA256: &str = "6f5e7ab570c3c80c33995fa80b66a80d2a419088c5f98fcdb1f3048b3ea3cf84";
const RETENTION: &str = "<Retention><Mode>GOVERNANCE</Mode>\
    <RetainUntilDate>2099-01-01T00:00:00Z</RetainUntilDate></Retention>";
const RETENTION_MD5: &str = "Content-MD5: Ro4cqw9MCzVd6FIaVj0q7Q==";
const RETENTION_SHA256: &str = "3b73d3dd05f3b68c080de883d28d91eab433c355ec4a3a405564c24a31070b7d";
const NOTHING_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The answer of the server to a request of its owner: the status, and the headers.
fn ask(curl: &Path, sha256: &str, words: &[&str]) -> (u16, String) {
    let mut command = Command::new(curl);
    command.args(["-s", "-D", "-", "-o", "/dev/null", "--aws-sigv4", "aws:amz:us-east-1:s3"]);
    command.args(["--user", "test:testsecret", "-H", &format!("x-amz-content-sha256: {sha256}")]);
    let said = String::from_utf8(command.args(words).output().unwrap().stdout).unwrap();
    let status = said.split_whitespace().nth(1).unwrap_or_else(|| panic!("{words:?}: no answer"));
    (status.parse().unwrap(), said)
}

/// Makes the bucket `locked`, whose rule protects each new version of an object. Returns its URL.
fn make_locked_bucket(curl: &Path, kind: &Kind) -> String {
    let bucket = format!("http://127.0.0.1:{}/locked", kind.server.port);
    let lock = ["-X", "PUT", "-H", "x-amz-bucket-object-lock-enabled: true", &bucket];
    assert_eq!(ask(curl, NOTHING_SHA256, &lock).0, 200);
    let rule = format!("{bucket}?object-lock=");
    let rule = ["-X", "PUT", "-H", RULE_MD5, "-H", "Content-Type:", "--data-binary", RULE, &rule];
    assert_eq!(ask(curl, RULE_SHA256, &rule).0, 200);
    bucket
}

/// The names of all files below a folder.
fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let own = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_below(&entry.path()).iter().map(|below| format!("{own}/{below}"))),
            false => found.push(own),
        }
    }
    found
}

#[test]
fn a_bucket_with_object_lock_will_do() {
    let (Some(kind), Some(curl)) = (kinds::s3(), program("curl")) else { return };
    let server = format!("http://127.0.0.1:{}", kind.server.port);
    let bucket = make_locked_bucket(&curl, &kind);

    let mut second = Second::new(&kind);
    second.url = format!("s3://locked/replica?endpoint={server}");
    second.sandbox.snapshot_bytes("disk", &noise(51, 2_300_000));
    second.ok(&["replicate", "URL", "--segment-size", "1M"]);
    second.sandbox.snapshot_bytes("disk", &noise(52, 400_000));
    second.ok(&["replicate", "URL", "--segment-size", "1M"]);
    assert!(second.ok(&["verify", "--replica", "URL", "--data"]).contains("all is well"));

    // The lock is effective: not even the owner can remove an object.
    let object = format!("{bucket}/replica/config.toml");
    let (status, headers) = ask(&curl, NOTHING_SHA256, &["-I", &object]);
    assert_eq!(status, 200);
    let version =
        headers.lines().find_map(|line| line.to_lowercase().strip_prefix("x-amz-version-id:").map(|_| line));
    let version = version.unwrap().split(':').nth(1).unwrap().trim().to_owned();
    let remove = format!("{object}?versionId={version}");
    assert_eq!(ask(&curl, NOTHING_SHA256, &["-X", "DELETE", &remove]).0, 403);
    second.ok(&["clone", "URL", "clone"]);
    assert!(fs::read(second.sandbox.path("clone/config.toml")).is_ok());

    // A replica in such a bucket shrinks only after the lock has ended.
    let older = second.sandbox.ids();
    second.sandbox.snapshot_bytes("disk", &noise(53, 2_300_000));
    let words = ["forget", "--undo-days", "0"].into_iter().chain(older.iter().map(String::as_str));
    second.ok(&words.collect::<Vec<_>>());
    second.ok(&["gc"]);
    // The server does not tell of the bucket's rule; it tells of the lock of a single object.
    second.ok(&["replicate", "URL", "--segment-size", "1M"]);
    let plan = second.run(&["--json", "replicate", "URL", "--drop-superseded", "--dry-run"]);
    let plan = json_lines(&plan.text()).pop().unwrap();
    let locked = plan["objects"][0].as_str().unwrap().to_owned();
    let until = format!("{bucket}/replica/{locked}?retention=");
    let until = ["-X", "PUT", "-H", RETENTION_MD5, "-H", "Content-Type:", "--data-binary", RETENTION, &until];
    assert_eq!(ask(&curl, RETENTION_SHA256, &until).0, 200);
    let run = second.run(&["replicate", "URL", "--segment-size", "1M", "--drop-superseded"]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("object protected by object lock"), "{}", run.stderr);
    assert!(!run.stderr.contains(&locked), "{}", run.stderr);
    assert!(run.text().contains("removed 0 objects"), "{}", run.text());
    assert!(run.text().contains("stay, locked there: all may be removed after 2099-01-01"), "{}", run.text());
    assert!(second.ok(&["verify", "--replica", "URL", "--data"]).contains("all is well"));
}

/// A thief of the credentials cannot remove a locked version, but can hide it behind a delete
/// marker or a new version. The reader is led to the objects as they were.
#[test]
fn objects_behind_delete_markers_are_found() {
    let (Some(kind), Some(curl)) = (kinds::s3(), program("curl")) else { return };
    let bucket = make_locked_bucket(&curl, &kind);
    let mut second = Second::new(&kind);
    second.url = format!("s3://locked/replica?endpoint=http://127.0.0.1:{}", kind.server.port);
    second.sandbox.snapshot_bytes("disk", &noise(51, 2_300_000));
    second.ok(&["replicate", "URL", "--segment-size", "1M"]);
    // The server tells of the lock of a single object only, and not of the bucket's rule.
    let until = format!("{bucket}/replica/replica.toml?retention=");
    let until = ["-X", "PUT", "-H", RETENTION_MD5, "-H", "Content-Type:", "--data-binary", RETENTION, &until];
    assert_eq!(ask(&curl, RETENTION_SHA256, &until).0, 200);
    let audit = second.ok(&["verify", "--replica", "URL"]);
    assert!(audit.contains("object lock protects its first object until 2099-01-01"), "{audit}");
    let (store, url) = (second.sandbox.store().display(), &second.url);
    let key =
        second.sandbox.key().map(|key| format!("key-file = \"{}\"\n", key.display())).unwrap_or_default();
    let config = format!(
        "state = \"state\"\n[store.main]\nat = \"{store}\"\n{key}[source.home]\nfolder = \"home\"\nevery = \"day\"\n\
         [replica.vault]\nat = \"{url}\"\nevery = \"day\"\n[promise]\nreplica-within = \"8d\"\n"
    );
    fs::write(second.sandbox.path("varve.toml"), config).unwrap();
    let status = second.run(&["status", "--config", "varve.toml"]).text();
    let line = "it has every snapshot; object lock protects its first object until 2099-01-01";
    assert!(status.contains(line), "{status}");

    let names = files_below(&kind.server.folder.path().join("s3/locked/replica"));
    let names: Vec<_> = names.iter().filter(|name| !name.starts_with('.')).collect();
    assert!(names.len() > 5, "{names:?}");
    // The server tells times in whole seconds.
    std::thread::sleep(Duration::from_millis(1100));
    for name in &names {
        let status = ask(&curl, NOTHING_SHA256, &["-X", "DELETE", &format!("{bucket}/replica/{name}")]).0;
        assert_eq!(status, 204, "{name}");
    }
    let text = format!("{} objects are hidden there by delete markers since 20", names.len());
    for (store, words) in [
        (second.sandbox.store(), &["clone", "URL", "nothing"][..]),
        (Path::new(&second.url), &["snapshots"]),
        (second.sandbox.store(), &["verify", "--replica", "URL"]),
    ] {
        let run = second.run_at(store, words);
        assert!(run.stderr.contains(&text), "{words:?}: {}", run.stderr);
        assert_eq!(run.code, Some(10), "{words:?}");
    }
    let run = second.run(&["replicate", "URL"]);
    assert!(run.stderr.contains(&text) && run.code == Some(1), "{}", run.stderr);
    let run = second.run(&["clone", "URL", "nothing"]);
    let before = run.stderr.split('\'').find(|part| part.starts_with("s3://")).unwrap().to_owned();
    assert!(before.contains("as-of=20"), "{before}");
    second.url = before;
    assert!(second.ok(&["verify", "--replica", "URL", "--data"]).contains("all is well"));
    let clone = second.sandbox.path("clone");
    let commands = recovery_page::commands_of("The objects in a bucket are hidden");
    assert_eq!(commands.len(), 2);
    for line in commands {
        let words: Vec<_> = line.split(' ').skip(1).collect();
        let words: Vec<_> = words
            .into_iter()
            .map(|word| match word {
                "/backup/store" => clone.to_str().unwrap(),
                word if word.contains("?as-of=") => "URL",
                word => word,
            })
            .collect();
        match words.as_slice() {
            ["-s", store, words @ ..] => drop(second.ok_at(Path::new(store), words)),
            words => drop(second.ok(words)),
        }
    }
    second.sandbox.snapshot_bytes("disk", &noise(52, 100_000));
    let written = second.run(&["replicate", "URL"]);
    assert_eq!(written.code, Some(1), "{}", written.stderr);
    assert!(written.stderr.contains("the bucket is read as it was"), "{}", written.stderr);
}
