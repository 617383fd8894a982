//! The rules for names: a type name means one thing in the whole workspace, and names use the words
//! of the glossary.

use std::collections::{BTreeMap, BTreeSet};

use crate::files::without_tests;
use crate::pages::glossary;
use crate::{crates, file_name, report, sources, text};

/// Words that the glossary rules out, and that have no other meaning in the code. (`chunk` is also a
/// part of a reply of the NBD protocol, and `cluster` a unit of FAT: such words are not checked.)
const RULED_OUT: [&str; 36] = [
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
    "trash",
    "validate",
    "vanished",
];

/// Words that make a reader guess, each with one that does not.
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
fn defined<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
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
