//! Web servers over HTTP/2: nginx, and servers whose frames break the rules.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use varve_remote::{OpenOptions, Pace, RetryPolicy, Target, open};
use varve_world::FileName;

use crate::kinds::{Certificate, static_http2, static_nginx, static_tls};
use crate::lonely_server::Server;
use crate::proxy::{Fault, Proxy};

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

fn at(port: u16, options: &OpenOptions) -> Box<dyn Target> {
    open(&format!("https://127.0.0.1:{port}/"), options).unwrap()
}

fn tried_once(options: &OpenOptions) -> OpenOptions {
    let silence_max = Duration::from_secs(20);
    let patience = RetryPolicy { try_count_max: 1, silence_max, ..RetryPolicy::default() };
    OpenOptions { patience, ..options.clone() }
}

/// Puts a file of `words` words of four bytes on a server.
fn put_words(server: &Server, words: u32) -> Bytes {
    let contents: Bytes = (0..words).flat_map(u32::to_le_bytes).collect::<Vec<_>>().into();
    fs::write(server.folder.path().join("www/object"), &contents).unwrap();
    contents
}

/// The requests of each connection. All of them used HTTP/2. The server may write the last line
/// after its answer, so this waits until `count` of them are there.
fn requests_by_connection(server: &Server, count: usize) -> BTreeMap<String, usize> {
    let read = || fs::read_to_string(server.folder.path().join("requests")).unwrap();
    let begun = Instant::now();
    while read().lines().count() < count && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut counts = BTreeMap::new();
    for line in read().lines() {
        let (connection, rest) = line.split_once(' ').unwrap();
        assert!(rest.starts_with("HTTP/2.0 "), "{line}");
        *counts.entry(connection.to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn requests_share_a_connection_until_the_server_ends_it() {
    const THREADS: usize = 16;
    const EACH: usize = 12;
    for requests_max in [1000, 10] {
        let Some((server, options)) = static_http2(requests_max) else { return };
        let contents = put_words(&server, 300_000);
        let target = at(server.port, &tried_once(&options));
        assert!(!target.multiplexes(), "nothing is known yet");
        // The first request makes the connection.
        assert_eq!(target.get(&name("object"), 0..8).unwrap(), contents[..8]);
        assert!(target.multiplexes() && target.knows_ranges());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (target, contents) = (&target, &contents);
                scope.spawn(move || {
                    for place in 0..EACH {
                        let start = (thread * EACH + place) * 4_000;
                        let got = target.get(&name("object"), start as u64..start as u64 + 50_000);
                        assert!(got.unwrap() == contents[start..start + 50_000], "{requests_max}: {start}");
                    }
                });
            }
        });
        let counts = requests_by_connection(&server, THREADS * EACH + 1);
        assert_eq!(counts.values().sum::<usize>(), THREADS * EACH + 1, "no request is sent in vain");
        match requests_max {
            1000 => assert_eq!(counts.len(), 1, "{counts:?}"),
            _ => assert!(counts.len() > THREADS, "{counts:?}"),
        }
    }
}

#[test]
fn a_server_without_http2_is_used_as_before() {
    let (Some((encrypted, options)), Some(plain)) = (static_tls(), static_nginx()) else { return };
    let url = format!("http://127.0.0.1:{}/", plain.port);
    let targets = [at(encrypted.port, &tried_once(&options)), open(&url, &options).unwrap()];
    for (target, server) in targets.iter().zip([&encrypted, &plain]) {
        let contents = put_words(server, 1000);
        assert!(target.get(&name("object"), 0..4000).unwrap() == contents);
        assert!(!target.multiplexes());
    }
}

#[test]
fn broken_connections_lose_nothing() {
    let Some((server, options)) = static_http2(1000) else { return };
    let contents = put_words(&server, 600_000);
    let length = contents.len() as u64;
    let proxy = Proxy::to(server.port);
    // The ping goes out after a quarter of it, and a busy machine needs some time for all the rest.
    let silence_max = Duration::from_secs(20);
    let first_pause = Duration::from_millis(10);
    let patience = RetryPolicy { try_count_max: 5, first_pause, silence_max, ..RetryPolicy::default() };
    let target = at(proxy.port, &OpenOptions { patience, ..options });
    for faults in [
        &[Fault::CutDown(100_000), Fault::ResetDown(1_500_000), Fault::CutUp(300)][..],
        &[Fault::Refuse, Fault::CutDown(900)],
        &[Fault::Stall(200_000)],
    ] {
        proxy.plan(faults);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(target.get(&name("object"), 0..length).unwrap() == contents));
            }
        });
        // A silent connection is noticed by its unanswered ping, long before its time-out.
        assert!(begun.elapsed() < silence_max, "{faults:?}");
    }
    assert!(proxy.broken_count() >= 6);
}

/// One frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// `:status: 200` in the static table.
const STATUS_200: u8 = 0x88;

/// A header whose value has 100 bytes, uncompressed.
fn header() -> Vec<u8> {
    [&[0, 4][..], b"name", &[100], &[b'x'; 100]].concat()
}

