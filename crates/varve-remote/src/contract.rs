//! The contract of a [`Target`]: one suite that all targets pass.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use varve_block::to_usize;
use varve_world::FileName;

use crate::target::{Erased, NonObjectKind, Object, PutMode, Target, TargetError};

/// Runs the whole suite. Each call of `fresh` must make an empty target.
///
/// # Panics
/// When a target breaks its contract. The message names the broken rule.
pub fn check(fresh: &mut dyn FnMut() -> Box<dyn Target>) {
    check_over(Line::Good, fresh);
}

/// Runs the whole suite over a line that breaks. If the answer to a removal is lost, an object that
/// is absent afterwards may have been removed: then this is no error.
///
/// # Panics
/// As [`check`].
pub fn check_over_bad_line(fresh: &mut dyn FnMut() -> Box<dyn Target>) {
    check_over(Line::Bad, fresh);
}

/// The line between a target and its server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Good,
    Bad,
}

fn check_over(line: Line, fresh: &mut dyn FnMut() -> Box<dyn Target>) {
    objects_come_back(&*fresh());
    whole_objects_come_back(&*fresh());
    ranges_are_exact(&*fresh());
    pieces_follow_one_another(&*fresh());
    creation_never_replaces(&*fresh());
    one_of_two_creators_wins(&*fresh());
    replaced_objects_are_one_or_the_other(&*fresh());
    many_may_call_at_once(&*fresh());
    listings_are_whole(&*fresh());
    removal_removes(&*fresh(), line);
}

/// Lists more objects than servers put in one answer. It is slow, so it is not part of [`check`].
/// `target` must be empty.
///
/// # Panics
/// When the listing is incomplete.
pub fn check_many(target: &dyn Target) {
    let names: Vec<_> = (0..1200).map(|number| name(&format!("many/{number:04}"))).collect();
    at_once(4, |worker| {
        for name in names.iter().skip(worker).step_by(4) {
            target.put(name, Bytes::from(name.as_str().to_owned()), PutMode::Create).unwrap();
        }
    });
    let listed = target.list("many").unwrap();
    let expected: Vec<_> = names.into_iter().map(|name| Object { name, bytes: 9 }).collect();
    assert_eq!(listed, expected);
}

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

/// Bytes that differ everywhere, so that a misplaced piece is detected.
fn pattern(byte_count: usize) -> Bytes {
    let words = (0_u32..).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_be_bytes());
    words.take(byte_count).collect::<Vec<_>>().into()
}

/// Runs `work` on this many threads. Each gets its number.
#[expect(clippy::disallowed_methods, reason = "these checks are about threads")]
fn at_once<R: Send>(worker_count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..worker_count).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

fn objects_come_back(target: &dyn Target) {
    let (file, contents) = (name("arenas/0000000001/object"), Bytes::from_static(b"0123456789"));
    assert!(matches!(target.get(&file, 0..1), Err(TargetError::NotFound { .. })));
    assert!(matches!(target.get(&file, 0..0), Err(TargetError::NotFound { .. })));
    target.put(&file, contents.clone(), PutMode::Create).unwrap();
    assert_eq!(target.get(&file, 0..10).unwrap(), contents);
    assert_eq!(target.get(&file, 3..7).unwrap(), contents.slice(3..7));
    assert_eq!(target.get(&file, 9..10).unwrap(), contents.slice(9..));
    assert!(matches!(target.get(&file, 5..11), Err(TargetError::Short { .. })));
    target.put(&file, Bytes::from_static(b"other"), PutMode::Replace).unwrap();
    assert_eq!(target.get(&file, 0..5).unwrap(), "other");
    assert!(matches!(target.get(&file, 0..10), Err(TargetError::Short { .. })));
    let empty = name("empty");
    target.put(&empty, Bytes::new(), PutMode::Create).unwrap();
    assert_eq!(target.get(&empty, 0..0).unwrap(), "");
    let new = name("made-by-replacing");
    target.put(&new, contents.clone(), PutMode::Replace).unwrap();
    assert_eq!(target.get(&new, 0..10).unwrap(), contents);
}

fn whole_objects_come_back(target: &dyn Target) {
    let (file, contents) = (name("head"), pattern(100_001));
    let length = contents.len() as u64;
    assert!(matches!(target.get_whole(&file, 9, None), Err(TargetError::NotFound { .. })));
    for contents in [contents.clone(), Bytes::new()] {
        target.put(&file, contents.clone(), PutMode::Replace).unwrap();
        let whole = target.get_whole(&file, length, None).unwrap().expect("no mark was given");
        assert!(whole.bytes == contents, "it came back changed");
        let other = target.get_whole(&file, length, Some("\"no mark of it\"")).unwrap();
        assert!(other.is_some_and(|whole| whole.bytes == contents), "another mark was believed");
    }
    target.put(&file, contents, PutMode::Replace).unwrap();
    let longer = target.get_whole(&file, length - 1, None);
    assert!(matches!(longer, Err(TargetError::Refused { .. })), "{longer:?}");
}

