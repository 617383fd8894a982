//! Notices about promises, metrics, and `setup`.

#![expect(clippy::disallowed_methods, reason = "servers are awaited in real time")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use crate::daily::{HOME, configure, daily, daily_ok, home, take_days_ago, without_figures};
use crate::sandbox::{Sandbox, write_secret};

pub type Recorded = Arc<Mutex<Vec<String>>>;

/// Starts a server that records each exchange. Returns its port.
pub fn server(recorded: &Recorded, serve: fn(TcpStream) -> String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let recorded = Arc::clone(recorded);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let exchange = serve(stream);
            // A request for the time of the server.
            if !exchange.starts_with("HEAD / ") {
                recorded.lock().push(exchange);
            }
        }
    });
    port
}

/// Answers one HTTP request. Returns its first line, its secrets and its body.
pub fn http(stream: TcpStream) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length, mut kept) = (String::new(), 0, String::new());
    reader.read_line(&mut head).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if lower.starts_with("authorization:") || lower.starts_with("x-gotify-key:") {
            kept.push_str(line.trim());
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    format!("{} {kept} {}", head.trim(), String::from_utf8(body).unwrap())
}

/// Takes one mail by SMTP.
fn smtp(stream: TcpStream) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let say = |text: &str| (&stream).write_all(format!("{text}\r\n").as_bytes()).unwrap();
    let (mut mail, mut is_data) = (String::new(), false);
    say("220 sink");
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return mail;
        }
        mail.push_str(&line);
        match line.trim() {
            "." if is_data => {
                is_data = false;
                say("250 taken");
            }
            _ if is_data => {}
            "DATA" => {
                is_data = true;
                say("354 go on");
            }
            "QUIT" => {
                say("221 bye");
                return mail;
            }
            _ => say("250 sink"),
        }
    }
}

fn recorded(from: &Recorded) -> Vec<String> {
    std::mem::take(&mut *from.lock())
}

#[test]
fn changes_of_promises_are_told_once_through_each_channel() {
    let (web, post) = (Recorded::default(), Recorded::default());
    let (port, mail) = (server(&web, http), server(&post, smtp));
    let sandbox = home("");
    write_secret(&sandbox.path("token"), b"tk_secret\n");
    let notify = format!(
        "[promise]\nsnapshot-within = \"30h\"\n[notify]\n\
         mail = {{ to = [\"ops@example.org\"], from = \"varve@example.org\", server = \"smtp://127.0.0.1:{mail}\" }}\n\
         ntfy = {{ url = \"http://127.0.0.1:{port}/alarms\", token-file = \"token\" }}\n\
         gotify = {{ url = \"http://127.0.0.1:{port}/gotify\", token-file = \"token\" }}\n\
         webhook = {{ url = \"http://127.0.0.1:{port}/hook\" }}\n\
         heartbeat = \"http://127.0.0.1:{port}/ping\"\n"
    );
    configure(&sandbox, &format!("{HOME}{notify}"));
    let tested = daily_ok(&sandbox, &["notify", "--test"]);
    assert!(tested.lines().count() == 5 && tested.contains("heartbeat: sent\n"), "{tested}");
    assert_eq!((recorded(&web).len(), recorded(&post).len()), (4, 1));

    // There is no snapshot yet. The heartbeat is silent.
    daily_ok(&sandbox, &["notify"]);
    let requests = recorded(&web);
    assert_eq!(requests.len(), 3, "{requests:#?}");
    let of = |path: &str| requests.iter().find(|one| one.starts_with(&format!("POST {path} "))).unwrap();
    assert!(
        of("/").contains("\"topic\":\"alarms\"") && of("/").contains("Bearer tk_secret"),
        "{requests:#?}"
    );
    assert!(of("/gotify/message").to_lowercase().contains("x-gotify-key: tk_secret"), "{requests:#?}");
    let hook = of("/hook");
    let value: Value = serde_json::from_str(&hook[hook.find('{').unwrap()..]).unwrap();
    assert_eq!(
        (value["state"].as_str(), value["changed"][0]["subject"].as_str()),
        (Some("broken"), Some("home"))
    );
    let mails = recorded(&post);
    assert!(mails[0].contains("RCPT TO:<ops@example.org>"), "{mails:#?}");
    assert!(mails[0].contains("BROKEN snapshot-within 1d 6h home: there is no snapshot"), "{mails:#?}");

    daily_ok(&sandbox, &["notify"]);
    assert_eq!((recorded(&web).len(), recorded(&post).len()), (0, 0), "nothing has changed");
    // The run mends the promise, and the heartbeat begins.
    daily_ok(&sandbox, &["run"]);
    let requests = recorded(&web);
    assert_eq!(requests.len(), 4, "{requests:#?}");
    assert!(requests.iter().any(|one| one.starts_with("GET /ping ")), "{requests:#?}");
    assert!(recorded(&post)[0].contains("every promise is kept"));
    daily_ok(&sandbox, &["run"]);
    assert_eq!(recorded(&web).len(), 0, "a run with nothing due judges nothing for an hour");
}

