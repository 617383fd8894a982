//! Servers of static files: nginx, and Python's server, which knows no ranges.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use varve_remote::{OpenOptions, Pace, PutMode, RetryPolicy, Target, TargetError, open};
use varve_world::FileName;

use crate::hostile::{options, say, server};
use crate::kinds::{static_nginx, static_python, static_tls};
use crate::lonely_server::Server;

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

fn at(server: &Server, place: &str) -> Box<dyn Target> {
    open(&format!("http://127.0.0.1:{}/{place}", server.port), &options()).unwrap()
}

#[test]
fn files_are_read_whole_and_in_ranges() {
    let servers = [(static_nginx(), true), (static_python(), false)];
    for (server, knows_ranges) in
        servers.iter().filter_map(|(server, ranges)| Some((server.as_ref()?, ranges)))
    {
        let contents: Vec<u8> = (0_u32..300_000).flat_map(|word| word.to_le_bytes()).collect();
        let contents = Bytes::from(contents);
        let length = contents.len() as u64;
        let www = server.folder.path().join("www");
        fs::create_dir_all(www.join("a b/objects/ab")).unwrap();
        fs::write(www.join("a b/objects/ab/abcd"), &contents).unwrap();
        fs::write(www.join("a b/head"), "first").unwrap();
        let target = at(server, "a%20b/");
        let file = name("objects/ab/abcd");
        for range in [0..length, 0..1, 5..70_000, 1_000_000..length, length - 1..length] {
            let within = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            assert!(target.get(&file, range.clone()).unwrap() == contents.slice(within.clone()), "{range:?}");
            let mut got = Vec::new();
            let take = &mut |piece: Bytes| {
                got.extend_from_slice(&piece);
                ControlFlow::Continue(())
            };
            target.get_in_pieces(&file, range.clone(), 0, take).unwrap();
            assert!(got == contents[within], "{range:?} in pieces");
        }
        assert_eq!(target.capabilities().ranges, *knows_ranges);
        for range in [0..length + 1, length..length + 1] {
            assert!(matches!(target.get(&file, range), Err(TargetError::Short { .. })));
        }
        assert!(matches!(target.get(&name("objects/ab/none"), 0..9), Err(TargetError::NotFound { .. })));

        let whole = target.get_whole(&file, length, None).unwrap().unwrap();
        assert!(whole.bytes == contents);
        assert!(matches!(target.get_whole(&file, length - 1, None), Err(TargetError::Refused { .. })));
        let missing = target.get_whole(&name("none"), 9, None);
        assert!(matches!(missing, Err(TargetError::NotFound { .. })), "{missing:?}");

        // nginx marks the state of a file. Python's server does not.
        let head = target.get_whole(&name("head"), 9, None).unwrap().unwrap();
        assert_eq!((&head.bytes[..], head.mark.is_some()), (&b"first"[..], *knows_ranges));
        if head.mark.is_some() {
            assert_eq!(target.get_whole(&name("head"), 9, head.mark.as_deref()).unwrap(), None);
        }
        fs::write(www.join("a b/head"), "second").unwrap();
        let next = target.get_whole(&name("head"), 9, head.mark.as_deref()).unwrap().unwrap();
        assert_eq!(&next.bytes[..], b"second");

        // Nothing else works, and says what would.
        let put = target.put(&file, Bytes::new(), PutMode::Replace).map(drop);
        for refused in [put, target.remove(&file), target.list("").map(drop)] {
            let Err(TargetError::Refused { source, .. }) = refused else { panic!("{refused:?}") };
            assert!(source.to_string().contains("webdav+http://"), "{source}");
        }
    }
}

#[test]
fn four_redirects_are_followed() {
    let Some(server) = static_nginx() else { return };
    fs::write(server.folder.path().join("www/head"), "0123456789").unwrap();
    for place in ["moved", "hops111"] {
        let target = at(&server, place);
        assert_eq!(target.get(&name("head"), 3..7).unwrap(), "3456", "{place}");
        assert_eq!(target.get_whole(&name("head"), 10, None).unwrap().unwrap().bytes, "0123456789");
    }
    let refused = at(&server, "hops1111").get(&name("head"), 3..7);
    let Err(TargetError::Refused { source, .. }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("redirects too often"), "{source}");
}