fn ranges_are_exact(target: &dyn Target) {
    // Larger than any piece of a transfer.
    let (file, contents) = (name("arenas/0000000002/object"), pattern(3_000_001));
    let length = contents.len() as u64;
    target.put(&file, contents.clone(), PutMode::Create).unwrap();
    assert!(target.get(&file, 0..length).unwrap() == contents, "the whole object came back changed");
    let borders = [0, 1, 8191, 32_768, 262_145, 1 << 20, 2_999_999, 3_000_000, 3_000_001];
    for (index, &start) in borders.iter().enumerate() {
        for &end in &borders[index..] {
            let expected = contents.slice(start..end);
            let got = target.get(&file, start as u64..end as u64).unwrap();
            assert!(got == expected, "{start}..{end} came back wrong");
        }
    }
    for (start, end) in
        [(length, length + 1), (length + 5, length + 5), (0, length + 1), (length + 5, length + 9)]
    {
        let outcome = target.get(&file, start..end);
        assert!(matches!(outcome, Err(TargetError::Short { .. })), "{start}..{end}: {outcome:?}");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "what a caller's mistake would be")]
    let reversed = target.get(&file, 7..3);
    assert!(matches!(reversed, Err(TargetError::Short { .. })), "{reversed:?}");
}

fn pieces_follow_one_another(target: &dyn Target) {
    // Longer than any piece.
    let (file, contents) = (name("arenas/0000000003/object"), pattern(5_000_001));
    let length = contents.len() as u64;
    target.put(&file, contents.clone(), PutMode::Create).unwrap();
    for (range, place) in [
        (0..length, 0),
        (0..length, 128),
        (1..length - 1, 4095),
        (3_000_000..length, 7 << 20),
        (5..6, 12_345_678),
    ] {
        let mut got = Vec::new();
        let outcome = target.get_in_pieces(&file, range.clone(), place, &mut |piece| {
            assert!(!piece.is_empty(), "an empty piece of {range:?}");
            got.extend_from_slice(&piece);
            ControlFlow::Continue(())
        });
        outcome.unwrap();
        let within = to_usize(range.start)..to_usize(range.end);
        assert!(got == contents[within], "{range:?} came back wrong in pieces for {place}");
    }
    let mut piece_count = 0;
    let broken_off = target.get_in_pieces(&file, 0..length, 0, &mut |_| {
        piece_count += 1;
        ControlFlow::Break(())
    });
    assert!(broken_off.is_ok() && piece_count == 1, "{broken_off:?} after {piece_count} pieces");
    let mut none = |piece: Bytes| panic!("{} bytes where there are none", piece.len());
    target.get_in_pieces(&file, 7..7, 0, &mut none).unwrap();
    let beyond = target.get_in_pieces(&file, length + 1..length + 9, 0, &mut none);
    assert!(matches!(beyond, Err(TargetError::Short { .. })), "{beyond:?}");
    let missing = target.get_in_pieces(&name("arenas/0000000003/none"), 0..9, 0, &mut none);
    assert!(matches!(missing, Err(TargetError::NotFound { .. })), "{missing:?}");
}

fn creation_never_replaces(target: &dyn Target) {
    let file = name("config.toml");
    target.put(&file, Bytes::from_static(b"first"), PutMode::Create).unwrap();
    for again in ["second", "first", ""] {
        let again = target.put(&file, again.into(), PutMode::Create);
        assert!(matches!(again, Err(TargetError::Exists { .. })), "{again:?}");
    }
    assert_eq!(target.get(&file, 0..5).unwrap(), "first");
    assert_eq!(target.list("").unwrap(), [Object { name: file, bytes: 5 }]);
}

fn one_of_two_creators_wins(target: &dyn Target) {
    if !target.capabilities().create_is_exclusive {
        return;
    }
    for round in 0..10 {
        let file = name(&format!("claims/{round}"));
        let claims = at_once(4, |worker| {
            // Each has a different length, and no two are equal.
            let claim = Bytes::from(format!("{worker}").repeat(1 + worker * 1000));
            (target.put(&file, claim.clone(), PutMode::Create), claim)
        });
        let (won, lost): (Vec<_>, Vec<_>) = claims.into_iter().partition(|(outcome, _)| outcome.is_ok());
        assert_eq!(won.len(), 1, "{} of four creators were told that they won", won.len());
        for (outcome, _) in lost {
            assert!(matches!(outcome, Err(TargetError::Exists { .. })), "{outcome:?}");
        }
        let claim = &won[0].1;
        assert_eq!(target.get(&file, 0..claim.len() as u64).unwrap(), claim);
    }
}

