//! Daily work: disks that are not mounted, silent servers, secrets, and machines without
//! certificate authorities.

#![expect(clippy::disallowed_methods, reason = "servers are awaited in real time")]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::daily::{HOME, broken, configure, daily, daily_ok, home, names};
use crate::daily_notices::{Recorded, http, server};
use crate::sandbox::{Run, Sandbox};

const PROMISES: &str = "[promise]\nsnapshot-within = \"30h\"\nreplica-within = \"2d\"\n";

/// Makes a sandbox with a replica on a disk that is mounted at `media`.
fn with_replica(when: &str) -> Sandbox {
    let sandbox = home("");
    fs::create_dir(sandbox.path("media")).unwrap();
    let at = sandbox.arg("media/copy");
    configure(&sandbox, &format!("{HOME}[replica.copy]\nat = \"{at}\"\n{when}\n{PROMISES}"));
    sandbox
}

/// Puts an empty folder in the place of a mounted disk.
fn unmount(sandbox: &Sandbox) {
    fs::rename(sandbox.path("media"), sandbox.path("disk")).unwrap();
    fs::create_dir(sandbox.path("media")).unwrap();
}

#[test]
fn a_replica_on_a_disk_that_is_not_mounted_is_not_made_anew() {
    let sandbox = with_replica("");
    daily_ok(&sandbox, &["run"]);
    assert_eq!(broken(&sandbox), [""; 0]);
    unmount(&sandbox);
    let found = broken(&sandbox);
    assert!(
        found
            .iter()
            .any(|one| one
                .starts_with("replica-within copy: its place holds no copy: its disk is not mounted")),
        "{found:#?}"
    );
    // Without the run log, the store still knows that it was replicated there.
    fs::remove_dir_all(sandbox.path("run-state")).unwrap();
    let run = daily(&sandbox, &["run"]);
    assert_eq!(run.code, Some(1), "{}{}", run.text(), run.stderr);
    assert!(run.stderr.contains("no copy is left: its disk is not mounted"), "{}", run.stderr);
    assert!(
        run.stderr.contains("hint: mount the disk, or correct the address; --recreate"),
        "{}",
        run.stderr
    );
    assert_eq!(fs::read_dir(sandbox.path("media")).unwrap().count(), 0, "nothing was written");
    assert_eq!(broken(&sandbox).len(), 1);

    // The disk is mounted again.
    fs::remove_dir(sandbox.path("media")).unwrap();
    fs::rename(sandbox.path("disk"), sandbox.path("media")).unwrap();
    sandbox.ok(["replicate", "media/copy"]);
    assert_eq!(broken(&sandbox), [""; 0]);
    // It is another disk, and the user says so.
    unmount(&sandbox);
    assert!(sandbox.fails(1, ["replicate", "media/copy", "--dry-run"]).contains("no copy is left"));
    sandbox.ok(["replicate", "media/copy", "--recreate"]);
    assert_eq!(broken(&sandbox), [""; 0]);
    sandbox.ok(["replicate", "media/copy"]);
    assert!(sandbox.ok(["verify", "--replica", "media/copy", "--data"]).contains("all is well"));
}

#[test]
fn a_disk_that_comes_and_goes_is_no_harm_while_nothing_is_missing_on_it() {
    let sandbox = with_replica("when = \"present\"");
    daily_ok(&sandbox, &["run"]);
    sandbox.ok(["replicate", "media/copy"]);
    daily_ok(&sandbox, &["run"]);
    unmount(&sandbox);
    daily_ok(&sandbox, &["run"]);
    assert_eq!(broken(&sandbox), [""; 0]);
    let status = daily_ok(&sandbox, &["status"]);
    assert!(status.contains("it cannot be reached now"), "{status}");
}

#[test]
fn a_source_on_a_disk_that_is_not_mounted_is_not_archived_as_empty() {
    let sandbox = home(PROMISES);
    daily_ok(&sandbox, &["run"]);
    fs::rename(sandbox.path("home"), sandbox.path("disk")).unwrap();
    fs::create_dir(sandbox.path("home")).unwrap();
    let refused = sandbox.fails(1, ["snapshot", "home"]);
    assert!(refused.contains("the folder is empty, but its newest snapshot has 1 entry"), "{refused}");
    assert!(refused.contains("hint: mount the disk; --allow-empty"), "{refused}");
    let found = broken(&sandbox);
    assert!(found[0].contains("the folder is empty now, but the newest snapshot has 1 entry"), "{found:#?}");
    assert_eq!(daily(&sandbox, &["run", "home"]).code, Some(1));
    assert_eq!(names(&sandbox), ["home"]);
    // A folder that was empty from the beginning is archived as such.
    fs::create_dir(sandbox.path("new")).unwrap();
    sandbox.ok(["snapshot", "new"]);
    sandbox.ok(["snapshot", "new"]);

    configure(&sandbox, &format!("{HOME}allow-empty = true\n{PROMISES}"));
    assert_eq!(broken(&sandbox), [""; 0]);
    assert_eq!(daily_ok(&sandbox, &["run", "home"]), "snapshot of home: done\n");
    // Once it is accepted, it is not asked again.
    configure(&sandbox, &format!("{HOME}{PROMISES}"));
    daily_ok(&sandbox, &["run", "home"]);
    assert_eq!(broken(&sandbox), [""; 0]);
}

