//! Servers of the tests of daily work: one for mail, and one for the heartbeat and a replica.

#![expect(clippy::disallowed_methods, reason = "servers are awaited in real time")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// A client that is silent for so long has ended without a word.
const SILENCE: Duration = Duration::from_secs(20);

/// Accepts connections for as long as the test lasts. Returns the port.
fn accept(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            stream.set_read_timeout(Some(SILENCE)).unwrap();
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

/// Takes mails by SMTP.
pub struct MailSink {
    pub port: u16,
    mails: Arc<Mutex<Vec<String>>>,
    login: Arc<AtomicBool>,
}

/// The moment at which encryption begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailTls {
    Implicit,
    StartTls,
}

/// The end of a conversation.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Done,
    /// The client goes on encrypted.
    StartTls,
}

impl MailSink {
    pub fn start() -> Self {
        Self::serve(|stream, mails, login| {
            // A client that goes away has sent all that it wanted to.
            let _ = take_mails(stream, mails, login, false);
        })
    }

    /// Starts a server with encryption, which `open` begins.
    pub fn start_with_tls<S: Read + Write>(
        tls: MailTls,
        open: impl Fn(TcpStream) -> S + Send + Sync + 'static,
    ) -> Self {
        Self::serve(move |mut stream, mails, login| {
            if tls == MailTls::StartTls {
                match take_mails(&mut stream, mails, login, true) {
                    Ok(Ended::StartTls) => {}
                    _ => return,
                }
            }
            let mut encrypted = open(stream);
            let _ = match tls {
                MailTls::Implicit => take_mails(&mut encrypted, mails, login, false),
                MailTls::StartTls => converse(&mut encrypted, mails, login, false),
            };
        })
    }

    fn serve(serve: impl Fn(TcpStream, &Mutex<Vec<String>>, &AtomicBool) + Send + Sync + 'static) -> Self {
        let (mails, login) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (taken, seen) = (Arc::clone(&mails), Arc::clone(&login));
        let port = accept(move |stream| serve(stream, &taken, &seen));
        Self { port, mails, login }
    }

    /// Reports whether a client has sent a password.
    pub fn has_seen_login(&self) -> bool {
        self.login.load(Ordering::SeqCst)
    }

    /// Returns the mails since the last call, without the line breaks of their encoding.
    pub fn take(&self) -> Vec<String> {
        let mails = std::mem::take(&mut *self.mails.lock());
        mails.into_iter().map(|mail| mail.replace("=\r\n", "")).collect()
    }
}

/// Speaks SMTP, from the greeting on.
fn take_mails(
    mut stream: impl Read + Write,
    mails: &Mutex<Vec<String>>,
    login: &AtomicBool,
    offers_tls: bool,
) -> std::io::Result<Ended> {
    stream.write_all(b"220 sink\r\n")?;
    converse(&mut stream, mails, login, offers_tls)
}

/// Answers commands. A mail counts once it is acknowledged: the client need not take leave.
fn converse(
    stream: &mut (impl Read + Write),
    mails: &Mutex<Vec<String>>,
    login: &AtomicBool,
    offers_tls: bool,
) -> std::io::Result<Ended> {
    let (mut mail, mut is_data) = (String::new(), false);
    loop {
        let Some(line) = read_line(stream)? else { return Ok(Ended::Done) };
        mail.push_str(&line);
        let answer = match line.trim_end() {
            "." if is_data => {
                is_data = false;
                mails.lock().push(std::mem::take(&mut mail));
                "250 taken"
            }
            _ if is_data => continue,
            "DATA" => {
                is_data = true;
                "354 go on"
            }
            "QUIT" => {
                stream.write_all(b"221 bye\r\n")?;
                return Ok(Ended::Done);
            }
            "STARTTLS" if offers_tls => {
                stream.write_all(b"220 begin\r\n")?;
                return Ok(Ended::StartTls);
            }
            hello if hello.starts_with("EHLO") && offers_tls => "250-sink\r\n250 STARTTLS",
            hello if hello.starts_with("EHLO") => "250-sink\r\n250 AUTH PLAIN",
            word if word.starts_with("AUTH") => {
                login.store(true, Ordering::SeqCst);
                "235 in"
            }
            _ => "250 sink",
        };
        stream.write_all(format!("{answer}\r\n").as_bytes())?;
        stream.flush()?;
    }
}