/// During a replacement, an object is the old or the new one, never a mixture. It is never absent
/// either, if the target replaces in one step.
fn replaced_objects_are_one_or_the_other(target: &dyn Target) {
    let file = name("head");
    let state = |number: usize| Bytes::from(vec![u8::try_from(number).unwrap(); 50_000]);
    target.put(&file, state(0), PutMode::Create).unwrap();
    let seen = at_once(2, |worker| {
        let mut seen = BTreeSet::new();
        for number in 1..=20 {
            if worker == 0 {
                target.put(&file, state(number), PutMode::Replace).unwrap();
                continue;
            }
            match target.get(&file, 0..50_000) {
                Ok(contents) => {
                    assert!(contents.iter().all(|&byte| byte == contents[0]), "parts of two objects");
                    seen.insert(contents[0]);
                }
                Err(error) => panic!("while it was replaced: {error:?}"),
            }
        }
        seen
    });
    assert!(!seen[1].is_empty());
    assert_eq!(target.get(&file, 0..50_000).unwrap(), state(20));
}

fn many_may_call_at_once(target: &dyn Target) {
    at_once(8, |worker| {
        let file = name(&format!("workers/{worker}"));
        let contents = pattern(100_000 + worker);
        target.put(&file, contents.clone(), PutMode::Create).unwrap();
        for _ in 0..5 {
            assert!(target.get(&file, 0..contents.len() as u64).unwrap() == contents);
            assert!(target.get(&file, 77..worker as u64 + 99).unwrap() == contents.slice(77..worker + 99));
        }
    });
    assert_eq!(target.list("workers").unwrap().len(), 8);
}

fn listings_are_whole(target: &dyn Target) {
    assert_eq!(target.list("").unwrap(), []);
    assert_eq!(target.list("nowhere").unwrap(), []);
    for text in ["b/one", "b/deep/two", "a", "bb/three"] {
        target.put(&name(text), Bytes::from_static(b"xyz"), PutMode::Create).unwrap();
    }
    let listed = |names: &[&str]| -> Vec<Object> {
        names.iter().map(|text| Object { name: name(text), bytes: 3 }).collect()
    };
    assert_eq!(target.list("").unwrap(), listed(&["a", "b/deep/two", "b/one", "bb/three"]));
    assert_eq!(target.list("b").unwrap(), listed(&["b/deep/two", "b/one"]));
    assert_eq!(target.list("b/deep").unwrap(), listed(&["b/deep/two"]));
    assert_eq!(target.list("a").unwrap(), [], "an object is no folder");
    let survey = target.survey().unwrap();
    assert_eq!(survey.objects, target.list("").unwrap());
    // A target that has folders at all reports all of them.
    let folders: Vec<_> = ["b", "b/deep", "bb"].map(name).into();
    let others: Vec<_> = survey.others.into_iter().map(|other| (other.name, other.kind)).collect();
    let all: Vec<_> = folders.into_iter().map(|folder| (folder, NonObjectKind::Folder)).collect();
    assert!(others.is_empty() || others == all, "{others:?}");
}

fn removal_removes(target: &dyn Target, line: Line) {
    let file = name("keys/one.toml");
    let names_an_absent_one = |removed: Result<Erased, TargetError>| match removed {
        Ok(erased) => line == Line::Bad && erased == Erased::Gone,
        Err(error) => matches!(error, TargetError::NotFound { .. }),
    };
    let remove = || target.remove(&file).map(|()| Erased::Gone);
    assert!(names_an_absent_one(remove()));
    target.put(&file, Bytes::from_static(b"x"), PutMode::Create).unwrap();
    target.remove(&file).unwrap();
    assert_eq!(target.list("keys").unwrap(), []);
    assert!(matches!(target.get(&file, 0..1), Err(TargetError::NotFound { .. })));
    assert!(names_an_absent_one(remove()));
    target.put(&file, Bytes::from_static(b"again"), PutMode::Create).unwrap();
    assert_eq!(target.get(&file, 0..5).unwrap(), "again");
    assert_eq!(target.erase(&file).unwrap(), Erased::Gone);
    assert_eq!(target.list("keys").unwrap(), []);
    assert!(names_an_absent_one(target.erase(&file)));
}
