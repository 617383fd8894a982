//! A bucket in which nothing can be changed or removed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::kinds;
use crate::lonely_server::program;
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

#[test]
fn a_bucket_with_object_lock_will_do() {
    let (Some(kind), Some(curl)) = (kinds::s3(), program("curl")) else { return };
    let server = format!("http://127.0.0.1:{}", kind.server.port);
    let bucket = format!("{server}/locked");
    let lock = ["-X", "PUT", "-H", "x-amz-bucket-object-lock-enabled: true", &bucket];
    assert_eq!(ask(&curl, NOTHING_SHA256, &lock).0, 200);
    let rule = format!("{bucket}?object-lock=");
    let rule = ["-X", "PUT", "-H", RULE_MD5, "-H", "Content-Type:", "--data-binary", RULE, &rule];
    assert_eq!(ask(&curl, RULE_SHA256, &rule).0, 200);

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
