//! Reports the unreadable ranges, which are zeros in the restored files: on the terminal, and as a
//! list in a file beside them.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use varve_content::{DamageList, NewFile, PRIVATE};

use serde_json::json;

use crate::arguments::OUTPUT;
use crate::invocation::Invocation;
use crate::{say, show};

/// The maximum number of ranges that are printed; the list has all of them.
const SHOWN_MAX: usize = 20;
/// The first line of a list. A file that begins differently is never replaced by a list.
const HEADER: &str = "# varve restore: these bytes could not be read, and are zeros. Start and end (not included), and the file.";

/// Prints the ranges, and writes the list.
pub(super) fn report(invocation: &Invocation, destination: &Path, damaged: &DamageList) {
    let mut shown = 0;
    damaged.for_each(|path, range| {
        let whole =
            if path.as_os_str().is_empty() { destination.to_path_buf() } else { destination.join(path) };
        if invocation.json || shown < SHOWN_MAX {
            let fields = || {
                let mut fields = json!({ "start": range.start, "end": range.end });
                show::put_name(&mut fields, "path", whole.as_os_str().as_bytes());
                fields
            };
            let name = show::name(whole.as_os_str().as_bytes());
            let (start, end) = (range.start, range.end);
            say::diagnosis(
                "damaged",
                fields,
                format_args!("varve: {name}: bytes {start}..{end} cannot be read, and are zeros"),
            );
        }
        shown += 1;
    });
    if !invocation.json && shown > SHOWN_MAX {
        warning!("and {} more ranges", shown - SHOWN_MAX);
    }
    let (range_count, file_count) = damaged.counts();
    let lost = format!(
        "{} in {} of {}",
        show::bytes(damaged.bytes()),
        show::count(range_count as u64, "range"),
        show::count(file_count as u64, "file")
    );
    let is_device = destination
        .metadata()
        .is_ok_and(|there| there.file_type().is_block_device() || there.file_type().is_char_device());
    if is_device || destination == Path::new(OUTPUT) {
        warning!("{lost} cannot be read");
        return;
    }
    let list = list_path(destination);
    match write_list(&list, damaged) {
        Ok(()) => warning!("{lost} cannot be read; all are listed in {}", list.display()),
        Err(error) => {
            warning!("{lost} cannot be read; the list {} was not written: {error}", list.display())
        }
    }
}

/// Returns the path of the list: `NAME.damaged`, beside the restored file or folder.
fn list_path(destination: &Path) -> PathBuf {
    let mut name = destination.as_os_str().to_owned();
    name.push(".damaged");
    name.into()
}

/// Writes the list, and replaces an older list. Any other file of this name stays.
fn write_list(path: &Path, damaged: &DamageList) -> io::Result<()> {
    let replaces_list = match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() && is_list(path) => true,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else has this name")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let new = NewFile::create(path, PRIVATE, replaces_list)?;
    let mut writer = BufWriter::new(new.file());
    writeln!(writer, "{HEADER}")?;
    let mut written = Ok(());
    damaged.for_each(|path, range| {
        if written.is_ok() {
            let name = show::name(path.as_os_str().as_bytes());
            written = writeln!(writer, "{} {} {name}", range.start, range.end);
        }
    });
    written?;
    writer.flush()?;
    drop(writer);
    new.complete()
}

fn is_list(path: &Path) -> bool {
    let first = || BufReader::new(File::open(path).ok()?).lines().next()?.ok();
    first().is_some_and(|line| line == HEADER)
}