/// Redirects to the place that the query of the address names.
fn redirect(stream: TcpStream) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    reader.read_line(&mut head).unwrap();
    let place = head.split_whitespace().nth(1).unwrap().rsplit('=').next().unwrap().to_owned();
    (&stream)
        .write_all(
            format!(
                "HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            .as_bytes(),
        )
        .unwrap();
    head
}

/// A proxy or a portal redirects to its login page, whose answer is a success.
#[test]
fn a_notice_that_is_redirected_was_not_sent() {
    let (first, other) = (Recorded::default(), Recorded::default());
    let (from, to) = (server(&first, redirect), server(&other, http));
    let sandbox = home("");
    write_secret(&sandbox.path("token"), b"tk_secret\n");
    let place = format!("http://localhost:{to}/login");
    for channel in ["webhook", "gotify", "ntfy"] {
        let url = format!("http://127.0.0.1:{from}/x?to={place}");
        let rest = format!("[notify]\n{channel} = {{ url = \"{url}\", token-file = \"token\" }}\n");
        configure(&sandbox, &format!("{HOME}{rest}"));
        let run = daily(&sandbox, &["notify", "--test"]);
        assert_eq!(run.code, Some(1), "{channel}: {}{}", run.text(), run.stderr);
        let says =
            format!("varve: {channel}: the server answered 302 Found and redirects to {place}: write that");
        assert!(run.stderr.contains(&says), "{}", run.stderr);
    }
    assert!(other.lock().is_empty(), "{other:?}");
    // A heartbeat stays at its server. It is a channel for a test.
    let heartbeat = |place: &str| {
        let url = format!("http://127.0.0.1:{from}/x?to={place}");
        configure(&sandbox, &format!("{HOME}[notify]\nheartbeat = \"{url}\"\n"));
        daily(&sandbox, &["--json", "notify", "--test"])
    };
    let run = heartbeat(&place);
    assert_eq!(run.code, Some(1), "{}", run.text());
    assert!(run.text().contains("redirects to") && !run.text().contains("no channel"), "{}", run.text());
    assert!(other.lock().is_empty(), "{other:?}");
    let run = heartbeat(&format!("http://127.0.0.1:{to}/ping"));
    assert_eq!(run.code, Some(0), "{}", run.text());
    assert_eq!(run.result()["channel"], "heartbeat");
    assert!(other.lock()[0].starts_with("GET /ping "), "{other:?}");
}

