//! The house keeps its rules: the dependencies between crates, the names of files, and their
//! documentation. The tests read the workspace as text. Each of them lists everything that it
//! finds, not only the first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "house/files.rs"]
mod files;
#[path = "house/functions.rs"]
mod functions;
#[path = "house/memory.rs"]
mod memory;
#[path = "house/names.rs"]
mod names;
#[path = "house/pages.rs"]
mod pages;
#[path = "house/rooms.rs"]
mod rooms;

/// A crate may use only crates on lower floors. A new crate or edge is a design change: it also
/// moves the table in `docs/internals/architecture.md`.
const FLOORS: [(&str, u32); 29] = [
    ("varve", 8),
    ("varve-machine", 5),
    ("varve-import", 5),
    ("varve-serve", 5),
    ("varve-plan", 5),
    ("varve-daily", 6),
    ("varve-session", 5),
    ("varve-lab", 8),
    ("varve-web", 7),
    ("varve-archive", 4),
    ("varve-replica", 4),
    ("varve-publish", 4),
    ("varve-attach", 4),
    ("varve-remote", 3),
    ("varve-proxy", 3),
    ("varve-upkeep", 3),
    ("varve-store", 2),
    ("varve-content", 2),
    ("varve-tree", 1),
    ("varve-image", 1),
    ("varve-log", 1),
    ("varve-index", 1),
    ("varve-venti", 1),
    ("varve-edition", 1),
    ("varve-nbd", 1),
    ("varve-sim", 1),
    ("varve-trace", 1),
    ("varve-block", 0),
    ("varve-world", 0),
];

/// The files with layouts of hints. A reader of the format may delete hints, so
/// `docs/internals/format.md` does not have their bytes.
const HINTS: [&str; 18] = [
    "varve-archive/src/archive/last_snapshot_record.rs",
    "varve-edition/src/cache_record.rs",
    "varve-index/src/checkpoint.rs",
    "varve-index/src/disk/page.rs",
    "varve-index/src/disk/summary.rs",
    "varve-replica/src/replication/replica_end.rs",
    "varve-replica/src/replication/superseded_since.rs",
    "varve-store/src/reader/lost_blocks.rs",
    "varve-store/src/saved_index/coverage.rs",
    "varve-store/src/vault/arena_extent.rs",
    "varve-store/src/vault/barren_hint.rs",
    "varve-store/src/vault/hint.rs",
    "varve-store/src/vault/log_extent.rs",
    "varve-store/src/vault/newest_page.rs",
    "varve-store/src/vault/private_file.rs",
    "varve-store/src/vault/sessions.rs",
    "varve-upkeep/src/check/audit_record.rs",
    "varve-upkeep/src/check/suspects.rs",
];

/// The pages in `docs/internals` that repeat the tables of the modules.
const FORMAT_PAGES: [&str; 3] = ["format.md", "publication-format.md", "trace-format.md"];

/// The beginning of a table of the format: of bytes at fixed places, or of numbered fields.
const TABLE_HEADS: [&str; 2] = ["| offset | bytes | field |", "| number | field |"];

/// Names that do not describe the contents of a file.
const EMPTY_NAMES: [&str; 6] = ["util", "utils", "helper", "helpers", "common", "misc"];

const SOURCE_LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Everything in a folder, sorted.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Every file and folder below a folder, except build results and hidden files.
fn everything_below(folder: &Path) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        let name = file_name(path);
        name != "target" && !name.starts_with('.') && name != "__pycache__"
    };
    let mut found = Vec::new();
    for path in entries(folder).into_iter().filter(is_ours) {
        if path.is_dir() {
            found.extend(everything_below(&path));
        }
        found.push(path);
    }
    found
}

