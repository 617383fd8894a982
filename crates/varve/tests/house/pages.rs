//! The rules for pages: no dead links, every page is reachable from the index, lines have a bounded
//! width, and the glossary defines each word once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::{everything_below, report, root, text};

/// The longest line of a page, in characters. Tables, code blocks and pictures may be wider.
const PAGE_COLUMNS_MAX: usize = 110;

/// The fewest words that the glossary defines.
const GLOSSARY_WORDS_MIN: usize = 40;

/// Every Markdown file of the project, except the copies in stores under `fixtures/`.
fn pages() -> Vec<PathBuf> {
    let all = everything_below(&root()).into_iter();
    let is_page = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "md")
            && !path.is_symlink()
            && !path.starts_with(root().join("fixtures"))
    };
    let found: Vec<_> = all.filter(is_page).collect();
    assert!(found.len() >= 30, "only {} pages were found", found.len());
    found
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The lines of a page outside of code blocks, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    page.lines().enumerate().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((number + 1, line))
    })
}

/// The targets of all links of a page, without those to other sites. Links in code spans are not
/// links.
fn links(page: &str) -> Vec<String> {
    let lines: Vec<_> = prose(page).map(|(_, line)| line).collect();
    let whole = lines.join("\n");
    let outside_code: String = whole.split('`').step_by(2).collect();
    let targets = outside_code.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).filter(|(_, line)| line.starts_with('#'));
    let anchor = |(_, line): (usize, &str)| -> String {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(parts.pop(), "{} leads out", path.display()),
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

#[test]
fn no_link_is_dead() {
    let mut findings = Vec::new();
    let mut link_count = 0;
    for page in pages() {
        for link in links(&text(&page)) {
            link_count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { plain(&page.with_file_name(path)) };
            if !target.exists() {
                findings.push(format!("{}: nothing is at {link}", short(&page)));
            } else if !anchor.is_empty() && !anchors(&text(&target)).contains(anchor) {
                findings.push(format!("{}: no heading is at {link}", short(&page)));
            }
        }
    }
    assert!(link_count >= 100, "only {link_count} links were found: does this test still see them?");
    report(&findings);
}

#[test]
fn lines_of_pages_fit_on_a_screen() {
    let is_bound = |line: &str| !line.starts_with('|') && !line.starts_with("![");
    let mut findings = Vec::new();
    for page in pages() {
        for (number, line) in prose(&text(&page)) {
            let columns = line.chars().count();
            if is_bound(line) && columns > PAGE_COLUMNS_MAX {
                findings.push(format!("{}:{number}: {columns} columns", short(&page)));
            }
        }
    }
    report(&findings);
}

#[test]
fn every_page_is_reachable_from_the_index() {
    let docs = root().join("docs");
    let mut reached = BTreeSet::new();
    let mut waiting = vec![docs.join("README.md")];
    while let Some(page) = waiting.pop() {
        if !reached.insert(page.clone()) || page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let paths = links(&text(&page)).into_iter().filter(|link| !link.starts_with('#'));
        let targets = paths.map(|link| plain(&page.with_file_name(link.split('#').next().unwrap())));
        waiting.extend(targets.filter(|target| target.starts_with(&docs) && target.is_file()));
    }
    let lost = pages().into_iter().filter(|page| page.starts_with(&docs) && !reached.contains(page));
    report(&lost.map(|page| format!("no link leads to {}", short(&page))).collect::<Vec<_>>());
}

/// A page that sends its reader to a file names one that exists. A part in capitals stands for any
/// name. A source may be named by the end of its path.
#[test]
fn pages_name_files_that_exist() {
    const FOLDERS: [&str; 8] =
        ["bench/", "crates/", "docs/", "fixtures/", "fuzz/", "packaging/", "rosetta/", "script/"];
    let sources = everything_below(&root().join("crates"));
    let mut findings = Vec::new();
    let mut path_count = 0;
    for page in pages() {
        let whole = text(&page);
        let lines: Vec<_> = prose(&whole).map(|(_, line)| line).collect();
        let whole = lines.join("\n");
        let is_plain = |code: &&str| code.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        for code in whole.split('`').skip(1).step_by(2).filter(is_plain) {
            let is_path = FOLDERS.iter().any(|folder| code.starts_with(folder));
            let stands_for_any = code
                .split('/')
                .any(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
            let is_source = !is_path && !stands_for_any && code.ends_with(".rs");
            if is_source && !sources.iter().any(|source| source.ends_with(code)) {
                findings.push(format!("{}: no source ends with {code}", short(&page)));
            }
            if is_path && !stands_for_any {
                path_count += 1;
                if !root().join(code).exists() {
                    findings.push(format!("{}: there is no {code}", short(&page)));
                }
            }
        }
    }
    assert!(path_count >= 30, "only {path_count} paths were found: does this test still see them?");
    report(&findings);
}

/// A source that sends its reader to a page names one that exists.
#[test]
fn sources_name_pages_that_exist() {
    let folders =
        ["bench", "crates", "fuzz", "packaging", "rosetta", "script"].map(|folder| root().join(folder));
    let files = folders.iter().flat_map(|folder| everything_below(folder));
    let is_source = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        path.is_file() && matches!(extension, None | Some("rs" | "py" | "toml"))
    };
    let mut findings = Vec::new();
    let mut page_count = 0;
    for file in files.filter(is_source) {
        let Ok(source) = std::fs::read_to_string(&file) else { continue };
        for rest in source.split("docs/").skip(1) {
            let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
            let path = format!("docs/{}", rest[..end].trim_end_matches('.'));
            page_count += usize::from(path.ends_with(".md"));
            if !root().join(&path).exists() {
                findings.push(format!("{}: there is no {path}", short(&file)));
            }
        }
    }
    assert!(page_count >= 40, "only {page_count} pages were named: does this test still see them?");
    report(&findings);
}

/// Each stop of the tour names functions and types that the crate of its file has.
#[test]
fn the_tour_names_what_is_in_its_files() {
    let page = text(&root().join("docs/internals/tour.md"));
    let stops: Vec<_> = page.split("\n\n").filter(|paragraph| paragraph.contains(". `crates/")).collect();
    assert_eq!(stops.len(), 12, "the tour has twelve stops");
    let mut findings = Vec::new();
    for stop in stops {
        let spans: Vec<_> = stop.split('`').skip(1).step_by(2).collect();
        let folders = spans.iter().filter(|span| span.starts_with("crates/")).map(|path| {
            let source = path.find("/src/").unwrap_or_else(|| panic!("no source: {path}"));
            root().join(&path[..source]).join("src")
        });
        let files = folders.flat_map(|folder| everything_below(&folder)).filter(|path| path.is_file());
        let sources: String = files.map(|file| text(&file)).collect();
        let known: BTreeSet<_> = sources.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let is_name = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
        for name in spans.iter().copied().filter(is_name).flat_map(|name| name.split("::")) {
            if !known.contains(name) {
                findings
                    .push(format!("docs/internals/tour.md: `{name}` is not in the crate of {}", spans[0]));
            }
        }
    }
    report(&findings);
}

/// The head of each crate says which files to read first, and they exist.
#[test]
fn each_crate_names_the_files_to_read_first() {
    let mut findings = Vec::new();
    for (name, folder) in crate::crates() {
        let sources = folder.join("src");
        let head =
            ["lib.rs", "main.rs"].map(|file| sources.join(file)).into_iter().find(|path| path.exists());
        let head = text(&head.unwrap());
        let doc: Vec<_> = head.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let doc = doc.join("\n");
        let advice =
            doc.split("\n\n").find(|paragraph| paragraph.starts_with("Read first:")).unwrap_or_default();
        let files: Vec<_> =
            advice.split('`').skip(1).step_by(2).filter(|span| span.ends_with(".rs")).collect();
        if files.is_empty() {
            findings.push(format!("{name}: its head does not say which files to read first"));
        }
        let missing = files.iter().filter(|file| !sources.join(file).exists());
        findings.extend(missing.map(|file| format!("{name}: there is no {file}")));
    }
    report(&findings);
}

/// The words of the glossary: each with the line of its definition, and the words that it rules
/// out.
pub(crate) fn glossary() -> Vec<(String, usize, Vec<String>)> {
    let page = text(&root().join("docs/glossary.md"));
    let lines: Vec<_> = page.lines().collect();
    let is_start = |line: &&str| line.starts_with("- **");
    let mut words = Vec::new();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| is_start(line)) {
        let (head, _) = line[4..].split_once("**: ").unwrap_or_else(|| panic!("glossary: {line}"));
        let later = lines[number + 1..].iter().take_while(|line| line.starts_with("  "));
        let definition: Vec<_> = std::iter::once(line).chain(later).map(|line| line.trim()).collect();
        let definition = definition.join(" ");
        let ruled_out = definition.split_once("*Not:*").map_or("", |(_, rest)| rest).trim_end_matches('.');
        let ruled_out: Vec<_> =
            ruled_out.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect();
        words.extend(head.split(", ").map(|word| (word.to_owned(), number + 1, ruled_out.clone())));
    }
    words
}

