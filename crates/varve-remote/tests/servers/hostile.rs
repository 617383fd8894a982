//! Servers that lie: their answers are bounded in size, and the lies are detected.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use varve_remote::{OpenOptions, Password, PutMode, RetryPolicy, S3Keys, Target, TargetError, open};
use varve_world::FileName;

/// One request: method, path with its query, header names in lower case, body.
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// A server whose answers the test writes to the connection itself.
pub fn server(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    // The thread ends with the process. Nothing else listens on this port.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                if let Some(asked) = read(&stream) {
                    answer(&asked, &mut stream);
                }
            });
        }
    });
    port
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((key, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(key.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { method, path, headers, body })
}

pub fn say(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head =
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
}

pub fn options() -> OpenOptions {
    let patience = RetryPolicy {
        try_count_max: 3,
        first_pause: Duration::from_millis(1),
        silence_max: Duration::from_secs(5),
        ..RetryPolicy::default()
    };
    let secret_key = Password::new("secret".into());
    let s3_keys = Some(S3Keys { key_id: "key".into(), secret_key, session_token: None });
    OpenOptions { patience, s3_keys, ..OpenOptions::default() }
}

fn both(port: u16) -> [Box<dyn Target>; 2] {
    [
        open(&format!("s3://bucket/in?endpoint=http://127.0.0.1:{port}"), &options()).unwrap(),
        open(&format!("webdav+http://127.0.0.1:{port}/in"), &options()).unwrap(),
    ]
}

fn name() -> FileName {
    FileName::new("object").unwrap()
}

#[test]
fn a_server_that_knows_no_ranges_is_understood() {
    let port = server(|_, stream| say(stream, "200 OK", "", b"0123456789"));
    for target in both(port) {
        assert_eq!(target.get(&name(), 3..7).unwrap(), "3456");
        assert!(matches!(target.get(&name(), 3..11), Err(TargetError::Short { .. })));
    }
}

#[test]
fn an_endless_answer_is_not_taken() {
    let port = server(|asked, stream| {
        let head = match asked.method.as_str() {
            "GET" if asked.path.contains("list-type") => "HTTP/1.1 200 OK\r\n\r\n",
            "PROPFIND" => "HTTP/1.1 207 Multi-Status\r\n\r\n",
            _ => "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-9/10\r\n\r\n",
        };
        drop(stream.write_all(head.as_bytes()));
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
    });
    for target in both(port) {
        assert_eq!(target.get(&name(), 0..10).unwrap(), "xxxxxxxxxx", "no more than asked for");
        let listed = target.list("");
        assert!(matches!(listed, Err(TargetError::Refused { .. })), "{listed:?}");
    }
}

/// A server that sends one byte now and then is never silent for long.
#[test]
fn a_trickle_is_given_up() {
    let drip = |stream: &mut TcpStream, bytes: &[u8]| {
        for byte in bytes.iter().cycle() {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    for is_head_whole in [true, false] {
        let port = server(move |asked, stream| {
            let head = match asked.method.as_str() {
                "GET" if asked.headers.contains_key("range") => {
                    "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-999/1000\r\nContent-Length: 1000\r\n\r\n"
                }
                "GET" => "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
                "PROPFIND" => "HTTP/1.1 207 Multi-Status\r\nContent-Length: 1000\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n",
            };
            match is_head_whole && asked.method != "HEAD" {
                true => drop(stream.write_all(head.as_bytes()).map(|()| drip(stream, b" "))),
                false => drip(stream, format!("{}X-Head: {}", &head[..18], "x".repeat(9000)).as_bytes()),
            }
        });
        let mut options = options();
        options.patience.try_count_max = 1;
        options.patience.silence_max = Duration::from_millis(700);
        let targets = ["s3://bucket/in?endpoint=http://HOST", "webdav+http://HOST/in", "http://HOST/in"];
        for url in targets {
            let target = open(&url.replace("HOST", &format!("127.0.0.1:{port}")), &options).unwrap();
            let timed = |what: &str, call: &dyn Fn() -> Result<(), TargetError>| {
                let begun = Instant::now();
                let outcome = call();
                assert!(matches!(outcome, Err(TargetError::Failed { .. })), "{url} {what}: {outcome:?}");
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(5), "{url} {what}: {took:?}");
            };
            timed("get", &|| target.get(&name(), 0..1000).map(drop));
            timed("pieces", &|| {
                target.get_in_pieces(&name(), 0..1000, 0, &mut |_| ControlFlow::Continue(()))
            });
            timed("whole", &|| target.get_whole(&name(), 1 << 20, None).map(drop));
            if !url.starts_with("http:") {
                timed("list", &|| target.list("").map(drop));
                timed("put", &|| target.put(&name(), Bytes::from_static(b"x"), PutMode::Replace));
            }
        }
    }
}

/// The same request would get the same answer.
#[test]
fn a_malformed_listing_is_requested_once() {
    for body in ["<a><b></a></b>", "<a>&bomb;</a>", "<html></html>"] {
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        let port = server(move |asked, stream| {
            *counted.lock() += 1;
            let status = if asked.method == "PROPFIND" { "207 Multi-Status" } else { "200 OK" };
            say(stream, status, "", body.as_bytes());
        });
        for target in both(port) {
            *count.lock() = 0;
            let listed = target.list("arenas");
            assert!(matches!(listed, Err(TargetError::Refused { .. })), "{body}: {listed:?}");
            assert_eq!(*count.lock(), 1, "{body}");
        }
    }
}

/// The folder whose listing fails is named.
#[test]
fn endless_folders_are_not_followed() {
    let deepest = Arc::new(Mutex::new(0));
    let shared = Arc::clone(&deepest);
    let port = server(move |asked, stream| {
        let path = asked.path.trim_end_matches('/');
        let depth = path.matches('/').count();
        let mut deepest = shared.lock();
        *deepest = depth.max(*deepest);
        let entry = |path: &str| {
            format!(
                "<D:response><D:href>{path}/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop></D:propstat></D:response>"
            )
        };
        let list = format!(
            "<D:multistatus xmlns:D=\"DAV:\">{}{}</D:multistatus>",
            entry(path),
            entry(&format!("{path}/d"))
        );
        match depth {
            6 => say(stream, "207 Multi-Status", "", b"<a></b>"),
            _ => say(stream, "207 Multi-Status", "", list.as_bytes()),
        }
    });
    let target = open(&format!("webdav+http://127.0.0.1:{port}/in"), &options()).unwrap();
    let Err(TargetError::Refused { source, .. }) = target.list("") else { panic!("it is no listing") };
    assert!(source.to_string().starts_with("folder d/d/d/d/d: "), "{source}");
    let target = open(&format!("webdav+http://127.0.0.1:{port}/a/b/c/d/e/f/g/in"), &options()).unwrap();
    assert_eq!(target.list("").unwrap(), []);
    assert_eq!(*deepest.lock(), 16, "eight folders below its own");
}

#[test]
fn another_range_than_asked_for_is_found_out() {
    for range in
        ["bytes 0-3/10", "bytes 4-8/10", "bytes 9-3/10", "bytes 3-99999999/10", "nonsense", "bytes */10"]
    {
        let port = server(move |_, stream| {
            say(stream, "206 Partial Content", &format!("Content-Range: {range}\r\n"), b"0123");
        });
        for target in both(port) {
            let got = target.get(&name(), 3..7);
            assert!(matches!(got, Err(TargetError::Failed { .. })), "{range}: {got:?}");
        }
    }
}

#[test]
fn wrong_lengths_are_found_out() {
    // The body is shorter than its declared length. The object itself is long enough.
    let port = server(|_, stream| {
        let head =
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 3-6/10\r\nContent-Length: 4\r\n\r\n34";
        drop(stream.write_all(head.as_bytes()));
    });
    for target in both(port) {
        let got = target.get(&name(), 3..7);
        assert!(matches!(got, Err(TargetError::Failed { .. })), "{got:?}");
    }
    // The object has become shorter.
    let port =
        server(|_, stream| say(stream, "206 Partial Content", "Content-Range: bytes 3-4/5\r\n", b"34"));
    for target in both(port) {
        let got = target.get(&name(), 3..7);
        assert!(matches!(got, Err(TargetError::Short { .. })), "{got:?}");
    }
}

#[test]
fn a_listing_that_goes_round_in_circles_ends() {
    let port = server(|_, stream| {
        let page = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>\
            <Contents><Key>in/x</Key><Size>1</Size></Contents></ListBucketResult>";
        say(stream, "200 OK", "", page);
    });
    let listed = both(port)[0].list("");
    assert!(matches!(listed, Err(TargetError::Refused { .. })), "{listed:?}");
}

#[test]
fn redirects_are_not_followed() {
    let port =
        server(|_, stream| say(stream, "307 Elsewhere", "Location: http://127.0.0.1:1/steal\r\n", b""));
    for target in both(port) {
        let got = target.get(&name(), 0..1);
        assert!(matches!(got, Err(TargetError::Refused { .. })), "{got:?}");
    }
}

/// A bucket in memory that records the writes and removals.
#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Vec<u8>>,
    written: Vec<String>,
    removed: Vec<String>,
}

/// An S3 server that may honour `If-None-Match`, and may hold a lock on every object.
fn bucket(honours: bool, is_locked: bool) -> (u16, Arc<Mutex<Bucket>>) {
    let bucket = Arc::new(Mutex::new(Bucket::default()));
    let shared = Arc::clone(&bucket);
    let port = server(move |asked, stream| {
        let mut bucket = shared.lock();
        let is_there = bucket.objects.contains_key(&asked.path);
        match asked.method.as_str() {
            "PUT" if asked.headers.contains_key("if-none-match") && honours && is_there => {
                say(stream, "412 Precondition Failed", "", b"");
            }
            "PUT" if is_locked && (is_there || !asked.headers.contains_key("x-amz-checksum-sha256")) => {
                say(stream, "403 Forbidden", "", b"<Error><Code>AccessDenied</Code></Error>");
            }
            "PUT" => {
                bucket.written.push(asked.path.clone());
                bucket.objects.insert(asked.path.clone(), asked.body.clone());
                say(stream, "200 OK", "ETag: \"x\"\r\n", b"");
            }
            "HEAD" if is_there => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    bucket.objects[&asked.path].len()
                );
                drop(stream.write_all(head.as_bytes()));
            }
            "DELETE" => {
                bucket.removed.push(asked.path.clone());
                say(stream, "204 No Content", "", b"");
            }
            _ => say(stream, "404 Not Found", "", b""),
        }
    });
    (port, bucket)
}