fn file_name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// The workspace's crates by name, each with its folder.
fn crates() -> BTreeMap<String, PathBuf> {
    let folders =
        entries(&root().join("crates")).into_iter().filter(|path| path.join("Cargo.toml").is_file());
    let found: BTreeMap<_, _> = folders.map(|folder| (file_name(&folder).to_owned(), folder)).collect();
    assert!(!found.is_empty(), "no crates were found");
    found
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let files = everything_below(&folder.join("src"));
    files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

fn floor(name: &str) -> Option<u32> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

fn report(findings: &[String]) {
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// The crates of the house that a manifest names, except those for tests only.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let empty = toml::Table::new();
    let table = |of: &toml::Table, key: &str| of.get(key).and_then(toml::Value::as_table).cloned();
    let targets = table(manifest, "target").unwrap_or_default();
    let sections = targets.values().filter_map(toml::Value::as_table).chain([manifest]);
    let listed = sections.flat_map(|section| {
        ["dependencies", "build-dependencies"].map(|key| table(section, key).unwrap_or(empty.clone()))
    });
    let package = |(key, value): (String, toml::Value)| {
        value.get("package").and_then(toml::Value::as_str).map_or(key, str::to_owned)
    };
    listed.flatten().map(package).filter(|name| name == "varve" || name.starts_with("varve-")).collect()
}

/// A client that only reads and writes contents, at another machine's store, links no engine.
#[test]
fn contents_need_no_engine() {
    const ENGINE: [&str; 4] = ["varve-index", "varve-log", "varve-store", "varve-upkeep"];
    let manifest: toml::Table = text(&root().join("crates/varve-content/Cargo.toml")).parse().unwrap();
    let used = dependencies(&manifest).into_iter().filter(|name| ENGINE.contains(&name.as_str()));
    report(&used.map(|name| format!("varve-content must not use {name}")).collect::<Vec<_>>());
}

#[test]
fn crates_use_only_lower_floors() {
    let mut findings = Vec::new();
    for (name, folder) in crates() {
        let manifest: toml::Table = text(&folder.join("Cargo.toml")).parse().unwrap();
        assert_eq!(
            manifest["package"]["name"].as_str(),
            Some(name.as_str()),
            "a crate has its folder's name"
        );
        let Some(own) = floor(&name) else {
            findings.push(format!("{name} has no floor: see docs/internals/architecture.md"));
            continue;
        };
        for dependency in dependencies(&manifest) {
            match floor(&dependency) {
                Some(below) if below < own => {}
                Some(other) => {
                    findings.push(format!("{name} (floor {own}) must not use {dependency} (floor {other})"));
                }
                None => findings.push(format!("{name} uses {dependency}, which has no floor")),
            }
        }
    }
    report(&findings);
}

/// Crates below the program return values and notices: they know neither the command line nor the
/// terminal.
#[test]
fn only_the_program_speaks_with_people() {
    const PROGRAMS: [&str; 2] = ["varve", "varve-lab"];
    const OF_THE_PROGRAM: [&str; 5] = ["clap", "comfy-table", "indicatif", "rpassword", "tracing-subscriber"];
    const PRINTS: [&str; 6] =
        ["print!(", "println!(", "eprint!(", "eprintln!(", "io::stdout()", "io::stderr()"];
    let mut findings = Vec::new();
    for (name, folder) in crates().into_iter().filter(|(name, _)| !PROGRAMS.contains(&name.as_str())) {
        let manifest: toml::Table = text(&folder.join("Cargo.toml")).parse().unwrap();
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let known = |library: &&&str| dependencies.is_some_and(|all| all.contains_key(**library));
        findings.extend(OF_THE_PROGRAM.iter().filter(known).map(|library| format!("{name} uses {library}")));
        for source in sources(&folder) {
            let source_text = text(&source);
            // Tests may print.
            let code = source_text.split("#[cfg(test)]").next().unwrap();
            let printed = PRINTS.iter().filter(|print| code.contains(**print));
            findings.extend(printed.map(|print| format!("{}: {print}", source.display())));
        }
    }
    report(&findings);
}

/// The environment may hold the secrets of stores and targets. `other_program` removes them.
#[test]
fn other_programs_get_no_secrets() {
    // Each with the reason.
    const MAY_HAVE_SECRETS: [&str; 4] = [
        // The place that removes them.
        "varve-world/src/other_program/hidden_secrets.rs",
        // The program that prints a secret may need another one for it.
        "varve-session/src/secret/source.rs",
        // These start this program itself.
        "varve-daily/src/running/job_process.rs",
        "varve/src/command/daily/setup.rs",
    ];
    let mut findings = Vec::new();
    for (_, folder) in crates() {
        for source in sources(&folder) {
            let source_text = text(&source);
            let code = source_text.split("#[cfg(test)]").next().unwrap();
            let starts = code.replace("clap::Command::new(", "").contains("Command::new(");
            let is_listed = MAY_HAVE_SECRETS.iter().any(|listed| source.ends_with(listed));
            if starts != is_listed {
                let what = if starts { "use `varve_world::other_program`" } else { "starts no program" };
                findings.push(format!("{}: {what}", source.display()));
            }
        }
    }
    report(&findings);
}

#[test]
fn names_say_what_is_inside() {
    let kept =
        ["crates", "fuzz", "rosetta", "script", "bench", "packaging"].map(|folder| root().join(folder));
    let all = kept.iter().filter(|folder| folder.is_dir()).flat_map(|folder| everything_below(folder));
    let empty = all.filter(|path| {
        path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| EMPTY_NAMES.contains(&stem))
    });
    report(
        &empty.map(|path| format!("{} says nothing of what is inside", path.display())).collect::<Vec<_>>(),
    );
}