#[test]
fn lies_of_a_web_server_are_bounded() {
    let at = |port| open(&format!("http://127.0.0.1:{port}/in"), &options()).unwrap();
    let endless = at(server(|_, stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"));
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
    }));
    assert!(matches!(endless.get_whole(&name("head"), 1 << 20, None), Err(TargetError::Refused { .. })));
    assert_eq!(endless.get(&name("head"), 0..10).unwrap(), "xxxxxxxxxx");

    let unchanged = at(server(|_, stream| say(stream, "304 Not Modified", "", b"")));
    let claimed = unchanged.get_whole(&name("head"), 9, None);
    assert!(matches!(claimed, Err(TargetError::Refused { .. })), "nothing is known yet: {claimed:?}");
    let circle = at(server(|_, stream| say(stream, "302 Found", "Location: /in/head\r\n", b"")));
    assert!(matches!(circle.get(&name("head"), 0..1), Err(TargetError::Refused { .. })));
    let identity = at(server(|asked, stream| {
        let encoding = asked.headers.get("accept-encoding").cloned().unwrap_or_default();
        say(stream, "200 OK", "", encoding.as_bytes());
    }));
    assert_eq!(identity.get_whole(&name("head"), 99, None).unwrap().unwrap().bytes, "identity");
    assert_eq!(identity.get(&name("head"), 0..8).unwrap(), "identity");
}

/// Options of a caller that tries once, and waits half a second for a silent server.
fn impatient() -> OpenOptions {
    let silence_max = Duration::from_millis(500);
    OpenOptions { patience: RetryPolicy { try_count_max: 1, silence_max, ..options().patience }, ..options() }
}

