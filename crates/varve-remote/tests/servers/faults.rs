//! Every kind of target behind a proxy that breaks connections. Each operation either succeeds in
//! the end or fails with the right error. No wrong byte is returned, and no partial object is
//! visible.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bytes::Bytes;
use varve_remote::{OpenOptions, PutMode, RetryPolicy, Target, TargetError, contract};
use varve_world::FileName;

use crate::kinds::{self, Kind};
use crate::proxy::{Fault, Proxy};

const CONTENT_BYTES: usize = 400_000;

const BUSY: &str =
    "HTTP/1.1 503 Slow Down\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const BROKEN: &str = "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops";
const TOO_MANY: &str =
    "HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

fn patient(kind: &Kind, try_count_max: u32) -> OpenOptions {
    let patience = RetryPolicy {
        try_count_max,
        first_pause: Duration::from_millis(5),
        pause_max: Duration::from_millis(50),
        silence_max: Duration::from_secs(2),
        bytes_per_second_min: 64 << 10,
    };
    OpenOptions { patience, ..kind.options.clone() }
}

/// Adds the proxy's port to `known_hosts`, because an SSH server is known by its port as well.
fn known_at(kind: &Kind, proxy: &Proxy) {
    if let Some(path) = &kind.options.known_hosts {
        let known = std::fs::read_to_string(path).unwrap();
        let line = known.lines().next().unwrap().to_owned();
        let also = line.replacen(&format!(":{}", kind.server.port), &format!(":{}", proxy.port), 1);
        std::fs::write(path, format!("{line}\n{also}\n")).unwrap();
    }
}

fn faults_of(kind: &Kind) -> Vec<Fault> {
    let mut faults = vec![Fault::Refuse, Fault::Slow];
    for limit in [1, 700, 2500, 9000, 399_000] {
        faults.extend([
            Fault::ResetUp(limit),
            Fault::ResetDown(limit),
            Fault::CutUp(limit),
            Fault::CutDown(limit),
        ]);
    }
    faults.extend([Fault::Stall(100), Fault::Stall(3000)]);
    if is_plain_http(kind) {
        for answer in [BUSY, BROKEN, TOO_MANY] {
            faults.extend([Fault::Answer(answer), Fault::AnswerAfter(answer)]);
        }
    }
    faults
}

fn is_plain_http(kind: &Kind) -> bool {
    matches!(kind.name, "s3" | "webdav")
}

fn contents(number: usize) -> Bytes {
    let words =
        (0_u32..).map(|word| word.wrapping_add(u32::try_from(number).unwrap()).wrapping_mul(0x9e37_79b9));
    words.flat_map(u32::to_be_bytes).take(CONTENT_BYTES).collect::<Vec<_>>().into()
}

/// Reads an object without the proxy: it must be whole or absent.
fn is_whole_or_absent(direct: &dyn Target, name: &FileName, expected: &Bytes, after: &str) -> bool {
    match direct.get(name, 0..CONTENT_BYTES as u64) {
        Ok(found) => {
            assert!(found == expected, "wrong bytes {after}");
            let listed = direct.list("").unwrap();
            let object =
                listed.iter().find(|object| object.name == *name).expect("it is there, so it is listed");
            assert_eq!(object.bytes, CONTENT_BYTES as u64, "{after}");
            true
        }
        Err(TargetError::NotFound { .. }) => false,
        Err(error) => panic!("half an object {after}: {error:?}"),
    }
}

fn survives(kind: Option<Kind>) {
    let Some(kind) = kind else { return };
    let proxy = Proxy::to(kind.server.port);
    known_at(&kind, &proxy);
    let place = kind.fresh_place();
    let direct = kind.at(&place);
    let proxied = kind.through(proxy.port, &place, &patient(&kind, 4));
    let is_ftp = kind.name == "ftp";
    let started = Instant::now();
    for (number, fault) in faults_of(&kind).into_iter().enumerate() {
        for is_data in [false, true] {
            if is_data && !is_ftp {
                continue;
            }
            let after = format!("on {} after {fault:?} (data: {is_data})", kind.name);
            let plan = |faults: &[Fault]| {
                if is_data { proxy.plan_both(&[], faults) } else { proxy.plan(faults) }
            };
            let object = FileName::new(&format!("object-{number}-{is_data}")).unwrap();
            let contents = contents(number);
            plan(&[fault]);
            let put = proxied.put(&object, contents.clone(), PutMode::Create);
            assert!(put.is_ok(), "put {after}: {put:?}");
            assert!(is_whole_or_absent(&*direct, &object, &contents, &after), "lost {after}");
            plan(&[fault]);
            let got = proxied.get(&object, 5..CONTENT_BYTES as u64 - 5);
            let got = got.unwrap_or_else(|error| panic!("get {after}: {error:?}"));
            assert!(got == contents.slice(5..CONTENT_BYTES - 5), "wrong bytes {after}");
            plan(&[fault]);
            let mut pieces = Vec::new();
            let got = proxied.get_in_pieces(&object, 5..CONTENT_BYTES as u64 - 5, 77, &mut |piece| {
                pieces.extend_from_slice(&piece);
                ControlFlow::Continue(())
            });
            assert!(got.is_ok(), "get in pieces {after}: {got:?}");
            assert!(pieces == contents[5..CONTENT_BYTES - 5], "wrong bytes in pieces {after}");
            plan(&[fault]);
            let listed = proxied.list("").unwrap_or_else(|error| panic!("list {after}: {error:?}"));
            assert_eq!(listed.len(), direct.list("").unwrap().len(), "{after}");
            plan(&[fault]);
            let again = proxied.put(&object, Bytes::from_static(b"other"), PutMode::Create);
            assert!(matches!(again, Err(TargetError::Exists { .. })), "{after}: {again:?}");
            plan(&[fault]);
            proxied.put(&object, contents.slice(1..), PutMode::Replace).unwrap();
            assert_eq!(direct.get(&object, 0..9).unwrap(), contents.slice(1..10), "{after}");
            plan(&[fault]);
            proxied.remove(&object).unwrap_or_else(|error| panic!("remove {after}: {error:?}"));
            assert!(!is_whole_or_absent(&*direct, &object, &contents, &after), "not removed {after}");
        }
    }
    let seconds = started.elapsed().as_secs();
    println!("{}: {} connections broken in {seconds} s, nothing lost", kind.name, proxy.broken_count());
}

