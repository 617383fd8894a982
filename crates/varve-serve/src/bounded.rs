//! Bounds the number of files that are remembered for clients that never report which files they
//! have forgotten. The files that were requested least recently are forgotten.
//!
//! Each requested file is noted in the young half. When the young half is full, the files that are
//! only in the old half are forgotten, and the young half becomes the old one. The most recently
//! requested files, as many as one half holds, are therefore always known.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use varve_image::{FileId, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild, Xattr};

use crate::ServedFileSystem;

/// Files per half. With the entries that `days` keeps for each, both halves take about 100 MB.
const HALF: usize = 200_000;

/// A file system that remembers a bounded number of files.
pub struct BoundedFileSystem {
    files: Arc<dyn ServedFileSystem>,
    half: usize,
    known: Mutex<KnownFiles>,
    /// Held shared by a request until its files are noted, and exclusively while files are
    /// forgotten.
    asking: RwLock<()>,
}

#[derive(Default)]
struct KnownFiles {
    young: BTreeSet<FileId>,
    old: BTreeSet<FileId>,
}

impl BoundedFileSystem {
    /// Wraps `files` with a bound that is large enough for any client that works with it.
    #[must_use]
    pub fn new(files: Arc<dyn ServedFileSystem>) -> Self {
        Self::with_half(files, HALF)
    }

    fn with_half(files: Arc<dyn ServedFileSystem>, half: usize) -> Self {
        Self { files, half, known: Mutex::default(), asking: RwLock::default() }
    }

    /// Performs a request, and notes the files that it touches.
    fn ask<T>(&self, file: FileId, act: impl FnOnce(&dyn ServedFileSystem, &dyn Fn(FileId)) -> T) -> T {
        let note = |file: FileId| {
            self.known.lock().young.insert(file);
        };
        let answer = {
            let _asking = self.asking.read();
            note(file);
            act(&*self.files, &note)
        };
        self.forget_old();
        answer
    }

    fn forget_old(&self) {
        if self.known.lock().young.len() < self.half {
            return;
        }
        // Do not wait for running requests, because this call may be nested in one of them. The
        // last request to finish makes room.
        let Some(_alone) = self.asking.try_write() else { return };
        let mut known = self.known.lock();
        let young = std::mem::take(&mut known.young);
        let old = std::mem::replace(&mut known.old, young);
        for file in old.difference(&known.old).filter(|file| **file != self.files.root()) {
            self.files.forget(*file);
        }
    }
}

impl ServedFileSystem for BoundedFileSystem {
    fn is_settled(&self, file: FileId) -> bool {
        self.ask(file, |files, _| files.is_settled(file))
    }

    fn root_of(&self, file: FileId) -> Option<FileId> {
        self.ask(file, |files, note| files.root_of(file).inspect(|root| note(*root)))
    }

    fn read_ahead(&self, file: FileId) {
        self.ask(file, |files, _| files.read_ahead(file));
    }
}

impl FileSystem for BoundedFileSystem {
    fn root(&self) -> FileId {
        self.files.root()
    }

    fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
        self.ask(file, |files, _| files.status(file))
    }

    fn children(&self, folder: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
        self.ask(folder, |files, note| {
            files.children(folder, first, &mut |child| {
                note(child.id);
                visit(child)
            })
        })
    }

    fn child(&self, folder: FileId, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
        self.ask(folder, |files, note| {
            let found = files.child(folder, name)?;
            Ok(found.inspect(|child| note(child.id)))
        })
    }

    fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
        self.ask(file, |files, _| files.read_at(file, offset, into))
    }

    fn next_data(&self, file: FileId, offset: u64) -> Result<Option<Range<u64>>, FileSystemError> {
        self.ask(file, |files, _| files.next_data(file, offset))
    }

    fn places(&self, file: FileId) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        self.ask(file, |files, _| files.places(file))
    }

    fn free_places(&self) -> Result<Option<Vec<Range<u64>>>, FileSystemError> {
        self.files.free_places()
    }

    fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
        self.ask(link, |files, _| files.link_target(link))
    }

    fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError> {
        self.ask(file, |files, _| files.xattrs(file))
    }

    fn warning(&self) -> Option<String> {
        self.files.warning()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use varve_image::FileKind;

    use super::*;

    /// A root with a thousand files, each known from when it is shown until it is forgotten.
    #[derive(Default)]
    struct Thousand {
        shown: Mutex<BTreeSet<FileId>>,
    }

    impl Thousand {
        fn known(&self) -> usize {
            self.shown.lock().len()
        }
    }

    fn child(number: u64) -> FolderChild {
        FolderChild { name: number.to_string().into_bytes(), id: FileId(number), kind: FileKind::File }
    }

    impl FileSystem for Thousand {
        fn root(&self) -> FileId {
            FileId(1)
        }

        fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
            if file != self.root() && !self.shown.lock().contains(&file) {
                return Err(FileSystemError::Absent { what: "file".into() });
            }
            Ok(FileStatus::new(FileKind::File, 0o644, file.0))
        }

        fn children(&self, _: FileId, first: u64, visit: &mut OnChild<'_>) -> Result<(), FileSystemError> {
            for number in first + 2..1002 {
                self.shown.lock().insert(FileId(number));
                if visit(child(number)).is_break() {
                    break;
                }
            }
            Ok(())
        }

        fn child(&self, _: FileId, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
            let number = std::str::from_utf8(name).unwrap().parse().unwrap();
            self.shown.lock().insert(FileId(number));
            Ok(Some(child(number)))
        }

        fn read_at(&self, file: FileId, _: u64, _: &mut [u8]) -> Result<usize, FileSystemError> {
            self.status(file).map(|_| 0)
        }

        fn link_target(&self, link: FileId) -> Result<Vec<u8>, FileSystemError> {
            self.status(link).map(|_| Vec::new())
        }

        fn xattrs(&self, file: FileId) -> Result<Vec<Xattr>, FileSystemError> {
            self.status(file).map(|_| Vec::new())
        }

        fn forget(&self, file: FileId) {
            assert!(self.shown.lock().remove(&file), "{file:?} was never shown");
        }
    }

    impl ServedFileSystem for Thousand {
        fn is_settled(&self, _: FileId) -> bool {
            true
        }

        fn root_of(&self, _: FileId) -> Option<FileId> {
            None
        }
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten_and_the_rest_is_known() {
        let thousand = Arc::new(Thousand::default());
        let files = BoundedFileSystem::with_half(Arc::clone(&thousand) as _, 50);
        let kept = files.child(files.root(), b"2").unwrap().unwrap().id;
        for number in 0..1000 {
            let file = files.child(files.root(), (number + 2).to_string().as_bytes()).unwrap().unwrap().id;
            assert!(files.status(file).is_ok());
            assert_eq!(files.status(kept).unwrap().size, 2, "after {number}: it was asked for all the time");
            assert!(files.status(files.root()).is_ok());
            if number > 10 {
                assert!(files.status(FileId(file.0 - 10)).is_ok(), "it was asked for a moment ago");
            }
            assert!(thousand.known() <= 2 * 50 + 2, "{}", thousand.known());
        }
        assert!(matches!(files.status(FileId(500)), Err(FileSystemError::Absent { .. })));
        // The file is known again once it is shown again.
        let again = files.child(files.root(), b"500").unwrap().unwrap().id;
        assert!(files.status(again).is_ok());
    }

    #[test]
    fn long_listings_do_not_grow_what_is_known() {
        let thousand = Arc::new(Thousand::default());
        let files = BoundedFileSystem::with_half(Arc::clone(&thousand) as _, 50);
        for round in 0..40 {
            let first = round * 25 % 1000;
            let mut left = 25;
            let mut take = |_| {
                left -= 1;
                if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            files.children(files.root(), first, &mut take).unwrap();
            assert!(thousand.known() <= 2 * (50 + 25), "{}", thousand.known());
        }
        // A request made while listing does not deadlock.
        let mut count = 0;
        let listed = files.children(files.root(), 0, &mut |child| {
            count += u32::from(files.status(child.id).is_ok());
            ControlFlow::Continue(())
        });
        listed.unwrap();
        assert_eq!(count, 1000);
        files.status(files.root()).unwrap();
        files.children(files.root(), 0, &mut |_| ControlFlow::Break(())).unwrap();
        assert!(thousand.known() <= 1000 + 50);
    }
}