#[test]
fn a_byte_now_and_then_is_no_answer() {
    let port = server(|_, stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"));
        while stream.write_all(b"v").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let target = open(&format!("http://127.0.0.1:{port}/in"), &impatient()).unwrap();
    let begun = Instant::now();
    let slow = target.get_whole(&name("head"), 1 << 20, None);
    let Err(TargetError::Failed { source, .. }) = slow else { panic!("{slow:?}") };
    assert!(source.to_string().contains("fewer than"), "{source}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// Only the end of the connection marks the end of such an answer.
#[test]
fn an_answer_without_a_length_is_read_to_its_end() {
    for start in ["HTTP/1.0 200 OK", "HTTP/1.1 200 OK"] {
        let port = server(move |asked, stream| {
            let body: &[u8] = if asked.path.ends_with("cut") { b"01234" } else { b"0123456789" };
            drop(stream.write_all(format!("{start}\r\nConnection: close\r\n\r\n").as_bytes()));
            drop(stream.write_all(body));
        });
        let target = open(&format!("http://127.0.0.1:{port}/in"), &impatient()).unwrap();
        let pieces = |file: &str, range| {
            let mut got = Vec::new();
            let taken = target.get_in_pieces(&name(file), range, 0, &mut |piece| {
                got.extend_from_slice(&piece);
                ControlFlow::Continue(())
            });
            taken.map(|()| got)
        };
        assert_eq!(target.get_whole(&name("head"), 99, None).unwrap().unwrap().bytes, "0123456789");
        for range in [0..10, 3..7, 9..10] {
            let within = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            assert_eq!(target.get(&name("head"), range.clone()).unwrap(), &b"0123456789"[within.clone()]);
            assert_eq!(pieces("head", range).unwrap(), &b"0123456789"[within]);
        }
        // It may have been cut, so it says nothing of the length of the object.
        let cut = [target.get(&name("cut"), 0..10).map(drop), pieces("cut", 0..10).map(drop)];
        assert!(cut.iter().all(|cut| matches!(cut, Err(TargetError::Failed { .. }))), "{cut:?}");
    }
}

#[test]
fn a_pause_that_a_server_asks_for_is_named() {
    let port = server(|asked, stream| {
        let asks = if asked.path.ends_with("head") { "Retry-After: 15\r\n" } else { "" };
        say(stream, "429 Too Many Requests", asks, b"");
    });
    let target = open(&format!("http://127.0.0.1:{port}/in"), &impatient()).unwrap();
    let refused = target.get(&name("head"), 0..1).unwrap_err();
    assert_eq!(refused.asked_pause(), Some(Duration::from_secs(15)));
    let TargetError::Failed { source, .. } = refused else { panic!("{refused}") };
    assert!(source.to_string().contains("the server asks to wait for 15 s"), "{source}");
    assert_eq!(target.get(&name("other"), 0..1).unwrap_err().asked_pause(), None);
}

/// Several threads share the pace, and each attempt counts.
#[test]
fn requests_keep_their_pace() {
    let count = Arc::new(AtomicU64::new(0));
    let asked_count = Arc::clone(&count);
    let port = server(move |_, stream| {
        // Each second request fails, and is sent again.
        let is_odd = asked_count.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        let status = if is_odd { "200 OK" } else { "500 Internal Server Error" };
        say(stream, status, "", b"1");
    });
    for url in ["http://127.0.0.1:PORT/in", "s3://bucket/in?endpoint=http://127.0.0.1:PORT"] {
        count.store(0, Ordering::SeqCst);
        let options = OpenOptions { requests: Some(Arc::new(Pace::new(40))), ..options() };
        let target = open(&url.replace("PORT", &port.to_string()), &options).unwrap();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        // The answers may fall on the attempts of another thread.
                        drop(target.get(&name("head"), 0..1));
                        let take = &mut |_| ControlFlow::Continue(());
                        drop(target.get_in_pieces(&name("head"), 0..1, 0, take));
                    }
                });
            }
        });
        let (seconds, count) = (begun.elapsed().as_secs_f64(), count.load(Ordering::SeqCst));
        let most = 40.0 * seconds + 11.0;
        assert!(
            count >= 30 && u32::try_from(count).is_ok_and(|count| f64::from(count) <= most),
            "{count} in {seconds} s"
        );
    }
}

#[test]
fn a_redirect_carries_no_password_to_another_server() {
    let stranger = server(|asked, stream| {
        let was_sent = asked.headers.contains_key("authorization");
        say(stream, "200 OK", "", if was_sent { b"password" } else { b"nothing!" });
    });
    let first = server(move |asked, stream| {
        assert!(asked.headers.contains_key("authorization"));
        say(stream, "302 Found", &format!("Location: http://127.0.0.1:{stranger}/x\r\n"), b"");
    });
    let options =
        OpenOptions { patience: RetryPolicy { try_count_max: 1, ..options().patience }, ..options() };
    let target = open(&format!("http://ann:hunter2@127.0.0.1:{first}/in"), &options).unwrap();
    assert_eq!(target.get(&name("head"), 0..8).unwrap(), "nothing!");
}

#[test]
fn encryption_is_never_given_up() {
    let Some((server, options)) = static_tls() else { return };
    fs::write(server.folder.path().join("www/head"), "0123456789").unwrap();
    let at = |place: &str| open(&format!("https://127.0.0.1:{}/{place}", server.port), &options).unwrap();
    assert_eq!(at("").get(&name("head"), 3..7).unwrap(), "3456");
    let refused = at("plain").get(&name("head"), 3..7);
    let Err(TargetError::Refused { source, .. }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("from HTTPS to HTTP"), "{source}");
    let stranger = OpenOptions { authorities: None, ..options };
    let target = open(&format!("https://127.0.0.1:{}/", server.port), &stranger).unwrap();
    assert!(target.get(&name("head"), 3..7).is_err(), "the certificate of nobody");
}
