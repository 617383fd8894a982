//! The web page, served by the real program and read over loopback: the requests that are refused,
//! hostile names and paths, and downloads.
#![allow(clippy::print_stderr, reason = "says what it skipped")]
#![allow(clippy::disallowed_methods, reason = "waits for another process")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Sandbox, has, noise, sample_folder, sparse_image, tool, write_at};

/// The program as a server of the page, which is killed when the value is dropped.
pub(super) struct Page {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    /// `HOST:PORT`.
    host: String,
    /// The key of a link that logs in once.
    key: String,
}

/// An answer of the server.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// False if the connection ended before the end of the answer.
    pub(super) is_whole: bool,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(one, _)| one == name).map_or("", |(_, value)| value)
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The cookies that it sets, as a request sends them.
    fn cookies(&self) -> String {
        let set = self.headers.iter().filter(|(name, _)| name == "set-cookie");
        let pairs: Vec<_> = set.filter_map(|(_, value)| value.split(';').next()).collect();
        pairs.join("; ")
    }

    /// The value of a hidden field.
    fn field(&self, name: &str) -> String {
        let text = self.text();
        let start = format!("name=\"{name}\" value=\"");
        let after = text.split_once(&start).unwrap_or_else(|| panic!("no {name} in {text}")).1;
        after.split('"').next().unwrap().to_owned()
    }
}

impl Page {
    pub(super) fn start(sandbox: &Sandbox, words: &[&str]) -> Self {
        let mut command = sandbox.command();
        command.args(["serve", "--http", "127.0.0.1:0"]).args(words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let serving = line(&mut output);
        let host = serving.strip_prefix("serving at http://").unwrap().trim_end_matches('/').to_owned();
        let key = key_in(&line(&mut output));
        Self { child, output, host, key }
    }

    /// Sends a request with these lines after the first one.
    fn ask(&self, request: &str, lines: &[&str], body: &str) -> Answer {
        let mut socket = TcpStream::connect(&self.host).unwrap();
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        let head =
            format!("{request} HTTP/1.1\r\n{lines}Connection: close\r\nContent-Length: {length}\r\n\r\n");
        // A refused request may be answered before all of it was sent.
        let _ = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(body.as_bytes()));
        let mut all = Vec::new();
        let _ = socket.read_to_end(&mut all);
        let end = all.windows(4).position(|part| part == b"\r\n\r\n");
        // A server that meets damage before its first byte only closes the connection.
        let Some(end) = end else {
            return Answer { status: 0, headers: Vec::new(), body: all, is_whole: false };
        };
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        let mut head = head.split("\r\n");
        let status = head.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<_> = head
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut body = all[end + 4..].to_vec();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let mut is_whole = length.is_none_or(|(_, length)| *length == body.len().to_string());
        if headers.contains(&("transfer-encoding".into(), "chunked".into())) {
            (body, is_whole) = unchunked(&body);
        }
        Answer { status, headers, body, is_whole }
    }

    fn host_line(&self) -> String {
        format!("Host: {}", self.host)
    }

    /// Sends a form as the page itself does.
    fn post(&self, path: &str, cookies: &str, body: &str) -> Answer {
        let origin = format!("Origin: http://{}", self.host);
        let cookies = format!("Cookie: {cookies}");
        let kind = "Content-Type: application/x-www-form-urlencoded";
        let lines = [&self.host_line(), &origin, "Sec-Fetch-Site: same-origin", &cookies, kind];
        self.ask(&format!("POST {path}"), &lines, body)
    }

    /// Gets an address in a session.
    pub(super) fn get(&self, path: &str, cookies: &str) -> Answer {
        let answer = self.get_part(path, cookies);
        assert!(answer.is_whole, "{path}: the answer has no end: {:?}", answer.body);
        answer
    }

    /// Gets an address whose answer may end early.
    pub(super) fn get_part(&self, path: &str, cookies: &str) -> Answer {
        self.ask(&format!("GET {path}"), &[&self.host_line(), &format!("Cookie: {cookies}")], "")
    }

