//! The rules for names: a type name means one thing in the whole workspace, and names use the words
//! of the glossary.

use std::collections::{BTreeMap, BTreeSet};

use crate::files::without_tests;
use crate::pages::glossary;
use crate::{crates, file_name, report, root, sources, text};

/// Words that the glossary rules out, and that have no other meaning in the code. (`chunk` is also
/// a part of a reply of the NBD protocol, and `cluster` a unit of FAT: such words are not checked.)
const RULED_OUT: [&str; 35] = [
    "backend",
    "ban",
    "blacklist",
    "blob",
    "bundle",
    "classify",
    "committed",
    "compact",
    "database",
    "diagnose",
    "dirent",
    "door",
    "dump",
    "epoch",
    "exporter",
    "fsck",
    "gateway",
    "ingest",
    "manifest",
    "middleware",
    "mirror",
    "night",
    "privilege",
    "redundancy",
    "registry",
    "repo",
    "repository",
    "rescue",
    "resilver",
    "revision",
    "scrub",
    "synchronise",
    "timeline",
    "validate",
    "vanished",
];

/// Words that make a reader guess, each with a clear one.
const RIDDLES: [(&str, &str); 4] =
    [("hands", "workers"), ("told", "reported"), ("trouble", "problem"), ("wanted", "requested")];

/// The parts of a name in lower case: `ArenaHead` and `arena_head` have `arena` and `head`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for letter in name.chars() {
        if (letter == '_' || letter.is_uppercase()) && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(String::new());
        }
        if letter != '_' {
            parts.last_mut().unwrap().extend(letter.to_lowercase());
        }
    }
    parts
}

/// The name that follows one of the `keywords` at the beginning of an item.
pub(crate) fn defined<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let item = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(") ").map_or(rest, |(_, item)| item),
        None => rest.trim_start(),
    });
    let name = keywords.iter().find_map(|keyword| item.strip_prefix(keyword)?.strip_prefix(' '))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Each type that is defined at the top level of a file, with the places of its definitions.
#[test]
fn a_type_name_means_one_thing() {
    const TYPES: [&str; 5] = ["struct", "enum", "trait", "type", "union"];
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in crates().values().flat_map(|folder| sources(folder)) {
        for name in without_tests(&text(&path)).lines().filter_map(|line| defined(line, &TYPES)) {
            places.entry(name.to_owned()).or_default().push(path.display().to_string());
        }
    }
    assert!(places.len() >= 800, "only {} types were found: does this test still see them?", places.len());
    let several = places.iter().filter(|(_, places)| places.len() > 1);
    report(&several.map(|(name, places)| format!("{name}: {}", places.join(", "))).collect::<Vec<_>>());
}

/// The names of types, functions and files do not use a word that the glossary rules out.
#[test]
fn names_use_the_words_of_the_glossary() {
    const ITEMS: [&str; 8] = ["struct", "enum", "trait", "type", "fn", "const fn", "async fn", "mod"];
    let glossary: BTreeSet<String> = glossary().into_iter().flat_map(|(_, _, ruled_out)| ruled_out).collect();
    let stale = RULED_OUT.iter().filter(|word| !glossary.contains(**word));
    let mut findings: Vec<_> = stale.map(|word| format!("the glossary does not rule out {word}")).collect();
    for path in crates().values().flat_map(|folder| sources(folder)) {
        let source = without_tests(&text(&path));
        let names = source.lines().filter_map(|line| defined(line.trim_start(), &ITEMS));
        for name in names.chain([file_name(&path).trim_end_matches(".rs")]) {
            let is_plural = |part: &str, word: &str| part.strip_suffix('s') == Some(word);
            for part in parts(name) {
                if RULED_OUT.iter().any(|word| part == *word || is_plural(&part, word)) {
                    findings.push(format!("{}: {name}: see docs/glossary.md", path.display()));
                }
                if let Some((_, plain)) = RIDDLES.iter().find(|(riddle, _)| part == *riddle) {
                    findings.push(format!("{}: {name}: say {plain}", path.display()));
                }
            }
        }
    }
    report(&findings);
}

