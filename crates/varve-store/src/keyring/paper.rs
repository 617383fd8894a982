//! The master key on paper: five lines of sixteen letters and digits.
//!
//! Each line has its number, 8 bytes, and a check of 15 bits over both and the store's identity, in
//! Crockford's base 32: thirteen letters for the bytes, of which the first holds four bits, and
//! three for the check. Lines 1 to 4 are the master key. Line 5 is a check over all of it and the
//! store. So a typing error is found in its line, and another store's paper at once.

use varve_block::to_usize;
use varve_log::LockedMemory;
use zeroize::Zeroizing;

use crate::config::StoreConfig;

/// Crockford's digits: none is easily taken for another.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const LINE_COUNT: usize = 5;
const LINE_LETTERS: usize = 16;
const BYTES_LETTERS: usize = 13;

/// A paper key. Its holder can read, write and destroy everything.
pub struct PaperKey {
    lines: Zeroizing<Vec<String>>,
}

/// The reason why a text is not this store's paper key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PaperError {
    /// A line has too many or too few letters.
    #[error("line {line} has {letters} letters and digits, but should have {LINE_LETTERS}")]
    Length { line: usize, letters: usize },
    /// A letter that no paper key has.
    #[error("line {line} has {letter:?}, which no paper key contains")]
    Letter { line: usize, letter: char },
    /// The check of a line does not match.
    #[error(
        "line {line} has a typing error, or belongs to another store: compare it with the paper, letter by letter"
    )]
    Slip { line: usize },
    #[error("line {line} is missing: a paper key has lines 1 to {LINE_COUNT}")]
    Missing { line: usize },
    /// Two different lines have the same number.
    #[error("line {line} occurs twice, with different letters")]
    Twice { line: usize },
    /// Every line is right, but they do not belong together, or not to this store.
    #[error("each line is correct, but together they are not the key of this store")]
    OtherStore,
}

impl PaperKey {
    pub(super) fn new(master: &[u8; 32], config: &StoreConfig) -> Self {
        let proof = proof(master, config);
        let parts = master.as_chunks::<8>().0.iter().chain([&proof]);
        let lines = parts.zip(1..).map(|(bytes, number)| line(number, bytes, config)).collect();
        Self { lines: Zeroizing::new(lines) }
    }

    /// Returns the lines as they are printed: a number, and four groups of four.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Parses typed text: lines that begin with a number from 1 to 5. All others are ignored. Small
    /// letters, spaces and dashes do not matter, nor does O for 0, or I and L for 1.
    pub(super) fn read(text: &str, config: &StoreConfig) -> Result<LockedMemory<[u8; 32]>, PaperError> {
        let mut found: Zeroizing<[Option<[u8; 8]>; LINE_COUNT]> = Zeroizing::default();
        for typed in text.lines() {
            let Some((number, letters)) = split_number(typed) else { continue };
            let bytes = read_line(number, letters, config)?;
            if found[number - 1].is_some_and(|known| known != bytes) {
                return Err(PaperError::Twice { line: number });
            }
            found[number - 1] = Some(bytes);
        }
        if let Some(missing) = found.iter().position(Option::is_none) {
            return Err(PaperError::Missing { line: missing + 1 });
        }
        let master = LockedMemory::filled(|master: &mut [u8; 32]| {
            for (place, bytes) in master.as_chunks_mut::<8>().0.iter_mut().zip(found.iter().flatten()) {
                *place = *bytes;
            }
        });
        if found[LINE_COUNT - 1] == Some(proof(&master, config)) {
            Ok(master)
        } else {
            Err(PaperError::OtherStore)
        }
    }
}

/// Computes the check that binds the whole key to its store.
fn proof(master: &[u8; 32], config: &StoreConfig) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new_derive_key("varve 1 paper key");
    hasher.update(master).update(&config.binding());
    let mut proof = [0; 8];
    hasher.finalize_xof().fill(&mut proof);
    proof
}

/// Computes the 15 bits that detect a typing error.
fn check(number: usize, bytes: &[u8; 8], config: &StoreConfig) -> u128 {
    let mut hasher = blake3::Hasher::new_derive_key("varve 1 paper line");
    hasher.update(&[u8::try_from(number).unwrap_or(0)]).update(bytes).update(&config.id);
    let mut check = [0; 2];
    hasher.finalize_xof().fill(&mut check);
    u128::from(u16::from_le_bytes(check) & 0x7FFF)
}

fn line(number: usize, bytes: &[u8; 8], config: &StoreConfig) -> String {
    let value = u128::from(u64::from_be_bytes(*bytes)) << 15 | check(number, bytes, config);
    let mut text = number.to_string();
    for place in 0..LINE_LETTERS {
        if place % 4 == 0 {
            text.push(' ');
        }
        let digit = value >> (5 * (LINE_LETTERS - 1 - place)) & 31;
        text.push(char::from(DIGITS[usize::try_from(digit).unwrap_or(0)]));
    }
    text
}