#[test]
fn a_silent_replica_delays_status_for_some_seconds_and_is_named() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let sandbox = home("");
    let replica = |name: &str| {
        format!("[replica.{name}]\nat = \"webdav+http://127.0.0.1:{port}/{name}\"\nevery = \"day\"\n")
    };
    // Two of them cost no more time than one.
    configure(&sandbox, &format!("{HOME}{}{}{PROMISES}", replica("one"), replica("two")));
    daily_ok(&sandbox, &["run", "home"]);
    let begun = Instant::now();
    let status = daily(&sandbox, &["status"]);
    assert!(begun.elapsed() < Duration::from_secs(18), "{:?}", begun.elapsed());
    assert_eq!(status.code, Some(1), "{}{}", status.text(), status.stderr);
    for name in ["one", "two"] {
        let line = status.text().lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert!(line.starts_with("unknown  replica-within") && line.contains("it does not answer"), "{line}");
    }
}

#[test]
fn a_machine_without_certificate_authorities_uses_plain_http() {
    let web = Recorded::default();
    let port = server(&web, http);
    let sandbox = home("");
    configure(
        &sandbox,
        &format!(
            "{HOME}[notify]\nwebhook = {{ url = \"http://127.0.0.1:{port}/hook\" }}\nheartbeat = \"http://127.0.0.1:{port}/ping\"\n"
        ),
    );
    let bare_at = |store: &Path, words: &[&str]| {
        let mut command = sandbox.command_at(store);
        command.args(words).env("SSL_CERT_FILE", "/dev/null").env_remove("SSL_CERT_DIR");
        Run::new(command.output().unwrap())
    };
    let bare = |words: &[&str]| bare_at(sandbox.store(), words);
    let run = bare(&["notify", "--test", "--config", "varve.toml"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(web.lock().len(), 2);
    // A mirror of a replica is read by HTTP, too. This one is empty.
    let run = bare_at(Path::new(&format!("http://127.0.0.1:{port}/x")), &["snapshots"]);
    assert!(!run.stderr.contains("certificate"), "{}", run.stderr);
    // HTTPS needs them, and says so at once.
    let begun = Instant::now();
    for place in ["https://127.0.0.1:1/x", "webdav+https://127.0.0.1:1/x", "ftps://127.0.0.1:1/x"] {
        let run = bare_at(Path::new(place), &["snapshots"]);
        assert!(run.stderr.contains("install ca-certificates"), "{place}: {}", run.stderr);
    }
    configure(
        &sandbox,
        &format!("{HOME}[notify]\nmail = {{ to = [\"a@b.c\"], server = \"smtps://127.0.0.1:1\" }}\n"),
    );
    let run = bare(&["notify", "--test", "--config", "varve.toml"]);
    assert!(run.stderr.contains("install ca-certificates"), "{}", run.stderr);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn a_password_does_not_leave_the_machine_unencrypted() {
    let sandbox = home("");
    let mail = |server: &str, login: &str| {
        let mail = format!("[notify]\nmail = {{ to = [\"a@b.c\"], server = \"{server}\"{login} }}\n");
        configure(&sandbox, &format!("{HOME}{mail}"));
        sandbox.run(["config", "check", "varve.toml"])
    };
    for login in [", user = \"ann\"", ", password-file = \"token\""] {
        let run = mail("smtp://mail.example.org:587", login);
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(run.stderr.contains("a password would travel unencrypted"), "{}", run.stderr);
    }
    assert_eq!(mail("smtp://ann:secret@mail.example.org", "").code, Some(2));
    assert_eq!(mail("smtp://mail.example.org?tls=opportunistic", ", user = \"ann\"").code, Some(2));
    assert_eq!(mail("smtp://mail.example.org?tls=required", ", user = \"ann\"").code, Some(0));
    assert_eq!(mail("smtps://mail.example.org", ", user = \"ann\"").code, Some(0));
    assert_eq!(mail("smtp://localhost:25", ", user = \"ann\"").code, Some(0));
    assert_eq!(mail("smtp://mail.example.org", "").code, Some(0), "without a login there is no secret");
}