    /// Logs in by the link, and returns the cookies of the session.
    pub(super) fn log_in(&self) -> String {
        let form = self.get(&format!("/login?key={}", self.key), "");
        let body = format!("token={}&key={}&to=/look", form.field("token"), form.field("key"));
        let answer = self.post("/login", &form.cookies(), &body);
        assert_eq!((answer.status, answer.header("location")), (303, "/look"), "{answer:?}");
        answer.cookies()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn key_in(line: &str) -> String {
    let key = line.strip_prefix("log in once, within 5 minutes: http://").unwrap();
    key.split_once("/login?key=").unwrap().1.to_owned()
}

/// Joins the chunks of an answer, and reports whether the last one is there.
fn unchunked(mut body: &[u8]) -> (Vec<u8>, bool) {
    let mut joined = Vec::new();
    while let Some(end) = body.windows(2).position(|part| part == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return (joined, true);
        }
        let rest = &body[end + 2..];
        joined.extend_from_slice(&rest[..length.min(rest.len())]);
        body = rest.get(length + 2..).unwrap_or_default();
    }
    (joined, false)
}

/// The addresses of all links of a page, unescaped.
pub(super) fn links(answer: &Answer) -> Vec<String> {
    let text = answer.text();
    let after = text.split("href=\"").skip(1);
    after.map(|rest| rest.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&")).collect()
}

pub(super) fn link(answer: &Answer, beginning: &str) -> String {
    let found = links(answer).into_iter().find(|link| link.starts_with(beginning));
    found.unwrap_or_else(|| panic!("no {beginning} in {}", answer.text()))
}

#[test]
fn only_the_page_itself_is_answered() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("note", b"text");
    let page = Page::start(&sandbox, &["--http-name", "vault.example"]);
    // Names that lead here by DNS rebinding are refused, whatever is asked for.
    let with_port = format!("{}@evil.example", page.host);
    for host in [
        "evil.example",
        "localhost.evil.example",
        "vault.example.evil.example:80",
        "",
        "192.0.2.1",
        "localhost@evil.example",
        &with_port,
    ] {
        for path in ["/", "/login", "/style.css"] {
            let answer = page.ask(&format!("GET {path}"), &[&format!("Host: {host}")], "");
            assert_eq!(answer.status, 421, "{host} {path}");
            assert!(!answer.text().contains("<form"), "{host}");
        }
    }
    let (own, other) = (page.host_line(), "Host: localhost");
    assert_eq!(page.ask("GET /login", &[], "").status, 421);
    assert_eq!(page.ask("GET /login", &[&own, other], "").status, 421);
    assert_eq!(page.ask("GET http://evil.example/login", &[&own], "").status, 421);
    for host in ["Host: localhost:8200", "Host: [::1]", "Host: VAULT.example:443"] {
        assert_eq!(page.ask("GET /login", &[host], "").status, 200, "{host}");
    }
    // Without a session there is only the login.
    for path in
        ["/", "/calendar", "/look", "/search?text=a", "/look/00", "/nothing", "/download/00/a", "/tar/00/"]
    {
        let answer = page.get(path, "");
        assert_eq!(answer.status, 303, "{path}");
        assert!(answer.header("location").starts_with("/login?to="), "{answer:?}");
    }
    for (method, status) in
        [("PUT", 405), ("DELETE", 405), ("OPTIONS", 405), ("TRACE", 405), ("PROPFIND", 405)]
    {
        assert_eq!(page.ask(&format!("{method} /look"), &[&own], "").status, status, "{method}");
    }
    let answer = page.get("/login", "");
    assert_eq!(
        answer.header("content-security-policy"),
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), value);
    }
    assert!(!answer.text().contains("<script"));
}