/// Splits the number off the beginning of a typed line. A line of the page that is no part of the
/// key has none.
fn split_number(typed: &str) -> Option<(usize, &str)> {
    let typed = typed.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let mut letters = typed.chars();
    let number = letters.next()?.to_digit(10).map(to_usize)?;
    let rest = letters.as_str();
    let is_apart =
        rest.starts_with(|letter: char| letter.is_whitespace() || matches!(letter, '.' | ':' | ')'));
    (is_apart && (1..=LINE_COUNT).contains(&number)).then_some((number, rest))
}

fn read_line(number: usize, typed: &str, config: &StoreConfig) -> Result<[u8; 8], PaperError> {
    let is_gap = |letter: &char| letter.is_whitespace() || matches!(letter, '.' | ':' | ')' | '-');
    let (mut value, mut letters) = (0_u128, 0);
    for letter in typed.chars().filter(|letter| !is_gap(letter)) {
        let digit = digit(letter).ok_or(PaperError::Letter { line: number, letter })?;
        value = value << 5 | u128::from(digit);
        letters += 1;
        if letters > LINE_LETTERS {
            break;
        }
    }
    if letters != LINE_LETTERS {
        let letters = typed.chars().filter(|letter| !is_gap(letter)).count();
        return Err(PaperError::Length { line: number, letters });
    }
    let bytes = u64::try_from(value >> 15).map_err(|_| PaperError::Slip { line: number })?.to_be_bytes();
    if value & 0x7FFF == check(number, &bytes, config) {
        Ok(bytes)
    } else {
        Err(PaperError::Slip { line: number })
    }
}

fn digit(letter: char) -> Option<u8> {
    let letter = match letter.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        other => other,
    };
    let place = DIGITS.iter().position(|digit| char::from(*digit) == letter)?;
    u8::try_from(place).ok()
}

const _: () = assert!(BYTES_LETTERS * 5 >= 64 && LINE_LETTERS - BYTES_LETTERS == 3);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config() -> StoreConfig {
        StoreConfig::new([1; 16])
    }

    fn master() -> [u8; 32] {
        std::array::from_fn(|place| u8::try_from(place * 7 + 3).unwrap())
    }

    fn text() -> String {
        PaperKey::new(&master(), &config()).lines().join("\n")
    }

    #[test]
    fn what_was_printed_is_read_whatever_it_is_typed_like() {
        let text = text();
        let in_a_page = format!("A page\nof 5 lines, see\n\n  {}\nend", text.replace('\n', "\n  "));
        let reversed = text.lines().rev().collect::<Vec<_>>().join("\r\n");
        let sloppy = text.to_lowercase().replace('0', "o").replace(' ', "  ");
        for typed in
            [text.clone(), in_a_page, reversed, sloppy, text.replace(' ', "-").replacen("1-", "1: ", 1)]
        {
            if let Ok(read) = PaperKey::read(&typed, &config()) {
                assert_eq!(*read, master());
            } else {
                // With a dash after the number, no line is recognised.
                assert!(typed.contains("2-"), "{typed}");
            }
        }
        assert_eq!(*PaperKey::read(&text, &config()).unwrap(), master());
    }

    #[test]
    fn every_single_slip_is_found_in_its_line() {
        let text = text();
        for (number, line) in text.lines().enumerate().map(|(place, line)| (place + 1, line)) {
            for place in 2..line.len() {
                for digit in DIGITS.iter().map(|digit| char::from(*digit)) {
                    let was = line.as_bytes()[place];
                    if was == b' ' || char::from(was) == digit {
                        continue;
                    }
                    let mut slipped = line.to_owned();
                    slipped.replace_range(place..=place, &digit.to_string());
                    let typed = text.replace(line, &slipped);
                    // A check of 15 bits misses one error in 32768; the last line then finds it.
                    match PaperKey::read(&typed, &config()) {
                        Err(PaperError::Slip { line }) => assert_eq!(line, number),
                        Err(PaperError::OtherStore) => {}
                        other => panic!("{slipped}: {:?}", other.map(|_| ())),
                    }
                }
            }
            let without = text.lines().filter(|other| *other != line).collect::<Vec<_>>().join("\n");
            assert_eq!(PaperKey::read(&without, &config()).err(), Some(PaperError::Missing { line: number }));
            let short = text.replace(line, &line[..line.len() - 1]);
            let error = PaperKey::read(&short, &config()).err();
            assert_eq!(error, Some(PaperError::Length { line: number, letters: 15 }));
            let odd = text.replace(line, &format!("{}!", &line[..line.len() - 1]));
            let error = PaperKey::read(&odd, &config()).err();
            assert_eq!(error, Some(PaperError::Letter { line: number, letter: '!' }));
        }
    }

    #[test]
    fn another_store_is_told_at_once() {
        let other = StoreConfig::new([2; 16]);
        assert_eq!(PaperKey::read(&text(), &other).err(), Some(PaperError::Slip { line: 1 }));
        let changed = StoreConfig { score: crate::ScoreAlgorithm::Sha1, ..config() };
        assert_eq!(PaperKey::read(&text(), &changed).err(), Some(PaperError::OtherStore));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[1-5 :.\\-A-Z0-9\n\u{e9}]{0,200}") {
            drop(PaperKey::read(&text, &config()));
        }
    }
}
