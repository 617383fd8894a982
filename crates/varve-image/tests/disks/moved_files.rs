//! Files that an update writes anew are found at their new places.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use varve_image::{Disk, ExtFileSystem, FileSystem, MovedFiles};

use crate::sandbox::{Sandbox, missing};

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .collect()
}

#[test]
fn a_file_is_found_where_it_was_written_anew() {
    if missing(&["mkfs.ext4", "mkfs.ext2", "debugfs"]) {
        return;
    }
    for shape in [["mkfs.ext4", "-b", "4096"], ["mkfs.ext2", "-b", "1024"]] {
        let sandbox = Sandbox::new();
        let tree = sandbox.path("tree");
        fs::create_dir_all(tree.join("lib")).unwrap();
        let contents = [("lib/new", 300_000, 1), ("lib/same", 50_000, 2), ("gone", 70_000, 3)];
        for (name, length, seed) in contents {
            fs::write(tree.join(name), noise(length, seed)).unwrap();
        }
        fs::write(sandbox.path("filler"), noise(350_000, 9)).unwrap();
        let words = [&shape[..], &["-q", "-d", tree.to_str().unwrap()]].concat();
        let before = sandbox.made(&words, 16 << 20);
        fs::copy(sandbox.path("disk"), sandbox.path("later")).unwrap();
        let update = "rm /lib/new\nrm /gone\nwrite filler /filler\ncd /lib\nwrite tree/lib/new new\n";
        fs::write(sandbox.path("update"), update).unwrap();
        sandbox.run(&["debugfs", "-w", "-f", "update", "later"], "");
        let later = File::open(sandbox.path("later")).unwrap();

        let (from, to) = (Disk::open(Arc::new(before.try_clone().unwrap())), Disk::open(Arc::new(later)));
        let moved = MovedFiles::new(&from, &to);
        let files = ExtFileSystem::open(Arc::new(before)).unwrap();
        let later = File::open(sandbox.path("later")).unwrap();
        let places = |path: &str| {
            let id = path
                .split('/')
                .fold(files.root(), |folder, name| files.child(folder, name.as_bytes()).unwrap().unwrap().id);
            files.places(id).unwrap().unwrap()
        };
        for (path, length, seed) in contents {
            let found: Vec<_> = places(path).iter().flat_map(|range| moved.find(range)).collect();
            if path == "gone" {
                assert_eq!(found, []);
                continue;
            }
            assert_eq!(found == places(path), path == "lib/same", "{path}");
            let mut bytes = Vec::new();
            for range in found {
                let mut part = vec![0; usize::try_from(range.end - range.start).unwrap()];
                later.read_exact_at(&mut part, range.start).unwrap();
                bytes.extend(part);
            }
            assert_eq!(bytes[..length], noise(length, seed), "{path}");
        }
        // The superblock is no file. It is expected where it was.
        assert_eq!(moved.find(&(1024..2048)), vec![1024..2048]);
        // A range within a block keeps its offset.
        let first = places("lib/new")[0].start;
        let start = moved.find(&(first..first + 4096))[0].start;
        assert_eq!(moved.find(&(first + 100..first + 200)), vec![start + 100..start + 200]);
    }
}
