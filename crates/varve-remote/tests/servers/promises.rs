//! The capabilities that each kind of target promises, measured.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use varve_remote::{
    FolderTarget, OpenOptions, Pace, Password, PutMode, Target, TargetError, UnknownHosts, contract,
};
use varve_world::FileName;

use crate::kinds::{self, Kind, make_key, who_i_am};
use crate::lonely_server::program;

fn keeps_the_contract(kind: Option<Kind>) {
    let Some(kind) = kind else { return };
    contract::check(&mut || kind.fresh());
    contract::check_many(&*kind.fresh());
}

#[test]
fn s3_keeps_the_contract() {
    keeps_the_contract(kinds::s3());
}

#[test]
fn sftp_keeps_the_contract() {
    keeps_the_contract(kinds::sftp());
}

#[test]
fn ftp_keeps_the_contract() {
    keeps_the_contract(kinds::ftp());
}

#[test]
fn ftps_keeps_the_contract() {
    keeps_the_contract(kinds::ftps());
}

#[test]
fn webdav_keeps_the_contract() {
    keeps_the_contract(kinds::webdav());
}

#[test]
fn webdavs_keeps_the_contract() {
    keeps_the_contract(kinds::webdavs());
}

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

/// The table in `docs/guide/remotes.md` states the capabilities measured here.
#[test]
fn promises_are_those_of_the_page() {
    let page = include_str!("../../../../docs/guide/remotes.md");
    for kind in kinds::all() {
        let promised = kind.fresh().capabilities();
        let yes_or_no = |is: bool| if is { "yes" } else { "no" };
        let row = format!(
            "| {} | {} | {} |",
            kind.name,
            yes_or_no(promised.create_is_exclusive),
            yes_or_no(promised.ranges)
        );
        let rows = page.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(rows.into_iter().any(|line| line.starts_with(&row)), "docs/guide/remotes.md lacks: {row}");
    }
}

#[test]
fn large_objects_go_up_and_come_back() {
    for kind in kinds::all() {
        let target = kind.fresh();
        let words = (0_u32..10 << 20).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_be_bytes());
        let contents = Bytes::from(words.collect::<Vec<u8>>());
        let object = name("arenas/0000000001/object");
        let started = Instant::now();
        target.put(&object, contents.clone(), PutMode::Create).unwrap();
        let up = started.elapsed();
        assert!(target.get(&object, 0..40 << 20).unwrap() == contents, "{}", kind.name);
        println!("{}: 40 MiB up in {up:?}, down in {:?}", kind.name, started.elapsed() - up);
        let again = target.put(&object, contents.slice(1..), PutMode::Create);
        assert!(matches!(again, Err(TargetError::Exists { .. })), "{}: {again:?}", kind.name);
        target.put(&object, contents.slice(7..), PutMode::Replace).unwrap();
        assert_eq!(target.get(&object, 1000..1020).unwrap(), contents.slice(1007..1027), "{}", kind.name);
        let listed = target.list("").unwrap();
        assert_eq!((listed.len(), listed[0].bytes), (1, contents.len() as u64 - 7), "{}", kind.name);
    }
}

#[test]
fn racing_creators_of_large_objects_have_one_winner() {
    let Some(kind) = kinds::s3() else { return };
    let target = kind.fresh();
    assert!(target.capabilities().create_is_exclusive);
    let claims: Vec<_> = std::thread::scope(|scope| {
        let create = |hand: u8| {
            let target = &target;
            move || target.put(&name("claim"), vec![hand; 17 << 20].into(), PutMode::Create)
        };
        let hands: Vec<_> = (0..3).map(|hand| scope.spawn(create(hand))).collect();
        hands.into_iter().map(|hand| hand.join().unwrap()).collect()
    });
    let winners: Vec<_> = (0_u8..).zip(&claims).filter(|(_, claim)| claim.is_ok()).collect();
    assert_eq!(winners.len(), 1, "{claims:?}");
    assert_eq!(target.get(&name("claim"), 9..10).unwrap(), vec![winners[0].0]);
}