/// Names in comments that look like types, and are those of other programs and texts.
const FOREIGN: [&str; 12] = [
    "ExtractAndExpand",
    "FastCDC",
    "LabeledExpand",
    "LabeledExtract",
    "LoongArch",
    "MurmurHash3",
    "OpenSSH",
    "SplitMix64",
    "VirtualBox",
    "VtDataType",
    "VtDirType",
    "VtRootType",
];

/// The words of a comment that must be types: those with a capital letter inside, and in a diagram
/// those beside an arrow.
fn named_types(comment: &str) -> Vec<&str> {
    const ARROWS: [char; 4] = ['▶', '◀', '─', ' '];
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let words = comment.split(|c: char| !is_letter(c)).filter(|word| word.starts_with(char::is_uppercase));
    let has_arrow = comment.contains('▶') || comment.contains('◀');
    let is_beside_arrow = |word: &&str| {
        comment.match_indices(*word).any(|(at, _)| {
            let before = comment[..at].trim_end_matches(ARROWS);
            let after = &comment[at + word.len()..];
            comment[before.len()..at].contains(['▶', '◀'])
                || after.trim_start_matches(' ').starts_with('─') && !after.starts_with('─')
        })
    };
    let has_capital_inside = |word: &&str| word.chars().skip(2).any(char::is_uppercase);
    let is_type = |word: &&str| {
        let is_capitalised = word.chars().nth(1).is_some_and(char::is_lowercase);
        is_capitalised && (has_capital_inside(word) || has_arrow && is_beside_arrow(word))
    };
    words.filter(is_type).collect()
}

/// A comment that names a type names one that exists: a renamed one is renamed in comments and
/// diagrams, too.
#[test]
fn comments_name_types_that_exist() {
    let files: Vec<_> = crates().values().flat_map(|folder| sources(folder)).collect();
    let texts: Vec<_> = files.iter().map(|path| text(path)).collect();
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let code = texts.iter().flat_map(|source| source.lines()).filter(|line| !is_comment(line));
    let known: BTreeSet<_> =
        code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
    let mut findings = Vec::new();
    let mut name_count = 0;
    for (path, source) in files.iter().zip(&texts) {
        for (number, line) in source.lines().enumerate().filter(|(_, line)| is_comment(line)) {
            for name in named_types(line) {
                name_count += 1;
                if !known.contains(name) && !FOREIGN.contains(&name) {
                    findings.push(format!("{}:{}: {name}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(name_count >= 500, "only {name_count} names were found: does this test still see them?");
    report(&findings);
}

/// An exit status follows from the kind of an error, which is found only in listed types.
#[test]
fn every_error_with_a_kind_is_looked_for() {
    let mut with_kind = BTreeSet::new();
    for path in crates().values().flat_map(|folder| sources(folder)) {
        let code = text(&path);
        let types = code.split("has_kind!(").skip(1).filter_map(|rest| rest.split_once(':'));
        with_kind.extend(types.map(|(name, _)| name.trim().to_owned()).filter(|name| !name.starts_with('$')));
    }
    assert!(with_kind.len() > 20, "{with_kind:?}");
    let failure = text(&root().join("crates/varve-session/src/failure.rs"));
    let listed = failure.split_once("first_of!(\n").unwrap().1.split_once(");").unwrap().0;
    let mut listed: BTreeSet<String> = listed.split(',').map(|name| name.trim().to_owned()).collect();
    // The program looks for errors of crates that a session does not use.
    let status = text(&root().join("crates/varve/src/exit_status.rs"));
    listed
        .extend(status.split("kind::<").skip(1).filter_map(|rest| Some(rest.split_once('>')?.0.to_owned())));
    let missing: Vec<_> = with_kind.difference(&listed).collect();
    assert!(missing.is_empty(), "neither failure.rs nor exit_status.rs looks for {missing:?}");
}
