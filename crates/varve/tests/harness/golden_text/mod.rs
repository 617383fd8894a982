//! Compares printed text with golden files in `tests/golden`. With `VARVE_REWRITE_GOLDEN=1` a test
//! writes its files anew, and `git diff` shows the changes for review.

use std::fs;
use std::path::{Path, PathBuf};

const REWRITE: &str = "VARVE_REWRITE_GOLDEN";

/// Requires that a golden file has this text.
#[track_caller]
pub fn check(name: &str, text: &str) {
    let path = path(name);
    if std::env::var_os(REWRITE).is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        return;
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{name} has changed. {REWRITE}=1 rewrites it.\n{}", difference(&golden, text));
}

/// Requires that a folder of golden files has these files and no others.
#[track_caller]
pub fn check_names(folder: &str, names: &[String]) {
    let folder = path(folder);
    let listed = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let stale: Vec<_> = listed.filter(|name| !names.contains(name)).collect();
    if std::env::var_os(REWRITE).is_some() {
        stale.iter().for_each(|name| fs::remove_file(folder.join(name)).unwrap());
        return;
    }
    assert!(stale.is_empty(), "{} is of no command: {REWRITE}=1 removes it", stale.join(", "));
}

fn path(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(name)
}

/// The lines between the first and the last that differ.
fn difference(golden: &str, text: &str) -> String {
    let (golden, text): (Vec<_>, Vec<_>) = (golden.lines().collect(), text.lines().collect());
    let alike = golden.iter().zip(&text).take_while(|(a, b)| a == b).count();
    let tail = |lines: &[&str]| lines[alike..].iter().rev().map(ToString::to_string).collect::<Vec<_>>();
    let alike_at_end = tail(&golden).iter().zip(&tail(&text)).take_while(|(a, b)| a == b).count();
    let changed = |lines: &[&str], mark: &str| {
        let lines = &lines[alike..lines.len() - alike_at_end];
        lines.iter().map(|line| format!("{mark} {line}\n")).collect::<String>()
    };
    format!("line {}:\n{}{}", alike + 1, changed(&golden, "-"), changed(&text, "+"))
}

/// The beginning of dates that a test has chosen.
const OWN_DATES: &str = "2026-05-";

fn is_date(word: &str) -> bool {
    word.len() == OWN_DATES.len() + 2
        && word
            .bytes()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() })
}

/// Replaces everything that differs between two runs: names of this machine, ids, sizes, durations
/// and numbers of blocks.
#[derive(Default)]
pub struct Scrubber {
    replaced: Vec<(String, String)>,
    ids: Vec<String>,
}

/// The beginnings of rows that end with a number of blocks. It depends on the instant at which
/// files were written.
const BLOCK_COUNTS: [&str; 2] = ["blocks ", "with 1 candidate "];

/// The digits of a short id. A longer id with the same beginning means the same object.
const SHORT_ID_DIGITS: usize = 8;

impl Scrubber {
    /// Replaces every occurrence of a text.
    pub fn replace(mut self, text: impl Into<String>, name: &str) -> Self {
        self.replaced.push((text.into(), name.to_owned()));
        self
    }

    pub fn scrub(&mut self, text: &str) -> String {
        let replaced = self.replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        replaced.lines().map(|line| self.line(line) + "\n").collect()
    }

    /// Scrubs a line. The columns of a table lose their widths, which depend on the sizes in them.
    fn line(&mut self, line: &str) -> String {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<_> = line.trim_start().split(' ').collect();
        let mut scrubbed = line[..indent].to_owned();
        let mut at = 0;
        while at < words.len() {
            let unit = words.get(at + 1).copied().unwrap_or("");
            if is_date(words[at]) && !words[at].starts_with(OWN_DATES) {
                scrubbed += "NOW ";
                at += 2;
                continue;
            }
            let end = unit.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let is_number = words[at].parse::<f64>().is_ok();
            let is_of_blocks = BLOCK_COUNTS.iter().any(|row| line.starts_with(row));
            let measure = match &unit[..unit.len() - end.len()] {
                "blocks" => Some("COUNT blocks"),
                "" if at + 1 == words.len() && is_of_blocks => Some("COUNT"),
                "B" | "KiB" | "MiB" | "GiB" => Some("SIZE"),
                "ms" | "s" | "min" => Some("DURATION"),
                "" if unit == ":" => Some("RATIO"),
                _ => None,
            };
            match measure.filter(|_| is_number) {
                Some(name) => {
                    let end = if unit == ":" { " :" } else { end };
                    scrubbed += &format!("{name}{end}");
                    at += 1;
                }
                None if words[at].is_empty() && scrubbed.ends_with("  ") => {
                    at += 1;
                    continue;
                }
                None => scrubbed += &self.id(words[at]),
            }
            at += 1;
            if at < words.len() {
                scrubbed.push(' ');
            }
        }
        scrubbed.trim_end().to_owned()
    }

    /// Replaces an id by its number in the order of appearance.
    fn id(&mut self, word: &str) -> String {
        let is_digit = |c: char| c.is_ascii_hexdigit() && !c.is_ascii_uppercase();
        let start = word.find(is_digit).unwrap_or(word.len());
        let digits = &word[start..];
        let digits = &digits[..digits.find(|c| !is_digit(c)).unwrap_or(digits.len())];
        if digits.len() < SHORT_ID_DIGITS || !digits.contains(|c: char| c.is_ascii_digit()) {
            return word.to_owned();
        }
        let short = &digits[..SHORT_ID_DIGITS];
        let known = self.ids.iter().position(|id| id == short);
        let number = known.unwrap_or_else(|| {
            self.ids.push(short.to_owned());
            self.ids.len() - 1
        });
        word.replacen(digits, &format!("ID{}", number + 1), 1)
    }
}
