//! Reads the contents of files from borg's tar stream, in the order in which the archive has them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::BufReader;
use std::os::unix::ffi::OsStringExt;

use varve_content::folder::{ArchiveFolderError, ContentSink, DescriptionError, StoredContent};
use varve_tree::Entry;

use super::program::{BorgError, BorgProgram, RunningBorg};
use crate::foreign::ForeignContents;
use crate::seen_contents::ContentId;
use crate::tar::{TarEntries, TarKind, TarPiece};

const READ_BYTES: usize = 1 << 20;
/// Zeros of this length become holes.
const HOLE_BYTES: usize = 64 << 10;
/// Upper bound on the paths on one command line, in bytes. Linux accepts 2 MiB with the
/// environment.
const ARGUMENT_BYTES_MAX: usize = 512 << 10;
/// Upper bound on the damaged files of an archive that are found one by one. Each costs a start of
/// borg.
const DAMAGE_COUNT_MAX: usize = 100;

/// A file whose content is needed.
#[derive(Debug, Clone)]
pub(super) struct NeededFile {
    pub(super) path: Vec<u8>,
    pub(super) bytes: u64,
    /// Absent if it is not known from then on.
    pub(super) id: Option<ContentId>,
    /// Its number among the files of the archive.
    pub(super) number: usize,
}

/// A content that was read, or the reason why not.
pub(super) type ReadContent = Result<Option<Entry>, DescriptionError>;

/// Reads the contents of files, which are in the order of the archive. `archive_bytes` is the size
/// of all its files.
///
/// # Errors
/// borg failed, or the store did. Damaged files are no error.
pub(super) fn read_contents(
    program: &BorgProgram,
    archive: &str,
    needed: Vec<NeededFile>,
    archive_bytes: u64,
    contents: &ForeignContents<'_>,
) -> Result<BTreeMap<usize, ReadContent>, DescriptionError> {
    let mut found: BTreeMap<usize, ReadContent> = BTreeMap::new();
    let needed_bytes = needed.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
    // Reading past a few known files is faster than listing all others.
    let mut is_whole = needed_bytes >= archive_bytes / 5 * 4;
    let mut left = needed;
    let mut damage_count = 0_usize;
    while !left.is_empty() {
        let rest = if is_whole { Vec::new() } else { left.split_off(batch_len(&left)) };
        let ended = read_batch(program, archive, &left, is_whole, contents, &mut found)?;
        let mut missing: Vec<_> = left.into_iter().filter(|file| !found.contains_key(&file.number)).collect();
        match ended {
            Ok(()) => {
                for file in missing.drain(..) {
                    found.insert(file.number, Err("borg did not deliver it".into()));
                }
            }
            Err(error) if error.is_damage() => {
                let complaint = error.to_string();
                if !missing.is_empty() {
                    found.insert(missing.remove(0).number, Err(complaint.clone().into()));
                }
                damage_count += 1;
                is_whole = false;
                if damage_count >= DAMAGE_COUNT_MAX {
                    for file in missing.drain(..).chain(rest) {
                        found.insert(file.number, Err(complaint.clone().into()));
                    }
                    return Ok(found);
                }
            }
            Err(error) => return Err(error.into()),
        }
        left = missing;
        left.extend(rest);
    }
    Ok(found)
}

/// The number of files whose paths fit on one command line.
fn batch_len(files: &[NeededFile]) -> usize {
    let mut bytes = 0_usize;
    let fits = |file: &&NeededFile| {
        bytes = bytes.saturating_add(file.path.len()).saturating_add(16);
        bytes <= ARGUMENT_BYTES_MAX
    };
    files.iter().take_while(fits).count().max(1)
}

/// Reads files from one run of borg. Returns how borg ended.
fn read_batch(
    program: &BorgProgram,
    archive: &str,
    files: &[NeededFile],
    is_whole: bool,
    contents: &ForeignContents<'_>,
    found: &mut BTreeMap<usize, ReadContent>,
) -> Result<Result<(), BorgError>, DescriptionError> {
    let by_path: BTreeMap<&[u8], &NeededFile> =
        files.iter().map(|file| (file.path.as_slice(), file)).collect();
    let mut command = program.opening(&["export-tar"]);
    command.arg(program.archive(archive)).arg("-");
    if !is_whole {
        command.args(files.iter().map(|file| OsString::from_vec([b"pf:", file.path.as_slice()].concat())));
    }
    let running = RunningBorg::start(&mut command)?;
    let mut entries = TarEntries::new(BufReader::with_capacity(READ_BYTES, running));
    // The status of borg tells why a stream ends early.
    while let Ok(Some(entry)) = entries.next_entry() {
        let Some(file) = by_path.get(entry.path.as_slice()) else { continue };
        // The same path may be twice in an archive.
        if entry.kind != TarKind::File || entry.size != file.bytes {
            continue;
        }
        let stored = contents.put(file.id, &mut |sink| {
            while let Some(piece) = entries.next_piece()? {
                match piece {
                    TarPiece::Bytes(bytes) => write_with_holes(bytes, sink)?,
                    TarPiece::Hole(bytes) => sink.write_zeros(bytes)?,
                }
            }
            Ok(())
        });
        match stored {
            Ok(StoredContent { entry, .. }) => {
                found.insert(file.number, Ok(entry));
            }
            Err(ArchiveFolderError::Described { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let mut running = entries.into_inner().into_inner();
    // The zeros at the end, and anything behind them.
    std::io::copy(&mut running, &mut std::io::sink())?;
    Ok(running.finish())
}

/// Writes bytes. Long zeros become holes, as with `borg extract --sparse`.
fn write_with_holes(bytes: &[u8], sink: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
    for piece in bytes.chunks(HOLE_BYTES) {
        if piece.len() == HOLE_BYTES && piece.iter().all(|byte| *byte == 0) {
            sink.write_zeros(piece.len() as u64)?;
        } else {
            sink.write(piece)?;
        }
    }
    Ok(())
}
