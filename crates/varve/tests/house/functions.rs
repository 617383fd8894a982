//! The rules for functions: they are short. And for fields of the store: few of them are open to
//! more than one file.

use std::collections::BTreeSet;

use crate::files::without_tests;
use crate::names::defined;
use crate::{crates, report, root, sources, text};

const LINES_MAX: usize = 70;

/// The functions with more than [`LINES_MAX`] lines, with the reason why they are not divided.
const LONG_FUNCTIONS: [(&str, &str, &str); 4] = [
    ("varve-attach/src/trust.rs", "believe_head", "its checks are in the order of the format's page"),
    ("varve-image/src/file_systems/btrfs/superblock.rs", "parse", "a table of fields"),
    ("varve-image/src/file_systems/xfs/group.rs", "group", "one account of a group's blocks"),
    ("varve-machine/src/boot/command_line.rs", "command_line", "a table of options"),
];

/// The fields of the store's types that other files may touch, at most. A smaller count is lowered
/// here.
const OPEN_FIELDS_MAX: usize = 25;

/// Returns the name and the lines of each function that has a body.
fn function_lengths(source: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let item = line.trim_start();
        let Some(name) = defined(item, &["fn", "const fn", "async fn"]) else { continue };
        let rest = &lines[number..];
        let head_end = rest.iter().find(|line| line.ends_with(['{', ';', '}']));
        let end = format!("{}}}", &line[..line.len() - item.len()]);
        if let Some(last) = rest.iter().position(|line| *line == end)
            && head_end.is_some_and(|line| line.ends_with('{'))
        {
            found.push((name.to_owned(), last + 1));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let known: BTreeSet<(String, String)> =
        LONG_FUNCTIONS.iter().map(|(file, name, _)| ((*file).to_owned(), (*name).to_owned())).collect();
    let (mut count, mut long) = (0, BTreeSet::new());
    for file in crates().into_values().flat_map(|folder| sources(&folder)) {
        if file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let path = file.strip_prefix(root().join("crates")).unwrap().display().to_string();
        for (name, lines) in function_lengths(&without_tests(&text(&file))) {
            count += 1;
            if lines > LINES_MAX {
                long.insert((path.clone(), name));
            }
        }
    }
    assert!(count >= 5000, "only {count} functions were found: does this test still see them?");
    let new = long.difference(&known).map(|(file, name)| format!("{file}: {name} is too long"));
    let gone = known.difference(&long).map(|(file, name)| format!("{file}: {name} is no longer too long"));
    report(&new.chain(gone).collect::<Vec<_>>());
}

#[test]
fn lengths_of_functions_are_counted() {
    let source = "trait One {\n    fn none(&self);\n    fn first(\n        &self,\n    ) -> u8 {\n        1\n    }\n}\nfn empty() {}\npub(crate) const fn last() {\n}";
    let expected = [("first", 5), ("last", 2)].map(|(name, lines)| (name.to_owned(), lines));
    assert_eq!(function_lengths(source), expected);
}

/// A type owns its fields: the code that reads or changes them is beside it.
#[test]
fn few_fields_of_the_store_are_open() {
    let is_open = |line: &&str| {
        let item = line.trim_start();
        let is_field = item.split_once(") ").is_some_and(|(_, rest)| {
            rest.split_once(": ")
                .is_some_and(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
        });
        line.starts_with("    ") && item.starts_with("pub(") && is_field
    };
    let mut count = 0;
    for file in sources(&root().join("crates/varve-store")) {
        count += without_tests(&text(&file)).lines().filter(is_open).count();
    }
    assert_eq!(count, OPEN_FIELDS_MAX, "open fields of varve-store");
}
