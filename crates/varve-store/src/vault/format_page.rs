//! `FORMAT.md`: the page that describes a store beside its data, for a reader without this program.
//!
//! The page is that of the newest program that has written to the store. Its last line has a code
//! of the store's own over all lines before, so that every program can tell a page that another
//! one wrote from one that was altered. Pages of early stores have no such line.

use std::io;

use varve_block::{from_hex, to_hex};
use varve_log::LogKeys;
use varve_world::{FileName, Storage};

use super::Vault;

const FILE: &str = "FORMAT.md";
const TEXT: &str = include_str!("../../FORMAT.md");
const FILE_BYTES_MAX: u64 = 4 << 20;
const CODE_BEGINS: &str = "<!-- code ";
const CODE_ENDS: &str = " -->\n";

/// The state of a store's or a replica's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatPage {
    /// It is the page of this program, or of a newer one.
    Current,
    /// An earlier program wrote it. The next writer replaces it.
    Earlier,
    Missing,
    /// It differs from what a program has written.
    Altered,
}

impl FormatPage {
    /// Returns the page of this program for the store of these keys.
    #[must_use]
    pub fn text(keys: &LogKeys) -> Vec<u8> {
        let code = to_hex(&code(keys, TEXT.as_bytes()));
        format!("{TEXT}{CODE_BEGINS}{code}{CODE_ENDS}").into_bytes()
    }

    /// Judges a page.
    #[must_use]
    pub fn of(keys: &LogKeys, page: &[u8]) -> Self {
        let text = match coded(page) {
            Some((text, expected)) if code(keys, text) == expected => text,
            Some(_) => return Self::Altered,
            // Without a code, nothing shows whether a page of an early program was altered. It had
            // no revision either.
            None if stated_number(page) == 0 => return Self::Earlier,
            None => return Self::Altered,
        };
        let is_earlier = stated_number(text) < stated_number(TEXT.as_bytes())
            || (stated_number(text) == stated_number(TEXT.as_bytes()) && text != TEXT.as_bytes());
        if is_earlier { Self::Earlier } else { Self::Current }
    }

    /// Returns true if the next writer is to write the page anew.
    #[must_use]
    pub fn is_due(self) -> bool {
        self != Self::Current
    }
}

/// Divides a page into the text and the code in its last line.
fn coded(page: &[u8]) -> Option<(&[u8], [u8; 32])> {
    let rest = page.strip_suffix(CODE_ENDS.as_bytes())?;
    let (text, digits) = rest.split_at_checked(rest.len().checked_sub(64)?)?;
    let digits = std::str::from_utf8(digits).ok()?;
    Some((text.strip_suffix(CODE_BEGINS.as_bytes())?, from_hex(digits).ok()?.try_into().ok()?))
}

fn code(keys: &LogKeys, text: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(&keys.derive("varve 1 page"), text).as_bytes()
}

/// Returns the revision in the first line of a page; 0 if there is none.
fn stated_number(page: &[u8]) -> u32 {
    let line = page.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let number = std::str::from_utf8(line).ok().and_then(|line| line.rsplit_once(", revision "));
    number.and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

/// Writes the page of a new store.
pub(super) fn write(storage: &dyn Storage, keys: &LogKeys) -> Result<(), (FileName, io::Error)> {
    storage.replace(&file(), &FormatPage::text(keys)).map_err(|error| (file(), error))
}

fn file() -> FileName {
    FileName::new(FILE).expect("a plain name")
}

impl Vault {
    /// Judges the store's page.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn format_page(&self) -> io::Result<FormatPage> {
        match self.storage().read_whole(&file(), FILE_BYTES_MAX) {
            Ok(page) => Ok(FormatPage::of(self.log.keys(), &page)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(FormatPage::Missing),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(FormatPage::Altered),
            Err(error) => Err(error),
        }
    }

    /// Writes the page anew if it is not that of this program or a newer one, so that it describes
    /// what a writer is about to write. If that fails, the writer still works: on a full disk it
    /// may be the one that frees space.
    pub(crate) fn renew_format_page(&self) {
        let renewed = self.format_page().and_then(|page| {
            if page.is_due() {
                write(self.storage(), self.log.keys()).map_err(|(_, error)| error)
            } else {
                Ok(())
            }
        });
        if let Err(error) = renewed {
            tracing::warn!(%error, "{FILE} could not be written anew; the next writer tries again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The revision of the text, and the first half of its BLAKE3.
    const KNOWN: (u32, &str) = (2, "3b2a35ab127454013f92fc75515b6095");

    /// Programs tell pages apart by their revisions. With one revision for two texts, each of two
    /// programs would write its own again and again.
    #[test]
    fn a_changed_text_has_a_new_revision() {
        let digest = to_hex(&blake3::hash(TEXT.as_bytes()).as_bytes()[..16]);
        let found = (stated_number(TEXT.as_bytes()), digest.as_str());
        assert_eq!(found, KNOWN, "raise the revision in the first line of FORMAT.md, and set KNOWN to this");
    }

    #[test]
    fn a_page_of_any_program_is_told_from_an_altered_one() {
        let (keys, others) = (LogKeys::from_master(&[3; 32]), LogKeys::from_master(&[4; 32]));
        let with_code = |text: &str| {
            let code = to_hex(&code(&keys, text.as_bytes()));
            format!("{text}{CODE_BEGINS}{code}{CODE_ENDS}").into_bytes()
        };
        let own = FormatPage::text(&keys);
        assert_eq!(FormatPage::of(&keys, &own), FormatPage::Current);
        assert_eq!(FormatPage::of(&others, &own), FormatPage::Altered);
        let title = TEXT.lines().next().unwrap();
        let own_revision = stated_number(TEXT.as_bytes());
        assert!(own_revision > 0 && title.ends_with(&format!(", revision {own_revision}")), "{title}");
        let other = |number: u32| TEXT.replace(title, &format!("# A page, revision {number}"));
        for (text, state) in [
            (other(own_revision - 1), FormatPage::Earlier),
            (other(own_revision), FormatPage::Earlier),
            (other(own_revision + 1), FormatPage::Current),
            ("# The format of a Varve store\n".to_owned(), FormatPage::Earlier),
        ] {
            assert_eq!(FormatPage::of(&keys, &with_code(&text)), state, "{:?}", text.lines().next());
        }
        // Early pages have neither code nor revision.
        assert_eq!(FormatPage::of(&keys, b"# The format of a Varve store\n\ntext\n"), FormatPage::Earlier);
        assert_eq!(FormatPage::of(&keys, TEXT.as_bytes()), FormatPage::Altered);
        for at in [0, 40, own.len() / 2, own.len() - 80, own.len() - 20, own.len() - 2] {
            let mut altered = own.clone();
            altered[at] ^= 1;
            assert_eq!(FormatPage::of(&keys, &altered), FormatPage::Altered, "byte {at}");
        }
    }
}