#[test]
fn a_dead_server_delays_a_run_for_a_short_time_and_is_told_again() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let sandbox = home("");
    let notify = |port: u16| {
        format!(
            "{HOME}[promise]\nsnapshot-within = \"1s\"\n[notify]\nwebhook = {{ url = \"http://127.0.0.1:{port}/\" }}\n"
        )
    };
    configure(&sandbox, &notify(port));
    take_days_ago(&sandbox, "home", 2);
    let begun = Instant::now();
    let run = daily(&sandbox, &["notify"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(run.stderr.contains("notice by webhook: "), "{}", run.stderr);
    let web = Recorded::default();
    configure(&sandbox, &notify(server(&web, http)));
    daily_ok(&sandbox, &["notify"]);
    assert_eq!(recorded(&web).len(), 1);
}

#[test]
fn metrics_are_printed_and_written() {
    let sandbox = home("[promise]\nsnapshot-within = \"30h\"\n[notify]\nmetrics-file = \"varve.prom\"\n");
    daily_ok(&sandbox, &["run"]);
    let printed = daily_ok(&sandbox, &["status", "--metrics"]);
    let written = fs::read_to_string(sandbox.path("varve.prom")).unwrap();
    for line in [
        "varve_promise_ok{promise=\"snapshot-within\",subject=\"home\"} 1",
        "varve_promise_limit_seconds{promise=\"snapshot-within\",subject=\"home\"} 108000",
        "varve_job_failures{job=\"snapshot home\"} 0",
        "# TYPE varve_status_time_seconds gauge",
    ] {
        assert!(printed.contains(line) && written.contains(line), "{line}: {printed}{written}");
    }
}

#[test]
fn setup_leads_to_a_snapshot_in_two_commands() {
    let sandbox = Sandbox::empty();
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/letter"), "dear").unwrap();
    let answers = format!(
        "folders = [\"{}\"]\nstore = \"{}\"\nreplica = \"{}\"\n",
        sandbox.arg("home"),
        sandbox.arg("archive"),
        sandbox.arg("copy")
    );
    fs::write(sandbox.path("answers"), &answers).unwrap();
    let config = sandbox.arg("etc/varve.toml");
    let made = sandbox.ok(["setup", "--answers", "answers", "--config", &config]);
    assert!(made.contains("etc/varve.toml is written"), "{made}");
    let paper = made.lines().count();
    assert!(paper > 20, "the paper key is printed: {made}");
    let state = "state = \"state\"\n";
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{state}{text}")).unwrap();
    let done = sandbox.ok(["run", "--config", &config]);
    assert!(done.contains("snapshot of home: done") && done.contains("replica copy: done"), "{done}");
    assert_eq!(sandbox.run(["status", "--config", &config]).code, Some(0));
    let again = sandbox.fails(1, ["setup", "--answers", "answers", "--config", &config]);
    assert!(again.contains("exists already"), "{again}");
    fs::write(sandbox.path("answers"), format!("{answers}folder = \"x\"\n")).unwrap();
    let wrong = sandbox.fails(2, ["setup", "--answers", "answers", "--config", &sandbox.arg("other.toml")]);
    assert!(wrong.contains("unknown answer folder"), "{wrong}");
}

#[test]
fn setup_joins_a_store_that_is_there() {
    let sandbox = Sandbox::encrypted();
    sandbox.add_limited_keys();
    crate::sandbox::write_secret(&sandbox.path("writer"), &fs::read(sandbox.path("writer")).unwrap());
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/letter"), "dear").unwrap();
    let config = sandbox.arg("etc/varve.toml");
    let setup = |key: &str| {
        let (home, store) = (sandbox.arg("home"), sandbox.store().display().to_string());
        let answers = format!("folders = [\"{home}\"]\nstore = \"{store}\"\n{key}");
        fs::write(sandbox.path("answers"), answers).unwrap();
        sandbox.run(["setup", "--answers", "answers", "--config", &config])
    };
    let keys = || sandbox.json(["key", "list"]).len();
    let before = keys();
    let refused = setup("");
    assert_eq!(refused.code, Some(12), "{}", refused.text());
    assert!(refused.stderr.contains("is a store, and was not joined"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: name its key file: key-file = "), "{}", refused.stderr);
    fs::write(sandbox.path("other"), [7; 32]).unwrap();
    crate::sandbox::write_secret(&sandbox.path("other"), &[7; 32]);
    let wrong = setup(&format!("key-file = \"{}\"\n", sandbox.arg("other")));
    assert!(wrong.code == Some(12) && wrong.stderr.contains("was not joined"), "{}", wrong.stderr);
    assert!(!sandbox.path("etc").exists(), "nothing was written");

    let joined = setup(&format!("key-file = \"{}\"\n", sandbox.arg("writer")));
    assert_eq!(joined.code, Some(0), "{}", joined.stderr);
    assert!(joined.text().contains("is joined\nNow `varve run` takes"), "{}", joined.text());
    assert_eq!((keys(), sandbox.path("etc/varve.key").exists()), (before, false), "no key was made");
    let text = fs::read_to_string(&config).unwrap();
    assert!(!text.contains("[care]"), "this key may neither read nor forget: {text}");
    fs::write(&config, format!("state = \"state\"\n{text}")).unwrap();
    assert_eq!(without_figures(&sandbox.ok(["run", "--config", &config])), "snapshot of home: done\n");
    assert_eq!(sandbox.ids().len(), 1);

    // This key cannot see the snapshots, but a run remembers what the folder had.
    fs::remove_file(sandbox.path("home/letter")).unwrap();
    let status = sandbox.run(["status", "--config", &config]);
    assert_eq!(status.code, Some(4), "{}", status.text());
    assert!(status.text().contains("the folder is empty now"), "{}", status.text());
    let run = sandbox.run(["run", "home", "--config", &config]);
    assert_eq!(run.code, Some(1), "{}", run.text());
    assert!(run.stderr.contains("the folder is empty, but its last snapshot has 1 entry"), "{}", run.stderr);
    assert_eq!(sandbox.ids().len(), 1);

    let nowhere = setup(&format!("key-file = \"{}\"\n", sandbox.arg("writer")));
    assert!(nowhere.stderr.contains("exists already"), "{}", nowhere.stderr);
    fs::remove_file(&config).unwrap();
    fs::write(
        sandbox.path("answers"),
        format!("folders = [\"/home\"]\nstore = \"{0}\"\nkey-file = \"{0}\"\n", sandbox.arg("none")),
    )
    .unwrap();
    let none = sandbox.fails(2, ["setup", "--answers", "answers", "--config", &config]);
    assert!(none.contains("there is no store in "), "{none}");
}

/// At a terminal, `setup` asks for the key of a store that is there, and asks nothing else.
#[test]
fn setup_at_a_terminal_asks_for_the_key_of_a_store_that_is_there() {
    if !crate::sandbox::has("script") {
        println!(
            "skipped: the questions of setup at a terminal, because script (util-linux) is not installed"
        );
        return;
    }
    let sandbox = Sandbox::encrypted();
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/letter"), "dear").unwrap();
    let (home, key) = (sandbox.arg("home"), sandbox.key().unwrap().display().to_string());
    let (store, config) = (sandbox.store().display().to_string(), sandbox.arg("etc/varve.toml"));
    let typed = |config: &str, answers: &[&str]| {
        let varve = env!("CARGO_BIN_EXE_varve");
        let mut child = Command::new("script")
            .args(["-qefc", &format!("'{varve}' setup --config '{config}'"), "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        answers.iter().for_each(|answer| writeln!(input, "{answer}").unwrap());
        let run = child.wait_with_output().unwrap();
        (run.status.code(), String::from_utf8_lossy(&run.stdout).replace("\r\n", "\n"))
    };
    // A wrong answer is asked for again, and the others are kept.
    let (code, shown) = typed(&config, &[&home, &store, "/no/key", &key, "hour", "", ""]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("there is no key file /no/key"), "{shown}");
    assert_eq!(
        shown.matches("A store is there, and is joined. Which file has its key?").count(),
        2,
        "{shown}"
    );
    assert_eq!(shown.matches("? ").count(), 7, "five questions, and two for the key: {shown}");
    assert!(shown.contains("is joined\nNow `varve run` takes"), "{shown}");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(&format!("key-file = \"{key}\"")) && text.contains("every = \"hour\""), "{text}");
    fs::write(&config, format!("state = \"state\"\n{text}")).unwrap();
    assert!(sandbox.ok(["run", "home", "--config", &config]).contains("snapshot of home: done"));
    // The folder of a new store is asked for, and no key.
    let (code, shown) = typed(&sandbox.arg("new.toml"), &[&home, &sandbox.arg("new"), "", "", ""]);
    assert!(code == Some(0) && !shown.contains("Which file has its key?"), "{shown}");
}

/// A replica by WebDAV is copied at the rate of its configuration.
#[test]
fn an_upload_keeps_the_rate_of_this_time() {
    let web = crate::daily_sinks::WebSink::start();
    let sandbox = home("");
    fs::write(sandbox.path("home/noise"), crate::sandbox::noise(9, 700_000)).unwrap();
    let replica = |name: &str, upload: &str| {
        let port = web.port;
        let at = format!("at = \"webdav+http://127.0.0.1:{port}/{name}\"");
        configure(&sandbox, &format!("{HOME}[replica.{name}]\n{at}\nupload = {upload}\n"));
        let begun = Instant::now();
        let done = daily_ok(&sandbox, &["run"]);
        assert!(done.contains(&format!("replica {name}: done")), "{done}");
        begun.elapsed()
    };
    replica("free", "{ \"mon..sun 00:00-24:00\" = \"unlimited\", else = \"1K\" }");
    // A token bucket has a quarter of a second ahead.
    let slow = replica("slow", "{ \"00:00-24:00\" = \"200K\", else = \"unlimited\" }");
    assert!(slow > Duration::from_millis(2_800), "700,000 bytes at 200 KiB a second took {slow:?}");
    configure(
        &sandbox,
        &format!("{HOME}[replica.a]\nat = \"/x\"\nupload = {{ \"moon 08:00-09:00\" = \"1M\" }}\n"),
    );
    let wrong = sandbox.fails(2, ["config", "check", "varve.toml"]);
    assert!(wrong.contains("upload: ") && wrong.contains("moon"), "{wrong}");
}
