//! A chain of images: each holds the changes since the one below it, so each is a state of one
//! disk.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use varve_archive::LeftOutRecord;
use varve_content::image::{ContentRun, ReadRequest, ReadRequestError, RunContent, ServedImage};

use super::header::ImageFormat;
use super::layer::layers;
use super::{ForeignImage, OpenForeignError};
use crate::companion::companion;

const PROGRAM: &str = "qemu-img";
/// The longest line of QEMU's map.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Upper bound on the ranges of a map: 128 MiB of memory. An image with more is read as a whole.
const RANGE_COUNT_MAX: usize = 8 << 20;

/// The images of a chain, the oldest first. Other files that an image names must lie in one of the
/// folders `allowed`.
///
/// # Errors
/// [`OpenForeignError::Layer`].
pub fn image_chain(
    path: &Path,
    format: ImageFormat,
    allowed: &[PathBuf],
) -> Result<Vec<(PathBuf, ImageFormat)>, OpenForeignError> {
    let found = layers(path, format, allowed)?;
    Ok(found.alone.into_iter().map(|(path, format, _)| (path, format)).rev().collect())
}

/// The disk as an image of a chain has it. The ranges that this image does not hold itself are
/// reported as unchanged since the image below it.
pub struct ImageLayer {
    image: ForeignImage,
    /// Its own ranges, in ascending order; `None` if everything must be read.
    own: Option<Vec<OwnRange>>,
    left_out: Vec<LeftOutRecord>,
}

/// A range that an image holds itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OwnRange {
    start: u64,
    end: u64,
}

impl ImageLayer {
    /// Opens an image of a chain.
    ///
    /// # Errors
    /// [`OpenForeignError`].
    pub fn open(path: &Path, format: ImageFormat, allowed: &[PathBuf]) -> Result<Self, OpenForeignError> {
        // The state of the files is noted before the map is made: a change is noticed at the end.
        let image = ForeignImage::open(path, format, allowed)?;
        let found = layers(path, format, allowed)?;
        let own = if found.alone.len() > 1 { own_ranges(&found.node)? } else { None };
        let left_out = image.left_out_of(path);
        Ok(Self { image, own, left_out })
    }

    /// Returns the parts of this image that are no parts of the disk.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOutRecord] {
        &self.left_out
    }
}

/// The ranges that the top image of a node holds itself; `None` if QEMU's map cannot be used.
fn own_ranges(node: &Value) -> Result<Option<Vec<OwnRange>>, OpenForeignError> {
    let mut command = companion(PROGRAM);
    command.args(["map", "--output=json"]).arg(format!("json:{node}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenForeignError::NotInstalled { program: PROGRAM },
        _ => OpenForeignError::Start { program: PROGRAM, source },
    })?;
    let ranges = child.stdout.take().and_then(|output| parse_map(BufReader::new(output)));
    // An unfinished program would wait for its reader.
    drop(child.kill());
    let status = child.wait().map_err(|source| OpenForeignError::Start { program: PROGRAM, source })?;
    Ok(ranges.filter(|_| status.success() || status.code().is_none()))
}

/// Reads the map that QEMU prints, with an extent on each line. `None` if it is not as expected.
fn parse_map(mut output: impl BufRead) -> Option<Vec<OwnRange>> {
    let mut own: Vec<OwnRange> = Vec::new();
    let (mut position, mut is_closed) = (0_u64, false);
    loop {
        let mut line = Vec::new();
        let read = output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
        if read == 0 {
            return is_closed.then_some(own);
        }
        let text = std::str::from_utf8(&line).ok()?.trim();
        let (text, ends) = text.strip_suffix(']').map_or((text, false), |text| (text, true));
        is_closed |= ends;
        let text = text.trim_start_matches('[').trim_end_matches(',').trim();
        if text.is_empty() {
            continue;
        }
        let extent: Value = serde_json::from_str(text).ok()?;
        let number = |key: &str| extent.get(key).and_then(Value::as_u64);
        let (start, length, depth) = (number("start")?, number("length")?, number("depth")?);
        let end = start.checked_add(length)?;
        if start != position {
            return None;
        }
        position = end;
        if depth > 0 {
            continue;
        }
        if let Some(last) = own.last_mut().filter(|last| last.end == start) {
            last.end = end;
        } else if own.len() < RANGE_COUNT_MAX {
            own.push(OwnRange { start, end });
        } else {
            return None;
        }
    }
}

impl ServedImage for ImageLayer {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn content_at(&self, offset: u64) -> io::Result<ContentRun> {
        let Some(own) = &self.own else { return self.image.content_at(offset) };
        let next = own.get(own.partition_point(|range| range.end <= offset));
        match next {
            Some(range) if range.start <= offset => {
                let run = self.image.content_at(offset)?;
                Ok(ContentRun { end: run.end.min(range.end), ..run })
            }
            next => {
                let end = next.map_or(self.size(), |range| range.start.min(self.size()));
                Ok(ContentRun { content: RunContent::Unchanged, end })
            }
        }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, into)
    }

    fn read_all(&self, places: &mut [ReadRequest<'_>]) -> Result<(), ReadRequestError> {
        self.image.read_all(places)
    }

    fn held_still(&self) -> io::Result<bool> {
        self.image.held_still()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_the_ranges_of_the_top_image() {
        let map = b"[{ \"start\": 0, \"length\": 10, \"depth\": 1, \"zero\": false},\n\
            { \"start\": 10, \"length\": 5, \"depth\": 0, \"zero\": true},\n\
            { \"start\": 15, \"length\": 5, \"depth\": 0, \"zero\": false},\n\
            { \"start\": 20, \"length\": 5, \"depth\": 2, \"zero\": true}]\n";
        assert_eq!(parse_map(&map[..]), Some(vec![OwnRange { start: 10, end: 20 }]));
        let cut = map.get(..map.len() - 3).unwrap();
        assert_eq!(parse_map(cut), None);
        let gap = b"[{ \"start\": 5, \"length\": 10, \"depth\": 1}]\n";
        assert_eq!(parse_map(&gap[..]), None);
        assert_eq!(parse_map(&b"qemu-img: error\n"[..]), None);
    }
}
