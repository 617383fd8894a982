//! The page about memory: its bounds are those of the code, and its sums are right.

use std::fs;

use crate::{report, root, text};

/// The fewest rows of the page.
const ROWS_MIN: usize = 15;

/// Returns the value of a constant or a field in a source file, in bytes.
fn value(file: &str, name: &str) -> Option<u64> {
    let source = fs::read_to_string(root().join("crates").join(file)).ok()?;
    let rest = source.match_indices(name).find_map(|(at, _)| {
        let is_whole = !source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = source[at + name.len()..].lines().next()?.strip_prefix(':')?;
        (is_whole && rest.contains("<<")).then_some(rest)
    })?;
    // A constant has its type before its value, and a field of a literal has none.
    let expression = rest.split_once('=').map_or(rest, |(_, value)| value);
    let expression = expression.split([';', ',', '}']).next()?;
    let (left, right) = expression.split_once("<<")?;
    Some(left.trim().parse::<u64>().ok()? << right.trim().parse::<u32>().ok()?)
}

#[test]
fn the_bounds_of_memory_are_those_of_the_code() {
    let page = text(&root().join("docs/internals/memory.md"));
    let (mut findings, mut sum, mut row_count) = (Vec::new(), 0, 0);
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [what, number, each, bound] = cells[..] else { continue };
        let Ok(each) = each.parse::<u64>() else {
            sum = 0;
            continue;
        };
        if what == "**sum**" {
            if each != sum {
                findings.push(format!("the sum is {sum}, and not {each}"));
            }
            continue;
        }
        row_count += 1;
        sum += number.parse::<u64>().unwrap_or(0) * each;
        let mut quoted = bound.split('`').skip(1).step_by(2);
        let (name, file) = (quoted.next().unwrap_or_default(), quoted.next().unwrap_or_default());
        let bytes = value(file, name);
        if bytes != Some(each << 20) {
            findings.push(format!("{what}: `{name}` in `{file}` is {bytes:?}, and not {each} MiB"));
        }
    }
    assert!(row_count >= ROWS_MIN, "only {row_count} rows were found");
    report(&findings);
}