/// Reads a line byte by byte: nothing behind it may be taken from an encrypted stream.
fn read_line(stream: &mut impl Read) -> std::io::Result<Option<String>> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.last() != Some(&b'\n') {
        if stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        line.push(byte[0]);
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// The heartbeat at `/ping`, and a WebDAV server that may refuse everything. It shows its own time.
pub struct WebSink {
    pub port: u16,
    state: Arc<WebState>,
}

#[derive(Default)]
struct WebState {
    pings: AtomicI64,
    refuses: AtomicBool,
    seconds: AtomicI64,
    files: Mutex<BTreeMap<String, Vec<u8>>>,
}

struct WebRequest {
    method: String,
    path: String,
    range: Option<(usize, usize)>,
    destination: String,
    body: Vec<u8>,
}

impl WebSink {
    pub fn start() -> Self {
        let state = Arc::new(WebState::default());
        let served = Arc::clone(&state);
        let port = accept(move |stream| while served.serve_one(&stream).is_some() {});
        Self { port, state }
    }

    /// Returns the count of heartbeats since the last call.
    pub fn take_pings(&self) -> i64 {
        self.state.pings.swap(0, Ordering::SeqCst)
    }

    /// Sets whether the replica answers to nothing but refusals.
    pub fn refuse(&self, refuses: bool) {
        self.state.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Moves the clock of this server.
    pub fn move_clock_by(&self, seconds: i64) {
        self.state.seconds.store(seconds, Ordering::SeqCst);
    }
}

impl WebState {
    /// Answers one request; `None` at the end of the connection.
    fn serve_one(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let request = read_request(&mut reader)?;
        let (status, body) = self.answer(&request);
        let moved_by = jiff::SignedDuration::from_secs(self.seconds.load(Ordering::SeqCst));
        let time = jiff::Timestamp::now() + moved_by;
        let date = time.strftime("%a, %d %b %Y %H:%M:%S GMT");
        let head = format!("HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut writer = stream;
        writer.write_all(head.as_bytes()).ok()?;
        if request.method != "HEAD" {
            writer.write_all(&body).ok()?;
        }
        Some(())
    }

    fn answer(&self, request: &WebRequest) -> (String, Vec<u8>) {
        let empty = |status: &str| (status.to_owned(), Vec::new());
        match request.path.as_str() {
            "/" => return empty("404 Not Found"),
            "/ping" => {
                self.pings.fetch_add(1, Ordering::SeqCst);
                return empty("200 OK");
            }
            _ if self.refuses.load(Ordering::SeqCst) => return empty("403 Forbidden"),
            _ => {}
        }
        let mut files = self.files.lock();
        let path = &request.path;
        match request.method.as_str() {
            "MKCOL" => empty("201 Created"),
            "PUT" => {
                files.insert(path.clone(), request.body.clone());
                empty("201 Created")
            }
            "MOVE" => match files.remove(path) {
                Some(bytes) => {
                    files.insert(request.destination.clone(), bytes);
                    empty("201 Created")
                }
                None => empty("404 Not Found"),
            },
            "DELETE" => empty(if files.remove(path).is_some() { "204 No Content" } else { "404 Not Found" }),
            "PROPFIND" => ("207 Multi-Status".to_owned(), listing(&files, path)),
            _ => match (files.get(path), request.range) {
                (None, _) => empty("404 Not Found"),
                (Some(bytes), None) => ("200 OK".to_owned(), bytes.clone()),
                (Some(bytes), Some((first, last))) if first < bytes.len() => {
                    let last = last.min(bytes.len() - 1);
                    let head =
                        format!("206 Partial Content\r\nContent-Range: bytes {first}-{last}/{}", bytes.len());
                    (head, bytes[first..=last].to_vec())
                }
                (Some(bytes), Some(_)) => {
                    empty(&format!("416 Range Not Satisfiable\r\nContent-Range: bytes */{}", bytes.len()))
                }
            },
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<WebRequest> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut range, mut destination) = (0, None, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "destination" => destination = format!("/{}", value.splitn(4, '/').nth(3)?),
            "range" => {
                let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
                range = Some((first.parse().ok()?, last.parse().unwrap_or(usize::MAX)));
            }
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(WebRequest { method, path, range, destination, body })
}

/// Lists the members of a collection.
fn listing(files: &BTreeMap<String, Vec<u8>>, path: &str) -> Vec<u8> {
    let folder = format!("{}/", path.trim_end_matches('/'));
    let collection = |href: &str| {
        format!(
            "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype><D:collection/>\
             </D:resourcetype></D:prop></D:propstat></D:response>"
        )
    };
    let mut members = BTreeMap::new();
    for (name, bytes) in files {
        let Some(rest) = name.strip_prefix(&folder) else { continue };
        let member = match rest.split_once('/') {
            Some((below, _)) => {
                let href = format!("{folder}{below}/");
                (href.clone(), collection(&href))
            }
            None => (
                name.clone(),
                format!(
                    "<D:response><D:href>{name}</D:href><D:propstat><D:prop><D:resourcetype/>\
                     <D:getcontentlength>{}</D:getcontentlength></D:prop></D:propstat></D:response>",
                    bytes.len()
                ),
            ),
        };
        members.insert(member.0, member.1);
    }
    let all: String = members.into_values().collect();
    let own = collection(&folder);
    format!("<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">{own}{all}</D:multistatus>").into_bytes()
}