/// Removes temporary files of writers that stopped days ago by the server's clock. It removes
/// nothing else, and nothing that a live writer may be using.
#[test]
fn what_dead_writers_left_is_removed() {
    let own = tempfile::tempdir().unwrap();
    let mut places: Vec<(&str, Box<dyn Target>, _)> =
        vec![("folder", Box::new(FolderTarget::new(own.path())), own.path().to_owned())];
    // The other servers in these tests omit names that begin with a dot from their listings.
    let kind = kinds::sftp();
    if let Some(kind) = &kind {
        let place = kind.fresh_place();
        places.push((kind.name, kind.at(&place), kind.folder(&place)));
    }
    for (label, target, folder) in places {
        target.put(&name("arenas/object"), Bytes::from_static(b"whole"), PutMode::Create).unwrap();
        let leave = |file: &str, age: &str| {
            let path = folder.join(file);
            fs::write(&path, b"half").unwrap();
            let touched = Command::new("touch").args(["-d", age]).arg(&path).status();
            assert!(touched.unwrap().success());
            path
        };
        let dead = leave("arenas/.varve-0123456789abcdef.tmp", "4 days ago");
        let dead_above = leave(".varve-1123456789abcdef.tmp", "40 days ago");
        let stays = [
            leave("arenas/.varve-2123456789abcdef.tmp", "2 days ago"),
            leave("arenas/.varve-foreign.tmp", "400 days ago"),
            leave("arenas/old", "400 days ago"),
        ];
        assert_eq!(target.remove_leftovers(), 0, "{label}: no listing has shown any");
        assert_eq!(target.list("").unwrap().len(), 2, "{label}");
        assert_eq!(target.remove_leftovers(), 2, "{label}");
        assert!(!dead.exists() && !dead_above.exists(), "{label}");
        assert!(stays.iter().all(|path| path.exists()), "{label}");
        assert_eq!(target.list("").unwrap().len(), 2, "{label}");
        assert_eq!(target.remove_leftovers(), 0, "{label}");
    }
}

#[test]
fn paces_are_kept_within_an_object() {
    for kind in kinds::all() {
        let pace = || Some(Arc::new(Pace::new(1 << 20)));
        let options = OpenOptions { up: pace(), down: pace(), ..kind.options.clone() };
        let target = kind.through(kind.server.port, &kind.fresh_place(), &options);
        let started = Instant::now();
        target.put(&name("object"), vec![7; 1 << 20].into(), PutMode::Create).unwrap();
        let up = started.elapsed();
        assert_eq!(target.get(&name("object"), 0..1 << 20).unwrap(), vec![7; 1 << 20]);
        let down = started.elapsed() - up;
        for (what, passed) in [("up", up), ("down", down)] {
            let seconds = passed.as_secs_f64();
            assert!(
                (0.7..5.0).contains(&seconds),
                "{}: 1 MiB {what} at 1 MiB a second took {seconds} s",
                kind.name
            );
        }
    }
}