#[test]
fn s3_survives() {
    survives(kinds::s3());
}

#[test]
fn sftp_survives() {
    survives(kinds::sftp());
}

#[test]
fn ftp_survives() {
    survives(kinds::ftp());
}

#[test]
fn webdav_survives() {
    survives(kinds::webdav());
}

/// When every attempt is broken, the operation fails with a temporary error, and the object is
/// whole or absent.
#[test]
fn what_never_works_fails_and_leaves_nothing_half() {
    for kind in [kinds::s3(), kinds::sftp(), kinds::ftp(), kinds::webdav()].into_iter().flatten() {
        let proxy = Proxy::to(kind.server.port);
        known_at(&kind, &proxy);
        let place = kind.fresh_place();
        let direct = kind.at(&place);
        let proxied = kind.through(proxy.port, &place, &patient(&kind, 2));
        let broken = [
            Fault::Refuse,
            Fault::ResetUp(70_000),
            Fault::CutUp(200_000),
            Fault::CutUp(399_990),
            Fault::ResetDown(2),
        ];
        for (number, fault) in broken.into_iter().enumerate() {
            let object = FileName::new(&format!("object-{number}")).unwrap();
            proxy.plan_both(&[fault; 40], &[fault; 40]);
            let put = proxied.put(&object, contents(number), PutMode::Create);
            let after = format!("on {} after {fault:?}", kind.name);
            if !matches!(put, Err(TargetError::Failed { .. })) {
                // A limit greater than the number of bytes sent breaks nothing.
                assert!(
                    put.is_ok() && is_whole_or_absent(&*direct, &object, &contents(number), &after),
                    "{after}: {put:?}"
                );
            }
            proxy.plan(&[]);
            is_whole_or_absent(&*direct, &object, &contents(number), &after);
            proxy.plan_both(&[Fault::Refuse; 40], &[]);
            let get = proxied.get(&object, 0..1);
            assert!(matches!(get, Err(TargetError::Failed { .. })), "{after}: {get:?}");
            proxy.plan(&[]);
            // The target works again after the faults.
            proxied.put(&FileName::new("next").unwrap(), Bytes::new(), PutMode::Replace).unwrap();
        }
    }
}

/// An interrupted upload of a large object sends only the parts that have not arrived.
#[test]
fn parts_that_arrived_are_not_sent_again() {
    let Some(kind) = kinds::s3() else { return };
    let proxy = Proxy::to(kind.server.port);
    let place = kind.fresh_place();
    let proxied = kind.through(proxy.port, &place, &patient(&kind, 6));
    assert!(proxied.capabilities().create_is_exclusive);
    let object = FileName::new("object").unwrap();
    let contents = Bytes::from((0_u32..12 << 20).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    // The first connections carry small requests, the later ones carry parts.
    let cut = Fault::CutUp(10 << 20);
    proxy.plan(&[cut, cut, cut, cut]);
    proxied.put(&object, contents.clone(), PutMode::Create).unwrap();
    assert!(kind.at(&place).get(&object, 0..contents.len() as u64).unwrap() == contents);
    assert_eq!(kind.at(&place).list("").unwrap().len(), 1);
}

/// Runs the whole contract suite over a bad line: each new connection breaks sooner or later.
#[test]
fn the_contract_holds_over_a_bad_line() {
    for kind in [kinds::s3(), kinds::sftp(), kinds::ftp(), kinds::webdav()].into_iter().flatten() {
        let proxy = Proxy::to(kind.server.port);
        known_at(&kind, &proxy);
        let limits = [3000_usize, 20_000, 50_000, 900_000, 300_000, 7000, 5_000_000];
        let bad: Vec<_> =
            limits.iter().flat_map(|&limit| [Fault::CutDown(limit), Fault::ResetUp(limit)]).collect();
        // One call may meet all faults, on its control and its data connections. A busy machine
        // adds time-outs of its own.
        let options = patient(&kind, u32::try_from(2 * bad.len() + 12).unwrap());
        contract::check_over_bad_line(&mut || {
            proxy.plan_both(&bad, &bad);
            kind.through(proxy.port, &kind.fresh_place(), &options)
        });
        println!("{}: {} connections broken", kind.name, proxy.broken_count());
    }
}