#[test]
fn a_form_of_another_site_does_nothing() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("note", b"text");
    let page = Page::start(&sandbox, &[]);
    let form = page.get(&format!("/login?key={}", page.key), "");
    let cookies = form.cookies();
    assert!(form.headers.iter().any(|(name, value)| name == "set-cookie"
        && value.contains("; HttpOnly")
        && value.contains("; SameSite=Strict")));
    let body = format!("token={}&key={}", form.field("token"), form.field("key"));
    let (host, cookie) = (page.host_line(), format!("Cookie: {cookies}"));
    let kind = "Content-Type: application/x-www-form-urlencoded";
    let own = format!("Origin: http://{}", page.host);
    // Each sign of another sender is enough. The link is not used up by any of them.
    for signs in [
        &[][..],
        &["Origin: http://evil.example"],
        &["Origin: null"],
        &["Origin: http://localhost"],
        &["Sec-Fetch-Site: cross-site"],
        &["Sec-Fetch-Site: same-site"],
        &["Sec-Fetch-Site: none"],
        &["Sec-Fetch-Site: same-origin", "Origin: http://evil.example"],
        &["Sec-Fetch-Site: cross-site", &own],
        &[&own, &own],
    ] {
        let lines = [&[host.as_str(), &cookie, kind], signs].concat();
        assert_eq!(page.ask("POST /login", &lines, &body).status, 403, "{signs:?}");
    }
    let other_form = page.get("/login", "");
    for (cookies, body) in [
        // A token of another browser, none, and a wrong one.
        ("", body.clone()),
        (other_form.cookies().as_str(), body.clone()),
        (cookies.as_str(), format!("key={}", page.key)),
        (cookies.as_str(), format!("token=00&key={}", page.key)),
        (cookies.as_str(), body.replace("key=", "key=A")),
        (cookies.as_str(), body.replace("&key=", "&password=")),
    ] {
        let answer = page.post("/login", cookies, &body);
        assert_eq!(answer.status, 403, "{body}");
        assert!(!answer.cookies().contains("session"), "{answer:?}");
    }
    // Forms of another type, and those that are too large.
    let json = page.ask("POST /login", &[&host, &own, &cookie, "Content-Type: text/plain"], &body);
    assert_eq!(json.status, 400);
    assert_eq!(page.post("/login", &cookies, &format!("{body}&x={}", "x".repeat(9000))).status, 400);
    // The form of this page logs in, once.
    let answer = page.post("/login", &cookies, &format!("{body}&to=//evil.example/"));
    assert_eq!((answer.status, answer.header("location")), (303, "/"));
    let session = answer.cookies();
    assert_eq!(page.post("/login", &cookies, &body).status, 403);
    let look = page.get("/look", &session);
    assert_eq!(look.status, 200);
    // Nor does another site log anybody out.
    let token = look.field("token");
    let cookie = format!("Cookie: {session}");
    let lines = [host.as_str(), &cookie, kind, "Sec-Fetch-Site: cross-site"];
    assert_eq!(page.ask("POST /logout", &lines, &format!("token={token}")).status, 403);
    assert_eq!(page.post("/logout", &session, "token=00").status, 403);
    assert_eq!(page.get("/look", &session).status, 200);
    assert_eq!(page.post("/logout", &session, &format!("token={token}")).status, 303);
    assert_eq!(page.get("/look", &session).status, 303);
}

#[test]
fn a_signal_makes_a_new_link_and_a_password_works_too() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("note", b"text");
    let file = sandbox.arg("password");
    let make = |password: &str| {
        let mut command = sandbox.command();
        command
            .args(["web-password", &file])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes()).unwrap();
        child.wait_with_output().unwrap().status.code()
    };
    assert_eq!(make("correct horse & co"), Some(0));
    assert_eq!(make("other"), Some(1), "the file exists");
    let mut page = Page::start(&sandbox, &["--http-password", &file]);
    page.log_in();
    kill_process(Pid::from_child(&page.child), Signal::USR1).unwrap();
    page.key = key_in(&line(&mut page.output));
    page.log_in();
    let log_in = |password: &str| {
        let form = page.get("/login?to=/search", "");
        let body = format!("token={}&to={}&password={password}", form.field("token"), form.field("to"));
        page.post("/login", &form.cookies(), &body)
    };
    assert_eq!(log_in("wrong").status, 403);
    let answer = log_in("correct+horse+%26+co");
    assert_eq!((answer.status, answer.header("location")), (303, "/search"));
    assert_eq!(page.get("/search", &answer.cookies()).status, 200);
    for _ in 0..5 {
        assert_eq!(log_in("wrong").status, 403);
    }
    assert_eq!(log_in("correct+horse+%26+co").status, 429);
    drop(page);
    fs::write(&file, "correct horse").unwrap();
    let refused = sandbox.fails(1, ["serve", "--http", "127.0.0.1:0", "--http-password", &file]);
    assert!(refused.contains("web-password"), "{refused}");
    let refused = sandbox.fails(2, ["serve", "--http", "0.0.0.0:0"]);
    assert!(refused.contains("--expose"), "{refused}");
}

