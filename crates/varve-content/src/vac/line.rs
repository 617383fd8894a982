//! The line that names an archive: `vac:` and a score in 40 hexadecimal digits. Instead of `vac`,
//! vbackup writes the type of the file system.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{Score, to_hex};

/// The prefixes of the score.
const KINDS: [&str; 5] = ["vac", "ext2", "ffs", "hfs", "file"];
const SCORE_DIGITS: usize = 40;

/// The name of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VacLine {
    /// The expected kind: `vac`, or vbackup's name of a file system.
    pub kind: &'static str,
    /// The score of the root.
    pub score: Score,
}

/// Why a text is not such a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it does not begin with `vac:` and a score of 40 hexadecimal digits")]
pub struct ParseVacLineError;

impl VacLine {
    /// The line of an archive of any kind, whose root has this score.
    #[must_use]
    pub fn show(kind: &[u8], score: &[u8]) -> String {
        format!("{}:{}", String::from_utf8_lossy(kind), to_hex(score))
    }

    /// Parses the line at the beginning of a text. Also returns the rest of the text.
    ///
    /// # Errors
    /// [`ParseVacLineError`].
    pub fn split(text: &str) -> Result<(Self, &str), ParseVacLineError> {
        let (kind, rest) = text.split_once(':').ok_or(ParseVacLineError)?;
        let kind = KINDS.into_iter().find(|known| *known == kind).ok_or(ParseVacLineError)?;
        let (digits, rest) = rest.split_at_checked(SCORE_DIGITS).ok_or(ParseVacLineError)?;
        let score = Score::from_hex(digits).map_err(|_| ParseVacLineError)?;
        Ok((Self { kind, score }, rest))
    }

    /// Parses the beginning of a `.vac` file. Data after the line is ignored.
    ///
    /// # Errors
    /// [`ParseVacLineError`].
    pub fn of_file(bytes: &[u8]) -> Result<Self, ParseVacLineError> {
        let text = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        Self::split(text).map(|(line, _)| line)
    }
}

impl std::fmt::Display for VacLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind, self.score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "vac:4a88b8d2d3472284cf60e0d27cf6e61ee670c531";

    #[test]
    fn lines_are_read_as_vac_reads_them() {
        let text = format!("{LINE}:a/b");
        let (line, rest) = VacLine::split(&text).unwrap();
        assert_eq!((line.to_string().as_str(), rest), (LINE, ":a/b"));
        for text in [LINE.to_owned(), format!("{LINE}\n"), format!("{LINE} and more")] {
            assert_eq!(VacLine::of_file(text.as_bytes()), Ok(line));
        }
        assert_eq!(VacLine::of_file(&[LINE.as_bytes(), b"\xff"].concat()), Ok(line));
        assert_eq!(VacLine::split(&LINE.replace("vac", "ext2")).unwrap().0.kind, "ext2");
        for bad in
            ["", "vac:", &LINE[4..], &LINE[..43], &LINE.replace("vac", "vax"), &LINE.replace("4a", "4g")]
        {
            assert_eq!(VacLine::split(bad), Err(ParseVacLineError), "{bad}");
        }
    }
}