#[test]
fn the_glossary_defines_each_word_once() {
    let words = glossary();
    assert!(words.len() >= GLOSSARY_WORDS_MIN, "only {} words were found", words.len());
    let mut defined = BTreeMap::new();
    let mut findings = Vec::new();
    for (word, line, ruled_out) in &words {
        if let Some(earlier) = defined.insert(word.clone(), *line) {
            findings.push(format!("docs/glossary.md:{line}: {word} is also defined in line {earlier}"));
        }
        if ruled_out.is_empty() {
            findings.push(format!("docs/glossary.md:{line}: no word is ruled out in favour of {word}"));
        }
    }
    for (word, line, ruled_out) in &words {
        for other in ruled_out.iter().filter(|other| defined.contains_key(*other)) {
            findings.push(format!(
                "docs/glossary.md:{line}: {word} rules out {other}, which is defined in line {}",
                defined[other]
            ));
        }
    }
    report(&findings);
}

#[test]
fn the_sessions_in_the_readme_are_from_the_demo() {
    let readme = text(&root().join("README.md"));
    let demo = text(&root().join("script/demo"));
    let commands: Vec<_> = readme.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(commands.len() >= 5, "only {} commands were found", commands.len());
    let is_run = |command: &&str| {
        ["session", "refused"].iter().any(|call| {
            demo.contains(&format!("{call} '{command}'")) || demo.contains(&format!("{call} \"{command}\""))
        })
    };
    let strange = commands.iter().filter(|command| !is_run(command));
    report(&strange.map(|command| format!("script/demo does not run: {command}")).collect::<Vec<_>>());
}