/// Names that would be markup, code or another path somewhere else.
fn hostile_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "<script>alert(1)<!--",
        "\"><img src=x onerror=alert(1)>",
        "'-alert(1)-'",
        "javascript:alert(1)",
        "&lt;b&gt;",
        "<svg onload=alert(1)>",
        "a%2e%2e%2fb",
        "..%2f..%2fetc%2fpasswd",
        "...",
        "..\\..\\x",
        "a\nb\r\nSet-Cookie: x=y",
        "\u{202e}txt.exe",
        "\u{200b}",
        "\u{feff}page.html",
        "page.svg",
        "{{ 7*7 }}",
        "?query#part",
        " ",
        "é",
    ]
    .map(|name| name.as_bytes().to_vec())
    .into();
    names.extend([b"\xff\xfe".to_vec(), b"\x1b[31mred".to_vec(), vec![b'x'; 255], vec![b'<'; 255]]);
    names.extend((1..=31).map(|byte| vec![b'c', byte, b'c']));
    names
}

#[test]
fn hostile_names_and_bytes_stay_text() {
    const HOSTILE: &[u8] = b"<script>alert(1)</script>\x1b[31m\n<svg onload=alert(2)>\n";
    let sandbox = Sandbox::encrypted();
    let folder = sandbox.path("home");
    fs::create_dir(&folder).unwrap();
    for name in hostile_names() {
        fs::write(folder.join(OsStr::from_bytes(&name)), HOSTILE).unwrap();
        std::os::unix::fs::symlink(
            OsStr::from_bytes(&name),
            folder.join(format!("to-{}", name.len() * 31 + usize::from(name[0]))),
        )
        .ok();
    }
    let (home, name, tag) = (sandbox.arg("home"), "<img src=x>\u{202e}", "<b>=\"'</b>");
    sandbox.ok(["snapshot", &home, "--name", name, "--tag", tag, "--comment", "<i>"]);
    fs::write(folder.join("new"), "x").unwrap();
    sandbox.ok(["snapshot", &home, "--name", name, "--tag", tag]);
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    let listed = page.get("/look", &session);
    let root = link(&listed, "/look/");
    let shown = page.get(&root, &session);
    let files: Vec<_> =
        links(&shown).into_iter().filter(|one| one.starts_with(&root) && **one != *root).collect();
    // The first files, and the links to them.
    assert!(files.len() > hostile_names().len(), "{files:?}");
    let mut pages = vec![listed, shown];
    for path in
        ["/calendar", "/search?text=%3Cscript%3E", "/search?text=a&source=%22%3E%3Cb%3E", "/nothing/%3Cb%3E"]
    {
        pages.push(page.get(path, &session));
    }
    pages.push(page.get(&link(&pages[2], "/source/"), &session));
    let mut found = 0;
    for name in hostile_names() {
        let escaped: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
        let place = format!("{}{escaped}", root.trim_start_matches("/look"));
        let answer = page.get(&format!("/download{place}"), &session);
        assert_eq!(answer.status, 200, "{escaped}");
        assert_eq!(answer.body, HOSTILE, "{escaped}");
        assert_eq!(answer.header("content-type"), "application/octet-stream");
        assert_eq!(
            answer.header("content-security-policy"),
            "sandbox; default-src 'none'; frame-ancestors 'none'"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        let disposition = answer.header("content-disposition");
        assert!(disposition.starts_with("attachment; filename=\""), "{disposition}");
        assert!(disposition.bytes().all(|byte| (32..127).contains(&byte)), "{disposition}");
        assert_eq!(answer.cookies(), "");
        found += 1;
        pages.push(page.get(&format!("/look{place}"), &session));
        pages.push(page.get(&format!("/file{place}"), &session));
    }
    assert_eq!(found, hostile_names().len());
    for answer in &pages {
        let text = answer.text();
        assert!(text.starts_with("<!doctype html>"));
        // Pages with commands have the script that copies them, and their policy names its hash.
        let script = text.matches("<script>// A button behind each command").count();
        assert_eq!(script > 0, answer.header("content-security-policy").contains("script-src 'sha256-"));
        let text = text.replacen("<script>// A button", "", 1);
        // All markup is ours: no other element begins, and no attribute is added.
        for hostile in ["<script", "<svg onload", "<img src=x", "<b>=", "<i>", "onerror=alert(1)>"] {
            let inside = text.matches(hostile).count();
            assert_eq!(inside, 0, "{hostile} in {text}");
        }
        assert!(!text.contains('\u{202e}') && !text.contains('\u{200b}') && !text.contains('\u{1b}'));
        assert!(!links(answer).iter().any(|link| link.starts_with("javascript") || link.contains("://")));
    }
}

#[test]
fn paths_lead_nowhere_else() {
    let sandbox = Sandbox::encrypted();
    sample_folder(&sandbox.path("home"));
    sandbox.ok(["snapshot", &sandbox.arg("home")]);
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    let root = link(&page.get("/look", &session), "/look/");
    let id = root.trim_start_matches("/look/").trim_end_matches('/');
    for path in [
        "../../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "letter.txt/../../x",
        "letter.txt%00",
        "letter.txt/x",
        "%00",
        "absent-file",
    ] {
        for beginning in ["look", "download", "tar", "file", "difference"] {
            let answer = page.get(&format!("/{beginning}/{id}/{path}"), &session);
            let text = String::from_utf8_lossy(&answer.body);
            assert!(!text.contains("root:x:0:0"), "{beginning} {path}");
            // The history of a path that never was has only gaps.
            let expected = if beginning == "file" { 200 } else { 404 };
            assert_eq!(answer.status, expected, "{beginning} {path}: {text}");
        }
    }
    for id in ["", "0", &id[1..], &format!("{id}0"), &id.replace(&id[..2], "zz"), "..", "%2e%2e"] {
        assert_eq!(page.get(&format!("/look/{id}/letter.txt"), &session).status, 404, "{id}");
    }
    assert_eq!(page.get(&format!("/look/{}/", id.to_uppercase()), &session).status, 200);
    let long = format!("/look/{id}/{}", "x/".repeat(20_000));
    assert!(matches!(page.get(&long, &session).status, 404 | 414 | 431));
    // A page has many links with its whole path, so a path has at most 4096 bytes.
    for (name, bytes) in [("a/", 2), ("%ff/", 2), ("%2fa", 2), ("%e2%80%aea", 4)] {
        let path = |byte_count: usize| {
            format!("{}{}", name.repeat(byte_count / bytes), "b".repeat(byte_count % bytes))
        };
        for beginning in ["look", "download", "tar", "file", "difference"] {
            for session in [session.as_str(), ""] {
                let answer = page.get(&format!("/{beginning}/{id}/{}", path(4097)), session);
                assert_eq!((answer.status, answer.body.len() < 1000), (404, true), "{beginning} {name}");
            }
            let answer = page.get(&format!("/{beginning}/{id}/{}", path(4096)), &session);
            let expected = if beginning == "file" { 200 } else { 404 };
            assert_eq!(answer.status, expected, "{beginning} {name}");
            assert!(answer.body.len() < 1 << 20, "{beginning} {name}: {} bytes", answer.body.len());
        }
    }
    let deep = page.get(&format!("/file/{id}/{}", "a/".repeat(100)), &session);
    assert!(deep.text().contains('\u{2026}') && deep.text().matches("/look/").count() < 60);
}

#[test]
fn downloads_at_a_time_are_bounded() {
    let sandbox = Sandbox::encrypted();
    let home = sandbox.path("home");
    fs::create_dir(&home).unwrap();
    // More than the buffers of a connection take.
    sparse_image(&home.join("large"), 64 << 20, &[]);
    sandbox.ok(["snapshot", &sandbox.arg("home")]);
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    let root = link(&page.get("/look", &session), "/look/");
    let address = format!("/download{}large", root.trim_start_matches("/look"));
    let request = format!("GET {address} HTTP/1.1\r\n{}\r\nCookie: {session}\r\n\r\n", page.host_line());
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let mut socket = TcpStream::connect(&page.host).unwrap();
            socket.write_all(request.as_bytes()).unwrap();
            let mut status = [0; 12];
            socket.read_exact(&mut status).unwrap();
            assert_eq!(status, *b"HTTP/1.1 200");
            socket
        })
        .collect();
    assert_eq!(page.get(&address, &session).status, 503);
    assert_eq!(page.get("/look", &session).status, 200, "pages are still shown");
    drop(waiting);
    let begun = std::time::Instant::now();
    while page.get(&address, &session).status != 200 {
        assert!(begun.elapsed().as_secs() < 20, "no download is possible any more");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn what_is_downloaded_is_what_was_archived() {
    let sandbox = Sandbox::encrypted();
    let home = sandbox.path("home");
    sample_folder(&home);
    sparse_image(&home.join("large"), 9 << 20, &[((3 << 20) + 5, &noise(8, 1_500_000))]);
    let deep = home.join("a".repeat(120)).join("b".repeat(120));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("c".repeat(120)), "deep").unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", "2026-05-01T10:00:00Z"]);
    fs::write(home.join("letter.txt"), "Dear archive,\nonce more\n").unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", "2026-05-02T10:00:00Z"]);
    fs::create_dir(sandbox.path("inside")).unwrap();
    let disk = sandbox.path("disk.img");
    sparse_image(&disk, 8 << 20, &[]);
    tool("mkfs.ext4", ["-q", "-d", &sandbox.arg("inside"), &sandbox.arg("disk.img")].map(OsStr::new));
    write_at(&disk, (8 << 20) - 1, b"!");
    sandbox.ok(["snapshot", &sandbox.arg("disk.img"), "--name", "disk"]);
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    let listed = page.get("/look", &session);
    let roots: BTreeMap<_, _> = links(&listed)
        .into_iter()
        .filter(|link| link.starts_with("/look/"))
        .map(|link| (page.get(&link, &session).text().contains("all bytes of the disk"), link))
        .collect();
    let (home_root, disk_root) =
        (roots[&false].trim_start_matches("/look"), roots[&true].trim_start_matches("/look"));
    // Files, whole and in parts.
    let large = fs::read(home.join("large")).unwrap();
    let whole = page.get(&format!("/download{home_root}large"), &session);
    assert_eq!(whole.header("content-length"), large.len().to_string());
    assert!(whole.body == large);
    let (host, cookie) = (page.host_line(), format!("Cookie: {session}"));
    let part = |range: &str| {
        let lines = [host.as_str(), &cookie, range];
        page.ask(&format!("GET /download{home_root}large"), &lines, "")
    };
    let middle = part("Range: bytes=3145720-3200000");
    assert_eq!(middle.status, 206);
    assert_eq!(middle.header("content-range"), format!("bytes 3145720-3200000/{}", large.len()));
    assert!(middle.body == large[3_145_720..=3_200_000]);
    assert!(part("Range: bytes=-100000").body == large[large.len() - 100_000..]);
    assert_eq!(part("Range: bytes=99999999-").status, 416);
    let head = page.ask(&format!("HEAD /download{home_root}large"), &[&host, &cookie], "");
    assert_eq!((head.header("content-length"), head.body.len()), (large.len().to_string().as_str(), 0));
    // A folder as a tar file, unpacked by the system's tar.
    let tar = page.get(&format!("/tar{home_root}"), &session);
    assert!(tar.header("content-disposition").contains("home.tar"));
    fs::write(sandbox.path("got.tar"), &tar.body).unwrap();
    fs::create_dir(sandbox.path("got")).unwrap();
    tool("tar", ["-xpf", &sandbox.arg("got.tar"), "-C", &sandbox.arg("got")].map(OsStr::new));
    assert_same_tree(&home, &sandbox.path("got/home"));
    // Files inside a disk, and the disk itself.
    let bytes = page.get(&format!("/download{disk_root}disk.raw"), &session);
    assert!(bytes.body == fs::read(&disk).unwrap());
    let volume = page.get(&format!("/look{disk_root}"), &session);
    let files = links(&volume).into_iter().find(|link| {
        link.starts_with(&format!("/look{disk_root}"))
            && !link.ends_with("disk.raw")
            && *link != format!("/look{disk_root}")
    });
    let inside = page.get(&files.unwrap(), &session);
    assert!(inside.text().contains("lost+found"), "{}", inside.text());
    // The versions of a file, and their difference.
    let versions = page.get(&format!("/file{home_root}letter.txt"), &session);
    assert_eq!(versions.text().matches("1 snapshot:").count(), 2, "{}", versions.text());
    let difference = page.get(&link(&versions, "/difference/"), &session).text();
    assert!(difference.contains("<span class=\"sign\">+</span>once more"), "{difference}");
    let same = page.get(&format!("/file{home_root}large"), &session).text();
    assert!(same.contains("2 snapshots:"), "{same}");
    // A search, and a new snapshot.
    assert!(page.get("/search?text=LETTER", &session).text().contains("letter.txt"));
    fs::write(home.join("brand-new"), "x").unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", "2026-05-03T10:00:00Z"]);
    let begun = std::time::Instant::now();
    while !page.get("/search?text=brand-new", &session).text().contains("1 path in") {
        assert!(begun.elapsed().as_secs() < 60, "the new snapshot does not appear");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    // A name that is gone is found in the snapshot that had it.
    fs::remove_file(home.join("brand-new")).unwrap();
    sandbox.ok(["snapshot", &sandbox.arg("home"), "--time", "2026-05-04T10:00:00Z"]);
    let gone = page.get("/search?text=BRAND-new", &session).text();
    assert!(gone.contains("1 path in") && gone.contains("2026-05-03"), "{gone}");
    // The saved index of names shows no name to people without a key, and may be deleted.
    let saved = sandbox.store().join("index/names");
    while !saved.is_file() {
        assert!(begun.elapsed().as_secs() < 60, "the index of names is not saved");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let bytes = fs::read(&saved).unwrap();
    assert!(!bytes.windows(10).any(|part| part == b"letter.txt"));
    for is_deleted in [false, true] {
        if is_deleted {
            fs::remove_file(&saved).unwrap();
        }
        let again = Page::start(&sandbox, &[]);
        let session = again.log_in();
        assert!(again.get("/search?text=LETTER", &session).text().contains("letter.txt"));
    }
}

#[test]
fn names_inside_disks_are_found() {
    let sandbox = Sandbox::encrypted();
    let (inside, disk) = (sandbox.path("inside"), sandbox.path("disk.img"));
    let archive = |time: &str| {
        let _ = fs::remove_file(&disk);
        sparse_image(&disk, 8 << 20, &[]);
        tool("mkfs.ext4", ["-q", "-d", &sandbox.arg("inside"), &sandbox.arg("disk.img")].map(OsStr::new));
        sandbox.ok(["snapshot", &sandbox.arg("disk.img"), "--name", "server", "--time", time]);
    };
    fs::create_dir_all(inside.join("etc/deep")).unwrap();
    fs::write(inside.join("etc/deep/old-settings"), "x").unwrap();
    fs::write(inside.join("letter"), "x").unwrap();
    archive("2026-05-01T10:00:00Z");
    fs::remove_dir_all(inside.join("etc")).unwrap();
    fs::write(inside.join("etc"), "now a file").unwrap();
    archive("2026-05-02T10:00:00Z");
    let page = Page::start(&sandbox, &[]);
    let session = page.log_in();
    let found = |text: &str| page.get(&format!("/search?text={text}"), &session);
    let saved = sandbox.store().join("index/names");
    // The first search walks the snapshots, and later ones use the index.
    for is_indexed in [false, true] {
        let old = found("OLD-sett");
        assert!(
            old.text().contains("1 path in 2 snapshots") && old.text().contains("2026-05-01"),
            "{}",
            old.text()
        );
        let look = links(&old).into_iter().find(|link| link.ends_with("old-settings")).unwrap();
        assert_eq!(page.get(&look, &session).status, 200, "{look}");
        let letter = found("letter").text();
        assert!(letter.contains("1 path in") && letter.contains("2026-05-02"), "{letter}");
        let begun = std::time::Instant::now();
        while !is_indexed && !saved.is_file() {
            assert!(begun.elapsed().as_secs() < 60, "the index of names is not saved");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
    fs::write(inside.join("brand-new"), "x").unwrap();
    archive("2026-05-03T10:00:00Z");
    let begun = std::time::Instant::now();
    while !found("brand-new").text().contains("1 path in 3 snapshots") {
        assert!(begun.elapsed().as_secs() < 60, "the new snapshot does not appear");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(found("old-settings").text().contains("2026-05-01"));
}

/// Compares two trees: names, kinds, bytes, modes, times and targets of links.
fn assert_same_tree(one: &Path, other: &Path) {
    use std::os::unix::fs::MetadataExt;
    let names = |folder: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let left = names(one);
    // A tar file has no sockets.
    let is_socket = |name: &std::ffi::OsString| {
        std::os::unix::fs::FileTypeExt::is_socket(&fs::symlink_metadata(one.join(name)).unwrap().file_type())
    };
    let left: Vec<_> = left.into_iter().filter(|name| !is_socket(name)).collect();
    assert_eq!(left, names(other), "{}", one.display());
    for name in left {
        let (one, other) = (one.join(&name), other.join(&name));
        let (about, copied) = (fs::symlink_metadata(&one).unwrap(), fs::symlink_metadata(&other).unwrap());
        assert_eq!(
            (about.mode(), about.len() * u64::from(about.is_file())),
            (copied.mode(), copied.len() * u64::from(copied.is_file())),
            "{}",
            one.display()
        );
        assert_eq!(
            (about.mtime(), about.mtime_nsec()),
            (copied.mtime(), copied.mtime_nsec()),
            "{}",
            one.display()
        );
        if about.is_symlink() {
            assert_eq!(fs::read_link(&one).unwrap(), fs::read_link(&other).unwrap());
        } else if about.is_file() {
            assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{}", one.display());
        } else if about.is_dir() {
            assert_same_tree(&one, &other);
        }
    }
}

#[test]
fn silent_and_slow_clients_keep_nobody_away() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("note", b"text");
    let page = Page::start(&sandbox, &[]);
    let silent: Vec<_> = (0..280)
        .map(|_| {
            let mut socket = TcpStream::connect(&page.host).unwrap();
            socket.write_all(b"GET /login HTTP/1.1\r\nHost: ").unwrap();
            socket
        })
        .collect();
    assert_eq!(page.get("/login", "").status, 200);
    drop(silent);
    // A header that is too large, and one with too many lines.
    for (kibibytes, status) in [(28, 200), (64, 431)] {
        let large = format!("X: {}", "x".repeat(kibibytes << 10));
        assert_eq!(page.ask("GET /login", &[&page.host_line(), &large], "").status, status);
    }
    // A form that is too large.
    let token = page.get("/login", "");
    for (bytes, status) in [(7 << 10, 403), (9 << 10, 400)] {
        let body = format!("token={}&password={}", token.field("token"), "x".repeat(bytes));
        assert_eq!(page.post("/login", &token.cookies(), &body).status, status);
    }
    let many: Vec<String> = (0..100).map(|number| format!("X{number}: x")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(
        page.ask("GET /login", &[&[page.host_line().as_str()], many.as_slice()].concat(), "").status,
        431
    );
}

#[test]
fn with_a_certificate_the_page_is_encrypted() {
    if !has("openssl") || !has("curl") {
        eprintln!("skipped: the page by HTTPS, which needs openssl and curl");
        return;
    }
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("note", b"text");
    let (certificate, key) = (sandbox.arg("cert.pem"), sandbox.arg("key.pem"));
    let made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"];
    let words =
        [&made[..], &["-addext", "subjectAltName=DNS:localhost", "-keyout", &key, "-out", &certificate]];
    tool("openssl", words.concat());
    let files = format!("{certificate},{key}");
    let mut command = sandbox.command();
    command.args(["serve", "--http", "127.0.0.1:0", "--http-tls", &files]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let address = line(&mut output).replace("serving at https://127.0.0.1", "https://localhost");
    let got = Command::new("curl")
        .args(["-sS", "-i", "--max-time", "30", "--cacert", &certificate, &format!("{address}login")])
        .output()
        .unwrap();
    // A client without encryption gets no answer.
    let host = address.trim_start_matches("https://localhost").trim_end_matches('/');
    let mut plain = TcpStream::connect(format!("127.0.0.1{host}")).unwrap();
    plain.write_all(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    child.kill().unwrap();
    child.wait().unwrap();
    let text = String::from_utf8_lossy(&got.stdout);
    assert!(text.starts_with("HTTP/1.1 200"), "{text} {}", String::from_utf8_lossy(&got.stderr));
    assert!(text.contains("__Host-varve_login_") && text.contains("; Secure"), "{text}");
    assert!(!String::from_utf8_lossy(&answer).contains("200 OK"));
}
