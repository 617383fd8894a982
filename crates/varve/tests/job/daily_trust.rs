//! Files that others can write are not believed, and secrets reach nobody else: configurations, the
//! programs and secrets that they name, command lines and environments.

#![expect(clippy::disallowed_methods, reason = "servers are awaited in real time")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::daily::{HOME, configure, daily, daily_ok, home, names};
use crate::sandbox::{Sandbox, is_root, write_program};

/// Nobody on this machine has this user id.
const STRANGER: u32 = 4_000_000;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn assert_refused(sandbox: &Sandbox, command: &[&str], remedy: &str) {
    let run = daily(sandbox, command);
    assert_eq!(run.code, Some(2), "{command:?}: {}{}", run.text(), run.stderr);
    assert!(run.stderr.contains(remedy), "{remedy}: {}", run.stderr);
}

#[test]
fn a_configuration_that_others_can_write_is_not_believed() {
    let sandbox = home("");
    let parts = sandbox.path("conf.d");
    fs::create_dir(&parts).unwrap();
    let hook = format!("[source.home.hooks]\nbefore = {{ run = [\"touch\", \"{}\"] }}\n", sandbox.arg("ran"));
    fs::write(parts.join("hooks.toml"), hook).unwrap();
    let files = [sandbox.path("varve.toml"), parts.join("hooks.toml"), parts, sandbox.path("")];
    for (path, good, modes) in [
        (&files[0], 0o644, [0o666, 0o664, 0o602]),
        (&files[1], 0o600, [0o777, 0o620, 0o646]),
        (&files[2], 0o755, [0o777, 0o775, 0o757]),
        (&files[3], 0o700, [0o777, 0o770, 0o702]),
    ] {
        for mode in modes {
            set_mode(path, mode);
            let remedy = format!("`chmod go-w {}` protects it", path.display());
            // The sandbox ends its own path with a slash.
            let remedy = remedy.replace("/`", "`");
            for command in [&["run"][..], &["run", "--dry-run"], &["status"], &["notify"]] {
                assert_refused(&sandbox, command, &remedy);
            }
            let checked = sandbox.fails(2, ["config", "check", "varve.toml"]);
            assert!(checked.contains(&remedy), "{checked}");
        }
        set_mode(path, good);
        if is_root() {
            chown(path, Some(STRANGER), None).unwrap();
            assert_refused(&sandbox, &["run"], "belongs to another user (its user id is 4000000)");
            chown(path, Some(0), None).unwrap();
        }
    }
    assert!(!sandbox.path("ran").exists());
    // In a folder such as /tmp, others replace no file.
    set_mode(&files[3], 0o1777);
    daily_ok(&sandbox, &["run"]);
    assert!(sandbox.path("ran").exists());
}

#[test]
fn a_program_that_others_can_write_is_not_started() {
    let sandbox = home("");
    let program = sandbox.path("program");
    write_program(&program, &format!("#!/bin/sh\necho ran >> {}\necho data\n", sandbox.arg("ran")));
    let name = sandbox.arg("program");
    let hook = format!("{HOME}[source.home.hooks]\nbefore = {{ run = [\"{name}\"] }}\n");
    let source = format!("[source.db]\ncommand = [\"{name}\"]\nevery = \"day\"\n");
    let remedy = format!(
        "{name} can be written by other users (its permissions are 0775), so it is not believed; `chmod go-w {name}` protects it"
    );
    for (rest, source) in [(&hook, "home"), (&source, "db")] {
        configure(&sandbox, rest);
        set_mode(&program, 0o775);
        let checked = sandbox.run(["config", "check", "varve.toml"]);
        assert_eq!(checked.stderr.matches(&remedy).count(), 1, "{}", checked.stderr);
        let run = daily(&sandbox, &["run", source]);
        assert_eq!(run.code, Some(1), "{}", run.text());
        assert!(run.stderr.contains(&remedy), "{}", run.stderr);
        assert!(!sandbox.path("ran").exists(), "{source}");
        set_mode(&program, 0o755);
        daily_ok(&sandbox, &["run", source]);
        fs::remove_file(sandbox.path("ran")).unwrap();
    }
    assert_eq!(names(&sandbox).len(), 2);
    // The program that prints the key is one, too.
    let printer = sandbox.path("printer");
    write_program(&printer, &format!("#!/bin/sh\ncat {}\n", sandbox.key().unwrap().display()));
    configure(&sandbox, HOME);
    let key = format!("key-file = \"{}\"", sandbox.key().unwrap().display());
    let config = fs::read_to_string(sandbox.path("varve.toml")).unwrap();
    assert!(config.contains(&key), "{config}");
    let config = config.replace(&key, &format!("key-file-command = [\"{}\"]", printer.display()));
    fs::write(sandbox.path("varve.toml"), config).unwrap();
    set_mode(&printer, 0o777);
    let run = daily(&sandbox, &["run", "home"]);
    assert_eq!(run.code, Some(1), "{}", run.text());
    assert!(run.stderr.contains("printer can be written by other users"), "{}", run.stderr);
    set_mode(&printer, 0o700);
    daily_ok(&sandbox, &["run", "home"]);
}