/// A server that answers the first request with `first`, and then sends `more` for ever. Counts the
/// sent bytes.
fn hostile(certificate: &Certificate, first: Vec<u8>, more: Vec<u8>) -> (u16, Arc<AtomicUsize>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let chain = CertificateDer::pem_file_iter(&certificate.both).unwrap().collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(&certificate.both).unwrap();
    let mut config = builder.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (config, sent) = (Arc::new(config), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let counted = Arc::clone(&sent);
    // The thread ends with the process. Nothing else listens on this port.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            drop(lie(&mut stream, &first, &more, &counted));
        }
    });
    (port, sent)
}

fn lie(
    stream: &mut StreamOwned<ServerConnection, TcpStream>,
    first: &[u8],
    more: &[u8],
    sent: &AtomicUsize,
) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 24])?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; usize::try_from(length).unwrap()])?;
        if head[3] == HEADERS {
            break;
        }
    }
    stream.write_all(first)?;
    stream.flush()?;
    while !more.is_empty() {
        stream.write_all(more)?;
        sent.fetch_add(more.len(), Ordering::Relaxed);
    }
    // The client sees the end only after it has read all of it.
    while stream.read(&mut [0; 4096])? > 0 {}
    Ok(())
}

#[test]
fn frames_that_break_the_rules_end_the_request() {
    /// The windows for answers have 8 MiB. The rest lies in the buffers of the sockets.
    const SENT_MAX: usize = 24 << 20;
    let Some(certificate) = Certificate::make() else { return };
    let options = OpenOptions {
        authorities: Some(certificate.both.clone()),
        patience: RetryPolicy {
            try_count_max: 1,
            silence_max: Duration::from_secs(2),
            ..RetryPolicy::default()
        },
        ..OpenOptions::default()
    };
    let headers: Vec<u8> = std::iter::repeat_with(header).take(140).flatten().collect();
    let answer = frame(HEADERS, END_HEADERS, 1, &[STATUS_200]);
    let status = frame(HEADERS, 0, 1, &[STATUS_200]);
    let full = vec![0; 16 << 10];
    let promise = [&2_u32.to_be_bytes()[..], &[0x82, 0x84, 0x87]].concat();
    let too_long = frame(DATA, 0, 1, &vec![0; 100_000]);
    let cases: [(&str, Vec<u8>, Vec<u8>); 8] = [
        ("a pushed answer", frame(PUSH_PROMISE, END_HEADERS, 1, &promise), Vec::new()),
        ("endless headers", status.clone(), frame(CONTINUATION, 0, 1, &headers)),
        ("endless empty headers", status.clone(), frame(CONTINUATION, 0, 1, &[])),
        ("many headers", [status, frame(CONTINUATION, 0, 1, &headers).repeat(6)].concat(), Vec::new()),
        ("a frame that is too long", [answer.clone(), too_long].concat(), Vec::new()),
        ("data of another request", [answer.clone(), frame(DATA, 0, 77, &full)].concat(), Vec::new()),
        ("a reset", frame(RESET, 0, 1, &[0, 0, 0, 2]), Vec::new()),
        ("no frame at all", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Vec::new()),
    ];
    for (case, first, more) in cases {
        let (port, sent) = hostile(&certificate, first, more);
        let begun = Instant::now();
        // No object is as long as this.
        let outcome = at(port, &options).get(&name("object"), 0..1 << 30);
        assert!(outcome.is_err(), "{case}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{case}");
        assert!(sent.load(Ordering::Relaxed) < SENT_MAX, "{case}: {sent:?}");
    }
    // A client that takes its time does not store bytes beyond its window: it ends the request.
    let slow = OpenOptions { down: Some(Arc::new(Pace::new(10_000))), ..options.clone() };
    let (port, _) = hostile(&certificate, answer.clone(), frame(DATA, 0, 1, &full));
    let begun = Instant::now();
    assert!(at(port, &slow).get(&name("object"), 0..1 << 20).is_err());
    assert!(begun.elapsed() < Duration::from_secs(20));
    // Frames without content are either ignored until the time-out, or end the connection.
    let mut settings = options.clone();
    settings.patience.bytes_per_second_min = 1 << 30;
    for (case, more) in [
        ("empty data", frame(DATA, 0, 1, &[]).repeat(100)),
        ("pings", frame(PING, 0, 0, &[0; 8]).repeat(100)),
        ("settings", frame(SETTINGS, 0, 0, &[]).repeat(100)),
    ] {
        let (port, _) = hostile(&certificate, answer.clone(), more);
        let begun = Instant::now();
        assert!(at(port, &settings).get(&name("object"), 0..1000).is_err(), "{case}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{case}");
    }
    // More bytes than were requested are thrown away.
    let (port, sent) = hostile(&certificate, answer, frame(DATA, 0, 1, &full));
    let target = at(port, &options);
    assert_eq!(target.get(&name("object"), 0..10).unwrap(), [0; 10][..]);
    // Nobody stops such a server, except by closing the connection.
    drop(target);
    std::thread::sleep(Duration::from_millis(500));
    let before = sent.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(sent.load(Ordering::Relaxed), before);
}