#[test]
fn who_is_not_let_in_is_refused_at_once() {
    let wrong = |kind: &Kind| OpenOptions {
        password: Some(Password::new("wrong".into())),
        identity_file: None,
        s3_keys: kind
            .options
            .s3_keys
            .clone()
            .map(|keys| varve_remote::S3Keys { secret_key: Password::new("wrong".into()), ..keys }),
        ..kind.options.clone()
    };
    for kind in [kinds::s3(), kinds::sftp(), kinds::webdav()].into_iter().flatten() {
        let target = kind.through(kind.server.port, "place", &wrong(&kind));
        let started = Instant::now();
        for refused in [
            target.put(&name("object"), Bytes::new(), PutMode::Create),
            target.get(&name("object"), 0..1).map(drop),
            target.list("").map(drop),
            target.remove(&name("object")),
        ] {
            assert!(matches!(refused, Err(TargetError::Refused { .. })), "{}: {refused:?}", kind.name);
            let shown = format!("{refused:?} {}", refused.as_ref().unwrap_err());
            assert!(!shown.contains("wrong"), "{}: {shown}", kind.name);
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{}", kind.name);
    }
}

#[test]
fn a_user_whom_the_ftp_server_does_not_know_is_refused() {
    for kind in [kinds::ftp(), kinds::ftps()].into_iter().flatten() {
        let scheme = kind.name;
        let url = format!("{scheme}://ann:hunter2@127.0.0.1:{}/up", kind.server.port);
        let refused = varve_remote::open(&url, &kind.options).unwrap().list("");
        assert!(matches!(refused, Err(TargetError::Refused { .. })), "{scheme}: {refused:?}");
        assert!(!format!("{refused:?}").contains("hunter2"));
    }
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused() {
    for kind in [kinds::ftps(), kinds::webdavs()].into_iter().flatten() {
        let options = OpenOptions { authorities: None, ..kind.options.clone() };
        let refused = kind.through(kind.server.port, "place", &options).list("");
        assert!(matches!(refused, Err(TargetError::Refused { .. })), "{}: {refused:?}", kind.name);
    }
}

#[test]
fn only_known_ssh_servers_are_believed() {
    let (Some(kind), Some(keygen)) = (kinds::sftp(), program("ssh-keygen")) else { return };
    let empty = kind.server.folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let unknown = OpenOptions { known_hosts: Some(empty.clone()), ..kind.options.clone() };
    let says = |outcome: Result<Vec<varve_remote::Object>, TargetError>| match outcome {
        Err(TargetError::Refused { source, .. }) => source.to_string(),
        other => panic!("{other:?}"),
    };
    let list = |options: &OpenOptions| kind.through(kind.server.port, "place", options).list("");
    assert!(says(list(&unknown)).contains("not among the known hosts"));
    let accepting = OpenOptions { unknown_hosts: UnknownHosts::Accept, ..unknown };
    assert_eq!(list(&accepting).unwrap(), []);
    // A key that differs from the known one is refused even then.
    let other = kind.server.folder.path().join("other");
    make_key(&keygen, &other);
    let key = fs::read_to_string(other.with_extension("pub")).unwrap();
    fs::write(&empty, format!("[127.0.0.1]:{} {key}", kind.server.port)).unwrap();
    assert!(says(list(&accepting)).contains("differs from the known one"));
}

struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn an_agent_lets_us_in() {
    let (Some(kind), Some(agent), Some(add)) = (kinds::sftp(), program("ssh-agent"), program("ssh-add"))
    else {
        return;
    };
    let folder = kind.server.folder.path();
    let socket = folder.join("agent");
    let mut command = Command::new(agent);
    command.args(["-D", "-a"]).arg(&socket).stdout(Stdio::null());
    let _agent = Agent(command.spawn().unwrap());
    let started = Instant::now();
    while !socket.exists() {
        assert!(started.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut added = Command::new(add);
    added.arg("-q").arg(folder.join("user")).env("SSH_AUTH_SOCK", &socket);
    assert!(added.status().unwrap().success());
    let options = OpenOptions { identity_file: None, agent: Some(socket), ..kind.options.clone() };
    let target = kind.through(kind.server.port, "place", &options);
    target.put(&name("object"), Bytes::from_static(b"x"), PutMode::Create).unwrap();
}

#[test]
fn the_usual_keys_of_a_user_let_us_in() {
    let Some(kind) = kinds::sftp() else { return };
    let folder = kind.server.folder.path();
    let ssh = folder.join("home/.ssh");
    fs::create_dir_all(&ssh).unwrap();
    fs::copy(folder.join("user"), ssh.join("id_ed25519")).unwrap();
    fs::copy(folder.join("known_hosts"), ssh.join("known_hosts")).unwrap();
    let home = Some(folder.join("home"));
    let options = OpenOptions { home, patience: kind.options.patience, ..OpenOptions::default() };
    let url = format!("sftp://{}@127.0.0.1:{}{}/files/x", who_i_am(), kind.server.port, folder.display());
    let target: Box<dyn Target> = varve_remote::open(&url, &options).unwrap();
    target.put(&name("object"), Bytes::from_static(b"x"), PutMode::Create).unwrap();
}

#[test]
fn a_bucket_that_is_not_there_is_refused() {
    let Some(kind) = kinds::s3() else { return };
    let url = format!("s3://elsewhere?endpoint=http://127.0.0.1:{}", kind.server.port);
    let target = varve_remote::open(&url, &kind.options).unwrap();
    for refused in [
        target.list("").map(drop),
        target.get(&name("object"), 0..1).map(drop),
        target.put(&name("object"), Bytes::new(), PutMode::Create),
    ] {
        assert!(matches!(refused, Err(TargetError::Refused { .. })), "{refused:?}");
    }
}