/// Public functions, types and traits have docs. Fields and variants need none: a line that repeats
/// a name is noise.
#[test]
fn public_items_are_documented() {
    let mut findings = Vec::new();
    for path in crates().values().flat_map(|folder| sources(folder)) {
        // A binary has public items only for its own files.
        if path.starts_with(root().join("crates/varve/src")) {
            continue;
        }
        let source = text(&path);
        let lines: Vec<_> = source.lines().map(str::trim_start).collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| is_public_item(line)) {
            if !has_docs(&lines[..number]) {
                findings.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    report(&findings);
}

/// All Rust files of the crates and the fuzz targets, with those of tests and benchmarks.
fn all_rust_files() -> Vec<PathBuf> {
    let files = ["crates", "fuzz"].map(|folder| everything_below(&root().join(folder)));
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    files.into_iter().flatten().filter(is_rust).collect()
}

/// Comments wrap at 100 columns, indentation included. Tables and pictures may be wider.
#[test]
fn comments_fit_in_100_columns() {
    let mut findings = Vec::new();
    for path in all_rust_files() {
        for (number, line, comment) in comment_lines(&text(&path)) {
            if line.chars().count() > 100 && !comment.starts_with('|') {
                findings.push(format!("{}:{number}", path.display()));
            }
        }
    }
    report(&findings);
}

/// The lines of comments, each with its number and its text without the slashes. Pictures are left
/// out.
fn comment_lines(source: &str) -> Vec<(usize, &str, &str)> {
    let mut is_picture = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(source.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_picture = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        is_picture ^= comment.starts_with("```");
        if !is_picture {
            found.push((number, line, comment));
        }
    }
    found
}

/// A sentence of a comment begins with its subject, and not with a clause in place of one.
#[test]
fn sentences_begin_with_their_subject() {
    const OPENERS: [&str; 8] =
        ["What ", "Whatever ", "Who ", "Whoever ", "Whether ", "Which ", "So many ", "So much "];
    let mut findings = Vec::new();
    for path in all_rust_files() {
        let mut ends_sentence = true;
        let mut last = 0;
        for (number, _, comment) in comment_lines(&text(&path)) {
            let begins = ends_sentence || number != last + 1;
            let is_opened = |text: &str| OPENERS.iter().any(|opener| text.starts_with(opener));
            let later = comment.match_indices(". ").map(|(at, _)| &comment[at + 2..]);
            if begins && is_opened(comment.trim_start_matches("- ")) || later.into_iter().any(is_opened) {
                findings.push(format!("{}:{number}: {comment}", path.display()));
            }
            ends_sentence = comment.is_empty() || comment.ends_with(['.', ':', '`', '|', '!', '?']);
            last = number;
        }
    }
    report(&findings);
}

/// Constructors called `new` are excluded, because their type's docs describe them.
fn is_public_item(line: &str) -> bool {
    let kinds = ["fn", "async fn", "const fn", "struct", "enum", "trait", "type", "const", "static"];
    let item = line.strip_prefix("pub ").filter(|item| !item.starts_with("fn new("));
    item.is_some_and(|item| {
        kinds.iter().any(|kind| item.strip_prefix(kind).is_some_and(|rest| rest.starts_with(' ')))
    })
}

/// Returns true if the lines above an item end with docs, or with docs and attributes.
fn has_docs(above: &[&str]) -> bool {
    let mut is_in_attribute = false;
    for line in above.iter().rev() {
        let begins = line.starts_with("#[");
        let is_attribute = begins || is_in_attribute || line.ends_with(")]");
        is_in_attribute = is_attribute && !begins;
        if !is_attribute {
            return line.starts_with("///");
        }
    }
    false
}

/// The rows of each table of the format among `lines`, with blanks normalised.
fn format_tables<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Vec<String>> {
    let mut tables = Vec::new();
    let mut current: Vec<String> = Vec::new();
    for line in lines.chain([""]) {
        let row = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_head = TABLE_HEADS.iter().any(|head| row.starts_with(head));
        if is_head || (row.starts_with('|') && !current.is_empty()) {
            let is_rule = row.chars().all(|c| "|-: ".contains(c));
            current.extend((!is_rule).then_some(row));
        } else if !current.is_empty() {
            tables.push(std::mem::take(&mut current));
        }
    }
    tables
}

#[test]
fn the_format_says_what_the_code_says() {
    let format: Vec<_> = FORMAT_PAGES
        .iter()
        .flat_map(|page| format_tables(text(&root().join("docs/internals").join(page)).lines()))
        .collect();
    let mut findings = Vec::new();
    let mut table_count = 0;
    for source in crates().into_values().flat_map(|folder| sources(&folder)) {
        let place = source.strip_prefix(root().join("crates")).unwrap().to_str().unwrap();
        if HINTS.contains(&place) {
            continue;
        }
        let docs = text(&source);
        let docs = docs.lines().filter_map(|line| line.strip_prefix("//!"));
        for table in format_tables(docs) {
            table_count += 1;
            if !format.contains(&table) {
                let is_new = |row: &&String| !format.iter().flatten().any(|known| known == *row);
                let rows: Vec<_> = table.iter().filter(is_new).map(|row| format!("\n  {row}")).collect();
                findings.push(format!(
                    "crates/{place}: no page of a format has a table like the one here; these rows are missing:{}",
                    rows.concat()
                ));
            }
        }
    }
    assert!(table_count >= 7, "only {table_count} tables were found: does this test still see them?");
    report(&findings);
}

/// Each part of the format that a comment in the code names exists.
#[test]
fn the_format_has_the_parts_that_the_code_names() {
    let page = text(&root().join("docs/internals/format.md"));
    let has = |heading: &str| page.lines().any(|line| line.starts_with(heading));
    let (mut findings, mut named_count) = (Vec::new(), 0);
    for source in crates().into_values().flat_map(|folder| sources(&folder)) {
        let docs = text(&source);
        for line in docs.lines().filter(|line| line.to_lowercase().contains("format.md")) {
            let after = |word: &str| line.split_once(word).and_then(|(_, rest)| rest.chars().next());
            let section = after("section ").map(|number| format!("## {number}. "));
            let appendix =
                after("appendix ").map(|letter| format!("## Appendix {}. ", letter.to_ascii_uppercase()));
            for heading in section.into_iter().chain(appendix) {
                named_count += 1;
                if !has(&heading) {
                    findings
                        .push(format!("{}: docs/internals/format.md has no {heading:?}", source.display()));
                }
            }
        }
    }
    assert!(named_count >= 8, "only {named_count} were found: does this test still see them?");
    report(&findings);
}

#[test]
fn a_file_tells_one_story() {
    let files = crates().into_values().flat_map(|folder| sources(&folder));
    let lengths = files.map(|file| (text(&file).lines().count(), file));
    let long = lengths.filter(|(lines, _)| *lines > SOURCE_LINES_MAX);
    report(&long.map(|(lines, file)| format!("{}: {lines} lines", file.display())).collect::<Vec<_>>());
}

#[test]
fn the_architecture_names_every_crate() {
    let page = text(&root().join("docs/internals/architecture.md"));
    let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let mut findings = Vec::new();
    for name in crates().into_keys() {
        let floor = floor(&name).map(|floor| floor.to_string()).unwrap_or_default();
        let quoted = format!("`{name}`");
        let in_the_house = |row: &Vec<&str>| row.get(1..3) == Some(&[floor.as_str(), quoted.as_str()]);
        if !rows.iter().any(in_the_house) {
            findings.push(format!(
                "docs/internals/architecture.md: no row for {name} on floor {floor} in the table of the house"
            ));
        }
        if !page
            .lines()
            .any(|line| line.trim_start_matches('#').trim_start().starts_with(&format!("**{quoted}**")))
        {
            findings
                .push(format!("docs/internals/architecture.md: no paragraph that begins with **{quoted}**"));
        }
    }
    report(&findings);
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let files = entries(&root().join("docs/decisions"));
    let mut findings = Vec::new();
    for (file, number) in files.iter().zip(1..) {
        let name = file_name(file);
        let expected = format!("{number:04}-");
        if !name.starts_with(&expected) || !name.ends_with(".md") {
            findings.push(format!("docs/decisions/{name}: expected {expected}….md here"));
        }
    }
    report(&findings);
}

/// The types of JSON that the program prints are those of the schema and of `docs/guide/json.md`,
/// and no others.
#[test]
fn what_programs_read_is_documented() {
    let schema: serde_json::Value =
        serde_json::from_str(&text(&root().join("docs/guide/json/varve.schema.json"))).unwrap();
    let listed = schema["oneOf"].as_array().unwrap().iter();
    let documented: BTreeSet<_> =
        listed.map(|one| one["$ref"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect();
    let page = text(&root().join("docs/guide/json.md"));
    let mut printed = BTreeSet::new();
    for path in sources(&root().join("crates/varve")) {
        let source = text(&path);
        for call in ["say::record(", "say::item(", "say::diagnosis(", "let kind = if "] {
            let rest = source.split(call).skip(1);
            // The first quoted word after the call. A choice between two words has both before it
            // ends.
            for rest in rest.map(|rest| rest.split([',', ';']).next().unwrap()) {
                printed.extend(rest.split('"').skip(1).step_by(2).map(str::to_owned));
            }
        }
    }
    printed.extend(["warning", "hint", "notice"].map(str::to_owned));
    let mut findings: Vec<_> =
        printed.difference(&documented).map(|name| format!("{name} is not in the schema")).collect();
    findings.extend(documented.difference(&printed).map(|name| format!("{name} is printed nowhere")));
    let is_named = |name: &&String| page.contains(&format!("`{name}`"));
    findings.extend(
        documented
            .iter()
            .filter(|name| !is_named(name))
            .map(|name| format!("docs/guide/json.md lacks {name}")),
    );
    report(&findings);
}

/// Every environment variable that a source reads is on one page, and in the list that the man
/// pages show.
#[test]
fn the_environment_is_documented() {
    let page = text(&root().join("docs/guide/environment.md"));
    let on_page: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect();
    let list = text(&root().join("crates/varve/src/environment.rs"));
    let listed: BTreeSet<_> = list
        .split('(')
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
        .map(str::to_owned)
        .collect();
    let mut findings: Vec<_> = on_page
        .symmetric_difference(&listed)
        .map(|name| format!("{name} is only on the page, or only in the list"))
        .collect();
    for (crate_name, folder) in crates() {
        for path in sources(&folder) {
            let source = text(&path);
            let calls = ["env::var(\"", "env::var_os(\"", "variable(\"", "env = \""];
            let read = calls.iter().flat_map(|call| source.split(call).skip(1));
            let read = read.filter_map(|rest| rest.split('"').next()).map(str::to_owned);
            let is_letter = |c: char| c.is_ascii_uppercase() || c == '_';
            let own = source.split("VARVE_").skip(1).map(|rest| {
                let end = rest.find(|c| !is_letter(c)).unwrap_or(rest.len());
                format!("VARVE_{}", &rest[..end])
            });
            for name in
                read.chain(own).filter(|name| name.len() > "VARVE_".len() || !name.starts_with("VARVE_"))
            {
                if !page.contains(&name) && !list.contains(&name) {
                    findings.push(format!("{crate_name}, {}: {name}", file_name(&path)));
                }
            }
        }
    }
    report(&findings);
}