fn in_bucket(port: u16) -> Box<dyn Target> {
    let [s3, _] = both(port);
    s3
}

#[test]
fn a_server_that_ignores_the_condition_is_found_out_and_nothing_is_replaced() {
    let (port, bucket) = bucket(false, false);
    let target = in_bucket(port);
    assert!(!target.capabilities().create_is_exclusive);
    target.put(&name(), Bytes::from_static(b"first"), PutMode::Create).unwrap();
    let again = target.put(&name(), Bytes::from_static(b"second"), PutMode::Create);
    assert!(matches!(again, Err(TargetError::Exists { .. })), "{again:?}");
    let bucket = bucket.lock();
    assert_eq!(bucket.objects["/bucket/in/object"], b"first");
    assert_eq!(bucket.removed, [""; 0]);
}

#[test]
fn a_write_once_bucket_is_enough_for_creations() {
    let (port, bucket) = bucket(true, true);
    let target = in_bucket(port);
    target.put(&name(), Bytes::from_static(b"first"), PutMode::Create).unwrap();
    let again = target.put(&name(), Bytes::from_static(b"second"), PutMode::Create);
    assert!(matches!(again, Err(TargetError::Exists { .. })), "{again:?}");
    let replaced = target.put(&name(), Bytes::from_static(b"third"), PutMode::Replace);
    assert!(matches!(replaced, Err(TargetError::Refused { .. })), "{replaced:?}");
    // Another session finds the probe that the first one left.
    in_bucket(port).put(&FileName::new("next").unwrap(), Bytes::new(), PutMode::Create).unwrap();
    let bucket = bucket.lock();
    assert_eq!(bucket.written, ["/bucket/in/.varve-probe", "/bucket/in/object", "/bucket/in/next"]);
    assert_eq!(bucket.removed, [""; 0]);
}

