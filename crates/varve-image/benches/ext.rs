//! Measures how fast files inside a disk are listed and read. Run with
//! `cargo bench -p varve-image --bench ext -- DISK.raw`.
//!
//! Prints the time of listing everything and of reading everything, and how much each of them read
//! from the disk.
#![allow(clippy::print_stdout, reason = "a bench prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "a bench asks the time")]
#![allow(missing_docs, reason = "a program")]

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use varve_image::{Disk, FileId, FileKind, FileSystem, ReadAt, VolumeContent};

/// Counts the reads from the disk and their bytes.
struct Counted {
    file: File,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Counted {
    fn take(&self) -> (u64, u64) {
        (self.reads.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }
}

impl ReadAt for Counted {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.file.read_at(offset, into)
    }
}

fn list(files: &dyn FileSystem, folder: FileId, found: &mut Vec<(FileId, u64)>) -> u64 {
    let mut children = Vec::new();
    let collect = &mut |child| {
        children.push(child);
        ControlFlow::Continue(())
    };
    files.children(folder, 0, collect).expect("the disk is sound");
    let mut count = 0;
    for child in children {
        let status = files.status(child.id).expect("the disk is sound");
        count += 1;
        match status.kind {
            FileKind::Folder => count += list(files, child.id, found),
            FileKind::File => found.push((child.id, status.size)),
            _ => {}
        }
    }
    count
}

fn main() {
    let Some(path) = std::env::args().skip(1).find(|word| !word.starts_with('-')) else {
        println!("skipped: no disk was named");
        return;
    };
    let file = File::open(&path).expect("the disk is there");
    let disk = Arc::new(Counted { file, reads: AtomicU64::new(0), bytes: AtomicU64::new(0) });
    let opened = Disk::open(Arc::clone(&disk) as Arc<dyn ReadAt>);
    let is_files = |content: VolumeContent| matches!(content, VolumeContent::FileSystem(_));
    let volume = opened.volumes().iter().find(|volume| is_files(volume.content())).expect("it has files");
    let files = volume.open_file_system().expect("they can be read");
    disk.take();

    let (begun, mut found) = (Instant::now(), Vec::new());
    let count = list(&*files, files.root(), &mut found);
    let seconds = begun.elapsed().as_secs_f64();
    let (reads, bytes) = disk.take();
    println!("listed {count} files in {seconds:.3} s: {reads} reads, {:.1} MB", bytes as f64 / 1e6);

    let (begun, mut total) = (Instant::now(), 0);
    let mut buffer = vec![0; 1 << 20];
    for (file, size) in &found {
        let mut at = 0;
        while at < *size {
            at += files.read_at(*file, at, &mut buffer).expect("the disk is sound") as u64;
        }
        total += size;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (reads, _) = disk.take();
    println!(
        "read {:.1} MB in {seconds:.3} s, {:.0} MB/s: {reads} reads",
        total as f64 / 1e6,
        total as f64 / 1e6 / seconds
    );

    let (largest, size) = found.iter().max_by_key(|(_, size)| *size).copied().expect("it has files");
    let begun = Instant::now();
    let mut at = 0;
    while at < size {
        at += files.read_at(largest, at, &mut buffer).expect("the disk is sound") as u64;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("the largest, {:.1} MB, at {:.0} MB/s", size as f64 / 1e6, size as f64 / 1e6 / seconds);
}
