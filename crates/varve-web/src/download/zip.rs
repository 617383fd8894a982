//! Writes a folder as a zip file, while it is read. Large files and many files are written in the
//! form zip64, and nothing is compressed.
//!
//! A zip file has no owners, links, devices and attributes that every program knows. It is for
//! machines without tar, so it has files and folders only. Everything else is named in a list at
//! its end.

use std::io::Write;

use rawzip::time::UtcDateTime;
use rawzip::{ZipArchiveWriter, ZipFileBuilder};
use varve_block::{to_usize, with_causes};
use varve_content::{Files, Node, NodeKind};

use super::folder_walk::walk_below;
use super::sent_bytes::SentBytes;
use crate::show;

/// The table at the end of a zip file is kept in memory, with the names of all entries.
const ENTRIES_MAX: usize = 250_000;
const NAME_BYTES_MAX: usize = 64 << 20;
const DEPTH_MAX: usize = 256;
/// Left-out names that are listed.
const LEFT_OUT_MAX: usize = 1_000;
/// The list is beside the folder, so that no archived file can have its name.
const LIST_NAME: &str = "LEFT-OUT.txt";

/// Writes a folder and everything below it. `file_name` is the name of the zip file; without its
/// ending it becomes the name of the folder.
///
/// A file or folder that is unreadable ends the zip file before its table, so that no program takes
/// it for whole.
pub(crate) fn write_zip(
    files: &dyn Files,
    folder: &Node,
    file_name: &[u8],
    sent: &mut SentBytes,
) -> Result<(), String> {
    let name = file_name.strip_suffix(b".zip").unwrap_or(file_name);
    let root = safe_name(name).map_or_else(|_| "folder".to_owned(), str::to_owned);
    let mut zip = ZipWriter {
        zip: ZipArchiveWriter::new(sent),
        counts: EntryCounts::default(),
        left_out: ZipOmissions::default(),
    };
    zip.add_folder(folder, &root)?;
    walk_below(files, folder, root, DEPTH_MAX, |path, node, is_deepest| {
        let below = match safe_name(&node.name) {
            Ok(name) => format!("{path}/{name}"),
            Err(reason) => {
                let shown = format!("{path}/{}", show::name(&node.name));
                zip.left_out.add(&shown, reason);
                return Ok(None);
            }
        };
        match node.kind {
            NodeKind::File => zip.add_file(files, node, &below)?,
            NodeKind::Folder if is_deepest => zip.left_out.add(&below, "its folders are too deep"),
            NodeKind::Folder => zip.add_folder(node, &below)?,
            kind => zip.left_out.add(&below, &kind.to_string()),
        }
        Ok(Some(below))
    })?;
    zip.finish()
}

/// A name that means the same file on every system, or the reason why it does not. A backslash
/// separates folders on some of them, and a colon ends the letter of a drive.
fn safe_name(name: &[u8]) -> Result<&str, &'static str> {
    let name = str::from_utf8(name).map_err(|_| "its name is no text")?;
    let is_odd = |c: char| matches!(c, '/' | '\\' | ':') || c.is_control();
    match name {
        "" | "." | ".." => Err("its name is a path"),
        name if name.contains(is_odd) => Err("its name has a character that a zip file cannot have"),
        name => Ok(name),
    }
}

struct ZipWriter<'a> {
    zip: ZipArchiveWriter<&'a mut SentBytes>,
    counts: EntryCounts,
    left_out: ZipOmissions,
}

/// The size of the table so far.
#[derive(Default)]
struct EntryCounts {
    entries: usize,
    name_bytes: usize,
}

/// The names that are not in the zip file.
#[derive(Default)]
struct ZipOmissions {
    text: String,
    count: usize,
}

impl ZipOmissions {
    fn add(&mut self, path: &str, reason: &str) {
        self.count += 1;
        if self.count <= LEFT_OUT_MAX {
            self.text.push_str(&format!("{}: {reason}\r\n", show::line(path.as_bytes())));
        }
    }

    fn list(&self) -> String {
        let more = self.count.saturating_sub(LEFT_OUT_MAX);
        let more = if more > 0 { format!("and {more} more\r\n") } else { String::new() };
        format!("This zip file lacks:\r\n{}{more}A tar file has them.\r\n", self.text)
    }
}