#[test]
fn secrets_do_not_go_over_the_line() {
    let seen = Arc::new(Mutex::new(String::new()));
    let shared = Arc::clone(&seen);
    let port = server(move |asked, stream| {
        *shared.lock() += &format!("{:?}", asked.headers);
        say(stream, "403 Forbidden", "", b"");
    });
    let got = in_bucket(port).get(&name(), 0..1);
    assert!(matches!(got, Err(TargetError::Refused { .. })), "{got:?}");
    let seen = seen.lock();
    assert!(seen.contains("aws4-hmac-sha256") || seen.contains("AWS4-HMAC-SHA256"), "{seen}");
    assert!(!seen.contains("secret"), "{seen}");
}

/// The state of a multipart upload.
#[derive(Default)]
struct Parts {
    sent: BTreeMap<String, usize>,
    bytes: usize,
    completed: Option<String>,
    aborted: bool,
}

/// An S3 server on which part 2 fails `failures` times.
fn parts(failures: usize) -> (u16, Arc<Mutex<Parts>>) {
    let parts = Arc::new(Mutex::new(Parts::default()));
    let shared = Arc::clone(&parts);
    let left = Mutex::new(failures);
    let port = server(move |asked, stream| {
        let mut parts = shared.lock();
        let number =
            asked.path.split_once("partNumber=").map(|(_, rest)| rest.split('&').next().unwrap().to_owned());
        let is_probe = asked.path.contains(".varve-probe");
        match (asked.method.as_str(), number) {
            ("PUT", _) if is_probe && asked.headers.contains_key("if-none-match") => {
                say(stream, "412 Precondition Failed", "", b"");
            }
            ("PUT", Some(_)) if is_probe => say(stream, "200 OK", "ETag: \"x\"\r\n", b""),
            ("PUT", Some(number)) => {
                let mut left = left.lock();
                *parts.sent.entry(number.clone()).or_default() += 1;
                if number == "2" && *left > 0 {
                    *left -= 1;
                    say(stream, "503 Slow Down", "", b"");
                } else {
                    parts.bytes += asked.body.len();
                    say(stream, "200 OK", &format!("ETag: \"tag-{number}\"\r\n"), b"");
                }
            }
            ("POST", _) if asked.path.contains("uploads") => {
                let answer = b"<InitiateMultipartUploadResult><UploadId>a b&amp;c</UploadId></InitiateMultipartUploadResult>";
                say(stream, "200 OK", "", answer);
            }
            ("POST", _) if is_probe => say(stream, "412 Precondition Failed", "", b""),
            ("POST", _) => {
                assert!(asked.path.ends_with("uploadId=a%20b%26c"), "{}", asked.path);
                assert_eq!(asked.headers.get("if-none-match").map(String::as_str), Some("*"));
                parts.completed = Some(String::from_utf8(asked.body.clone()).unwrap());
                say(stream, "200 OK", "", b"<CompleteMultipartUploadResult/>");
            }
            ("DELETE", _) => {
                parts.aborted |= !is_probe;
                say(stream, "204 No Content", "", b"");
            }
            _ => say(stream, "404 Not Found", "", b""),
        }
    });
    (port, parts)
}

