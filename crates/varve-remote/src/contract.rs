//! What every [`Target`] must do, as one suite that all of them pass.

use bytes::Bytes;
use varve_world::FileName;

use crate::{Object, PutMode, Target, TargetError};

/// Runs the whole suite on targets that `fresh` makes, each empty.
///
/// # Panics
/// When a target breaks its promise; the message says which.
pub fn check<T: Target>(fresh: &mut dyn FnMut() -> T) {
    objects_come_back(&fresh());
    creation_never_replaces(&fresh());
    listings_are_whole(&fresh());
    removal_removes(&fresh());
}

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

fn objects_come_back(target: &impl Target) {
    let (file, contents) = (name("arenas/0000000001/object"), Bytes::from_static(b"0123456789"));
    assert!(matches!(target.get(&file, 0..1), Err(TargetError::NotFound { .. })));
    target.put(&file, contents.clone(), PutMode::Create).unwrap();
    assert_eq!(target.get(&file, 0..10).unwrap(), contents);
    assert_eq!(target.get(&file, 3..7).unwrap(), contents.slice(3..7));
    assert_eq!(target.get(&file, 9..10).unwrap(), contents.slice(9..));
    assert!(matches!(target.get(&file, 5..11), Err(TargetError::Short { .. })));
    target.put(&file, Bytes::from_static(b"other"), PutMode::Replace).unwrap();
    assert_eq!(target.get(&file, 0..5).unwrap(), "other");
    let empty = name("empty");
    target.put(&empty, Bytes::new(), PutMode::Create).unwrap();
    assert_eq!(target.get(&empty, 0..0).unwrap(), "");
}

fn creation_never_replaces(target: &impl Target) {
    let file = name("config.toml");
    target.put(&file, Bytes::from_static(b"first"), PutMode::Create).unwrap();
    let again = target.put(&file, Bytes::from_static(b"second"), PutMode::Create);
    assert!(matches!(again, Err(TargetError::Exists { .. })));
    assert_eq!(target.get(&file, 0..5).unwrap(), "first");
}

fn listings_are_whole(target: &impl Target) {
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
}

fn removal_removes(target: &impl Target) {
    let file = name("keys/one.toml");
    assert!(matches!(target.remove(&file), Err(TargetError::NotFound { .. })));
    target.put(&file, Bytes::from_static(b"x"), PutMode::Create).unwrap();
    target.remove(&file).unwrap();
    assert_eq!(target.list("keys").unwrap(), []);
    assert!(matches!(target.get(&file, 0..1), Err(TargetError::NotFound { .. })));
}