impl EntryCounts {
    fn add(&mut self, path: &str) -> Result<(), String> {
        self.entries += 1;
        self.name_bytes = self.name_bytes.saturating_add(path.len());
        if self.entries > ENTRIES_MAX || self.name_bytes > NAME_BYTES_MAX {
            return Err(format!(
                "a zip file holds at most {ENTRIES_MAX} files of this page: download the folder as tar"
            ));
        }
        Ok(())
    }
}

impl ZipWriter<'_> {
    fn add_folder(&mut self, node: &Node, path: &str) -> Result<(), String> {
        self.counts.add(path)?;
        let path = format!("{path}/");
        let folder = self.zip.new_dir(path.as_str()).unix_permissions(0o040_000 | u32::from(node.mode));
        folder.last_modified(time_of(node)).create().map_err(|error| error.to_string())?;
        Ok(())
    }

    fn add_file(&mut self, files: &dyn Files, node: &Node, path: &str) -> Result<(), String> {
        self.counts.add(path)?;
        let file = self.zip.new_file(path).unix_permissions(0o100_000 | u32::from(node.mode & 0o777));
        write_entry(file.last_modified(time_of(node)), |data| write_content(files, node, data))
    }

    /// Writes the list of left-out names, and the table.
    fn finish(mut self) -> Result<(), String> {
        if self.left_out.count > 0 {
            let text = self.left_out.list();
            let write =
                |data: &mut dyn Write| data.write_all(text.as_bytes()).map_err(|error| error.to_string());
            write_entry(self.zip.new_file(LIST_NAME), write)?;
        }
        self.zip.finish().map(drop).map_err(|error| error.to_string())
    }
}

/// Writes a file of the zip file.
fn write_entry(
    entry: ZipFileBuilder<'_, '_, &mut SentBytes>,
    write: impl FnOnce(&mut dyn Write) -> Result<(), String>,
) -> Result<(), String> {
    let (mut entry, config) = entry.start().map_err(|error| error.to_string())?;
    let mut data = config.wrap(&mut entry);
    write(&mut data)?;
    let (_, descriptor) = data.finish().map_err(|error| error.to_string())?;
    entry.finish(descriptor).map(drop).map_err(|error| error.to_string())
}

/// The time of the last change. A zip file has times from 1980 on.
fn time_of(node: &Node) -> UtcDateTime {
    UtcDateTime::from_unix(node.mtime.seconds())
}

/// Writes the bytes of a file. Its holes become zeros.
fn write_content(files: &dyn Files, node: &Node, to: &mut dyn Write) -> Result<(), String> {
    const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
    let zeros = |to: &mut dyn Write, count: u64| {
        let mut left = count;
        while left > 0 {
            let length = left.min(ZEROS.len() as u64);
            to.write_all(&ZEROS[..to_usize(length)])?;
            left -= length;
        }
        std::io::Result::Ok(())
    };
    let mut place = 0;
    let read = files.read(node, 0..node.size, &mut |offset, bytes| {
        zeros(to, offset.saturating_sub(place))?;
        place = offset.saturating_add(bytes.len() as u64);
        to.write_all(bytes)
    });
    read.map_err(|error| with_causes(&error))?;
    zeros(to, node.size.saturating_sub(place)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_mean_the_same_everywhere_are_written() {
        for name in ["a", "caf\u{e9} 1.txt", "...", "x..y"] {
            assert_eq!(safe_name(name.as_bytes()), Ok(name));
        }
        for name in
            [&b""[..], b".", b"..", b"/etc", b"..\\..\\x", b"C:\\x", b"12:30", b"a/../b", b"\xff", b"a\nb"]
        {
            assert!(safe_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_table_in_memory_is_bounded() {
        let mut counts = EntryCounts { entries: ENTRIES_MAX - 1, name_bytes: 0 };
        assert!(counts.add("a").is_ok());
        assert!(counts.add("b").is_err());
        let mut counts = EntryCounts::default();
        assert!((0..=NAME_BYTES_MAX / (1 << 20)).any(|_| counts.add(&"x".repeat(1 << 20)).is_err()));
        let mut left_out = ZipOmissions::default();
        (0..5_000).for_each(|_| left_out.add("a\u{202e}", "socket"));
        let list = left_out.list();
        assert!(list.contains("a\\u{202e}: socket\r\n") && list.contains("and 4000 more"), "{list}");
    }
}