#[test]
fn only_the_part_that_failed_is_sent_again() {
    let (port, parts) = parts(2);
    in_bucket(port).put(&name(), vec![7; 40 << 20].into(), PutMode::Create).unwrap();
    let parts = parts.lock();
    let sent: Vec<_> = parts.sent.iter().map(|(number, count)| (number.as_str(), *count)).collect();
    assert_eq!(sent, [("1", 1), ("2", 3), ("3", 1)]);
    assert_eq!(parts.bytes, 40 << 20);
    let completed = parts.completed.clone().unwrap();
    let places: Vec<_> =
        (1..=3).map(|number| completed.find(&format!("&quot;tag-{number}&quot;")).unwrap()).collect();
    assert!(places.is_sorted(), "{completed}");
    assert!(!parts.aborted);
}

#[test]
fn an_upload_that_is_given_up_is_taken_away() {
    let (port, parts) = parts(99);
    let failed = in_bucket(port).put(&name(), vec![7; 40 << 20].into(), PutMode::Create);
    assert!(matches!(failed, Err(TargetError::Failed { .. })), "{failed:?}");
    let parts = parts.lock();
    assert!(parts.aborted && parts.completed.is_none());
}

/// The server answers a completion before it is done, and the completion may still fail.
#[test]
fn a_completion_that_fails_late_is_no_success() {
    let port = server(|asked, stream| match asked.method.as_str() {
        "POST" if asked.path.contains("uploads") => {
            say(stream, "200 OK", "", b"<R><UploadId>id</UploadId></R>")
        }
        "POST" => say(stream, "200 OK", "", b"<Error><Code>InternalError</Code></Error>"),
        "PUT" => say(stream, "200 OK", "ETag: \"x\"\r\n", b""),
        "DELETE" => say(stream, "204 No Content", "", b""),
        _ => say(stream, "404 Not Found", "", b""),
    });
    let failed = in_bucket(port).put(&name(), vec![7; 17 << 20].into(), PutMode::Replace);
    assert!(matches!(failed, Err(TargetError::Failed { .. })), "{failed:?}");
}