#[test]
fn a_token_that_others_can_read_is_not_sent() {
    let sandbox = home("");
    fs::write(sandbox.path("token"), "tk_secret\n").unwrap();
    set_mode(&sandbox.path("token"), 0o644);
    // Nobody listens there.
    for channel in [
        "webhook = { url = \"http://127.0.0.1:1/\", token-file = \"token\" }",
        "gotify = { url = \"http://127.0.0.1:1/\", token-file = \"token\" }",
        "mail = { to = [\"a@b.c\"], server = \"smtp://127.0.0.1:1\", user = \"a\", password-file = \"token\" }",
    ] {
        configure(&sandbox, &format!("{HOME}[notify]\n{channel}\n"));
        let remedy = format!("`chmod 600 {}` protects it", sandbox.arg("token"));
        let run = daily(&sandbox, &["notify", "--test"]);
        assert_eq!(run.code, Some(1), "{}", run.text());
        assert!(run.stderr.contains(&remedy), "{}", run.stderr);
        let checked = sandbox.run(["config", "check", "varve.toml"]);
        assert!(checked.stderr.contains(&remedy), "{}", checked.stderr);
    }
}

/// All users of a machine can see a command line.
#[test]
fn the_password_of_a_replica_is_on_no_command_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sandbox = home("");
    let replica =
        format!("[replica.far]\nat = \"webdav+http://user:SECRETPW@127.0.0.1:{port}/x\"\nevery = \"day\"\n");
    configure(&sandbox, &format!("{HOME}{replica}"));
    let checked = sandbox.run(["config", "check", "varve.toml"]);
    let shown = format!("(webdav+http://user@127.0.0.1:{port}/x)");
    assert!(checked.text().contains(&shown) && !checked.text().contains("SECRETPW"), "{}", checked.text());
    // While the job waits for its answer, its command line is there for everybody.
    let seen = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let command_lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        let command_lines: Vec<_> =
            command_lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect();
        drop((stream, listener));
        (head, command_lines)
    });
    let run = daily(&sandbox, &["run"]);
    assert_eq!(run.code, Some(1), "nobody answers: {}{}", run.text(), run.stderr);
    assert!(!format!("{}{}", run.text(), run.stderr).contains("SECRETPW"), "{}", run.stderr);
    let (head, command_lines) = seen.join().unwrap();
    // user:SECRETPW
    let login = "authorization: basic dxnlcjptrunsrvrqvw==";
    assert!(head.iter().any(|line| line.to_lowercase() == login), "{head:#?}");
    assert!(command_lines.iter().any(|line| line.contains(" --json job ")), "{command_lines:#?}");
    assert!(command_lines.iter().all(|line| !line.contains("SECRETPW")), "{command_lines:#?}");
}

#[test]
fn programs_of_a_configuration_inherit_no_secrets() {
    let sandbox = home("");
    let file = sandbox.arg("seen");
    let rest = format!(
        "[source.db]\ncommand = [\"sh\", \"-c\", \"env >> {file}; echo data\"]\nevery = \"day\"\n[source.db.hooks]\n\
         before = {{ run = [\"sh\", \"-c\", \"env >> {file}\"] }}\n"
    );
    configure(&sandbox, &rest);
    let mut command = sandbox.command();
    for variable in ["PASSPHRASE", "NEW_PASSPHRASE", "FROM_PASSPHRASE", "REMOTE_PASSWORD"] {
        command.env(format!("VARVE_{variable}"), "SECRET1");
    }
    for variable in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
        command.env(variable, "SECRET2");
    }
    let output = command.env("ORDERS_HOST", "db1").args(["run", "--config", "varve.toml"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen = fs::read_to_string(&file).unwrap();
    assert!(!seen.contains("SECRET"), "{seen}");
    assert_eq!(seen.matches("ORDERS_HOST=db1").count(), 2, "{seen}");
}
