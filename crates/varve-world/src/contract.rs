//! The contract of [`Storage`](crate::Storage), as a test suite that all implementations pass.

use std::io::ErrorKind;

use crate::page_buffer::{PAGE_BYTES, PageBuffer};
use crate::storage::{FileName, LockError, Storage};

/// Runs the whole suite. `fresh` makes an empty storage for each test.
///
/// # Panics
/// If the storage violates the contract. The message has the details.
pub fn check<S: Storage>(fresh: &mut dyn FnMut() -> S) {
    appends_add_up(&fresh());
    what_is_freed_later_is_gone_at_once(&fresh());
    names_are_kept_apart(&fresh());
    truncation_cuts(&fresh());
    renames_replace(&fresh());
    locks_exclude(&fresh());
    a_locked_file_can_be_read_and_removed(&fresh());
    replacement_is_whole(&fresh());
}

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

fn appends_add_up(storage: &impl Storage) {
    let file = name("folder/file");
    assert_eq!(storage.length(&file).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(storage.append(&file, b"x").unwrap_err().kind(), ErrorKind::NotFound);
    storage.create(&file).unwrap();
    assert_eq!(storage.create(&file).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(storage.append(&file, b"hello ").unwrap(), 0);
    storage.sync_soon(&file);
    assert_eq!(storage.append_uncached(&file, b"world").unwrap(), 6);
    assert_eq!(storage.length(&file).unwrap(), 11);
    storage.sync(&file).unwrap();
    storage.sync_folder("folder").unwrap();
    let mut piece = [0; 5];
    storage.read_at(&file, 3, &mut piece).unwrap();
    assert_eq!(&piece, b"lo wo");
    let mut pages = PageBuffer::zeroed(11);
    storage.read_uncached_at(&file, 0, &mut pages).unwrap();
    assert_eq!(&pages[..], b"hello world");
    storage.read_uncached_at(&file, 3, &mut piece).unwrap();
    assert_eq!(&piece, b"lo wo");
    let past = storage.read_uncached_at(&file, 0, &mut PageBuffer::zeroed(2 * PAGE_BYTES));
    assert_eq!(past.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(storage.read_at(&file, 7, &mut piece).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(storage.read_at(&file, 700, &mut piece).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

fn what_is_freed_later_is_gone_at_once(storage: &impl Storage) {
    let file = name("freed/file");
    assert_eq!(storage.remove_and_free_soon(&file).unwrap_err().kind(), ErrorKind::NotFound);
    for content in [&b"one"[..], b"another"] {
        storage.create(&file).unwrap();
        storage.append(&file, content).unwrap();
        storage.remove_and_free_soon(&file).unwrap();
        assert_eq!(storage.length(&file).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(storage.list("freed").unwrap().is_empty());
    }
}

fn names_are_kept_apart(storage: &impl Storage) {
    assert!(storage.list("folder").unwrap().is_empty(), "a folder that is not there");
    for file in ["folder/b", "folder/a", "c"] {
        storage.create(&name(file)).unwrap();
    }
    assert_eq!(storage.list("folder").unwrap(), [name("folder/a"), name("folder/b")]);
    assert_eq!(storage.list("").unwrap(), [name("c")]);
    storage.remove(&name("folder/a")).unwrap();
    assert_eq!(storage.remove(&name("folder/a")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(storage.list("folder").unwrap(), [name("folder/b")]);
}

fn truncation_cuts(storage: &impl Storage) {
    let file = name("file");
    storage.create(&file).unwrap();
    storage.append(&file, b"abcdef").unwrap();
    storage.truncate(&file, 2).unwrap();
    assert_eq!(storage.truncate(&file, 3).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(storage.append(&file, b"x").unwrap(), 2, "appends go on at the cut");
    let mut contents = [0; 3];
    storage.read_at(&file, 0, &mut contents).unwrap();
    assert_eq!(&contents, b"abx");
}

fn renames_replace(storage: &impl Storage) {
    let (from, to) = (name("from"), name("to"));
    assert_eq!(storage.rename(&from, &to).unwrap_err().kind(), ErrorKind::NotFound);
    for (file, contents) in [(&from, b"new"), (&to, b"old")] {
        storage.create(file).unwrap();
        storage.append(file, contents).unwrap();
    }
    storage.rename(&from, &to).unwrap();
    assert_eq!((storage as &dyn Storage).read_whole(&to, 10).unwrap(), b"new");
    assert_eq!(storage.length(&from).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(storage.append(&to, b"er").unwrap(), 3, "appends follow the new name");
}

fn locks_exclude(storage: &impl Storage) {
    let file = name("lock");
    let held = storage.lock(&file, "process 1 on here").unwrap();
    match storage.lock(&file, "process 2") {
        Err(LockError::Held { holder }) => assert_eq!(holder, "process 1 on here"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two holders of one lock"),
    }
    drop(held);
    drop(storage.lock(&file, "process 3").unwrap());
}

fn a_locked_file_can_be_read_and_removed(storage: &impl Storage) {
    let file = name("folder/lock");
    storage.create(&file).unwrap();
    drop(storage.lock(&file, "a longer note, from process 1").unwrap());
    let held = storage.lock(&file, "process 2").unwrap();
    assert_eq!((storage as &dyn Storage).read_whole(&file, 100).unwrap(), b"process 2");
    storage.remove(&file).unwrap();
    assert_eq!(storage.length(&file).unwrap_err().kind(), ErrorKind::NotFound);
    drop(held);
    drop(storage.lock(&file, "process 3").unwrap());
}

fn replacement_is_whole(storage: &impl Storage) {
    let file = name("folder/config");
    let storage: &dyn Storage = storage;
    for contents in [b"first".as_slice(), b"second one"] {
        storage.replace(&file, contents).unwrap();
        assert_eq!(storage.read_whole(&file, 100).unwrap(), contents);
    }
    assert_eq!(storage.read_whole(&file, 3).unwrap_err().kind(), ErrorKind::InvalidData);
    let failed = storage.replace_with(&file, |append| append(b"third").and(Err(ErrorKind::Other.into())));
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Other);
    assert_eq!(
        storage.read_whole(&file, 100).unwrap(),
        b"second one",
        "a failed replacement changes nothing"
    );
    storage.replace(&file, b"fourth").unwrap();
}
