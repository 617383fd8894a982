//! The rules for files inside a crate: they form no circles, and a type whose methods fill several
//! files owns its fields, and has few methods.
//!
//! The source is read as text: only paths in `use` are followed, and test modules are ignored. A
//! module and the files in its folder count as one node, so there is no edge between them. Every
//! other `use` is an edge.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::names::defined;
use crate::{crates, report, root, sources, text};

/// The files that create a file under its final name, with the reason. All other results of a
/// command are made with `varve_content::NewFile`: a reader must never take half a result for a
/// whole one.
const CREATED_IN_PLACE: [(&str, &str); 19] = [
    ("varve-content/src/folder/restore/files.rs", "partial names"),
    ("varve-content/src/folder/restore/move_into_place.rs", "partial names"),
    ("varve-content/src/restoring/new_file.rs", "the mechanism"),
    ("varve-content/src/restoring/unfinished_restore.rs", "partial names"),
    ("varve-machine/src/boot/emulator.rs", "in a temporary folder"),
    ("varve-machine/src/boot/firmware.rs", "in a temporary folder"),
    ("varve-machine/src/private_folder.rs", "in a temporary folder"),
    ("varve-plan/src/device.rs", "a file to measure a disk with"),
    ("varve-remote/src/targets/folder.rs", "temporary names"),
    ("varve-serve/src/nbd/overlay.rs", "written as long as a disk is served"),
    ("varve-session/src/known_servers.rs", "lines are appended"),
    ("varve-session/src/roots_file.rs", "lines are appended"),
    ("varve-world/src/real.rs", "files of stores, which have their own order of writes"),
    ("varve-daily/src/state/state_folder.rs", "a lock, and a log"),
    ("varve/src/command/planning/input_file.rs", "a device or a pipe"),
    ("varve/src/command/restoring/drill.rs", "scratch files"),
    ("varve/src/command/serving/attach/access_file.rs", "a log"),
    ("varve/src/command/taking/import_check.rs", "lines are appended"),
    ("varve/src/command/taking/trace_file.rs", "a trace without its end is a good trace"),
];

/// A module, as its path within its crate.
pub(crate) type Module = Vec<String>;

/// Returns the path of a source file's module.
fn module_of(folder: &Path, file: &Path) -> Module {
    let path = file.strip_prefix(folder.join("src")).unwrap().with_extension("");
    let mut parts: Module = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// Returns the source of a file without its test module.
pub(crate) fn without_tests(source: &str) -> String {
    let mut kept = Vec::new();
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            let mut ahead = lines.clone();
            let is_attribute = |line: &&str| line.starts_with("#[");
            let item = ahead.by_ref().find(|line| !is_attribute(line)).unwrap_or_default();
            if item.ends_with(';') {
                // A single item that exists only for tests.
                lines.by_ref().find(|line| !is_attribute(line));
                continue;
            }
            if item.contains("mod ") {
                break;
            }
        }
        kept.push(line);
    }
    kept.join("\n")
}

/// Returns the paths of a `use` without its keyword and semicolon, each with the name that it has
/// here.
fn paths(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path: Vec<_> = path.split("::").map(|part| part.trim().to_owned()).collect();
        let last = path.last().cloned().unwrap_or_default();
        return vec![(path, if name.is_empty() { last } else { name.trim().to_owned() })];
    };
    let head: Vec<_> =
        tree[..open].split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
    let inner = &tree[open + 1..tree.rfind('}').unwrap()];
    let (mut depth, mut branches) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            branches.push(String::new())
        } else {
            branches.last_mut().unwrap().push(c)
        }
    }
    let branches = branches.iter().filter(|branch| !branch.trim().is_empty());
    let whole = branches.flat_map(|branch| paths(branch));
    whole.map(|(path, name)| ([head.clone(), path].concat(), name)).collect()
}

/// One `use`: a flag that other modules may use it through this one, its path within the crate, and
/// the name that it has here.
pub(crate) struct Use {
    is_reexport: bool,
    pub(crate) path: Module,
    name: String,
}

/// Returns the `use` paths of a module that lead into its own crate.
fn uses(module: &[String], modules: &BTreeSet<Module>, source: &str) -> Vec<Use> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("use ") {
        let line = &rest[rest[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        let Some(end) = rest[at..].find(';') else { break };
        let tree = &rest[at + 4..at + end];
        let is_use = line.trim().is_empty() || line.trim_start().starts_with("pub");
        rest = &rest[at + end..];
        if !is_use || line.contains("//") {
            continue;
        }
        for (mut path, name) in paths(tree) {
            let supers = path.iter().take_while(|part| *part == "super").count();
            let base = match path[0].as_str() {
                "crate" => Vec::new(),
                "self" => module.to_vec(),
                "super" => module[..module.len().saturating_sub(supers)].to_vec(),
                first if modules.contains(&[module, &[first.to_owned()]].concat()) => {
                    path.insert(0, String::new());
                    module.to_vec()
                }
                _ => continue,
            };
            path.drain(..supers.max(1));
            path.retain(|part| part != "self");
            let path = [base, path].concat();
            found.push(Use { is_reexport: line.trim_start().starts_with("pub"), path, name });
        }
    }
    found
}

/// Returns the module that a path leads to, through other modules' re-exports.
pub(crate) fn target(path: &[String], modules: &BTreeMap<Module, Vec<Use>>, depth: usize) -> Module {
    let deepest = (0..=path.len()).rev().find(|count| modules.contains_key(&path[..*count])).unwrap_or(0);
    let (module, item) = path.split_at(deepest);
    let reexport = item.first().and_then(|item| {
        modules.get(module)?.iter().find(|one| one.is_reexport && one.name == *item && one.path != path)
    });
    match reexport {
        Some(found) if depth < 8 => target(&[&found.path, &item[1..]].concat(), modules, depth + 1),
        _ => module.to_vec(),
    }
}

/// Returns all modules that a module leads to by any number of steps.
pub(crate) fn reached(from: &Module, edges: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(edges[module].iter().filter(|to| reached.insert((*to).clone())));
    }
    reached
}

/// Returns the modules of a crate, each with its source without tests.
pub(crate) fn module_sources(folder: &Path) -> BTreeMap<Module, String> {
    let files = sources(folder).into_iter();
    files.map(|file| (module_of(folder, &file), without_tests(&text(&file)))).collect()
}

/// Returns the `use` paths of all modules.
pub(crate) fn all_uses(sources: &BTreeMap<Module, String>) -> BTreeMap<Module, Vec<Use>> {
    let names: BTreeSet<Module> = sources.keys().cloned().collect();
    sources.iter().map(|(module, source)| (module.clone(), uses(module, &names, source))).collect()
}

/// Returns the circles of a crate's files.
fn circles(folder: &Path) -> BTreeSet<String> {
    let modules = all_uses(&module_sources(folder));
    let edges_of = |(module, uses): (&Module, &Vec<Use>)| {
        let own = uses.iter().filter(|one| !one.is_reexport).map(|one| target(&one.path, &modules, 0));
        let is_other_room = |to: &Module| !to.starts_with(module) && !module.starts_with(to);
        (module.clone(), own.filter(is_other_room).collect::<BTreeSet<_>>())
    };
    let edges: BTreeMap<_, _> = modules.iter().map(edges_of).collect();
    let all: BTreeMap<_, _> = edges.keys().map(|module| (module, reached(module, &edges))).collect();
    let circle = |module: &&Module| {
        let in_it = all[module].iter().filter(|other| all[other].contains(*module));
        let names: BTreeSet<_> = in_it.map(|other| other.join("::")).collect();
        (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(", "))
    };
    all.keys().filter_map(circle).collect()
}

#[test]
fn files_form_no_circles() {
    let of_crate = |(name, folder): (String, PathBuf)| {
        circles(&folder).into_iter().map(move |circle| format!("{name}: {circle}"))
    };
    let found: BTreeSet<String> = crates().into_iter().flat_map(of_crate).collect();
    report(&found.into_iter().collect::<Vec<_>>());
}

/// Returns the name of the type that an `impl` line is for; `None` for an `impl` of a trait.
fn implemented(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?.strip_suffix(" {")?;
    if rest.contains(" for ") || !rest.starts_with([' ', '<']) {
        return None;
    }
    let rest = rest.trim_start();
    // Skips the parameters of the `impl` itself.
    let rest = if rest.starts_with('<') { rest.split_once("> ")?.1 } else { rest };
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// A type with fields that its whole crate may touch has its methods in at most two files.
#[test]
fn types_own_their_fields() {
    const FILES_MAX: usize = 2;
    let mut findings = Vec::new();
    let mut type_count = 0;
    for (crate_name, folder) in crates() {
        let (mut files, mut open): (BTreeMap<String, BTreeSet<_>>, BTreeSet<String>) = Default::default();
        for file in sources(&folder) {
            let source = without_tests(&text(&file));
            let mut current = None;
            for line in source.lines() {
                if let Some(name) = implemented(line) {
                    files.entry(name).or_default().insert(file.clone());
                }
                if line.contains("struct ") && !line.starts_with([' ', '/']) {
                    let rest = line.split("struct ").nth(1).unwrap_or_default();
                    current = Some(rest.chars().take_while(|c| c.is_alphanumeric()).collect::<String>());
                } else if line.starts_with('}') {
                    current = None;
                } else if line.starts_with("    pub(crate) ") && !line.contains("fn ") && line.contains(": ")
                {
                    open.extend(current.clone());
                }
            }
        }
        type_count += files.len();
        for name in open {
            let count = files.get(&name).map_or(0, BTreeSet::len);
            if count > FILES_MAX {
                findings.push(format!(
                    "{crate_name}: {name} has pub(crate) fields, and methods in {count} files"
                ));
            }
        }
    }
    assert!(type_count >= 300, "only {type_count} types were found: does this test still see them?");
    report(&findings);
}

/// The types with more than [`METHODS_MAX`] methods, and their counts. A count that is smaller now
/// is lowered here, and a type that is no longer above the limit is removed. No count grows, and no
/// type is added: the parts of its work become types.
const MANY_METHODS: [(&str, &str, usize); 11] = [
    ("varve-archive", "Archive", 45),
    ("varve-image", "ExtFileSystem", 70),
    ("varve-image", "XfsFiles", 45),
    ("varve-index", "DiskIndex", 45),
    ("varve-log", "Log", 48),
    ("varve-session", "CommandSession", 47),
    ("varve-store", "Finder", 60),
    ("varve-store", "Intake", 75),
    ("varve-store", "Store", 53),
    ("varve-store", "Vault", 65),
    ("varve-upkeep", "Checker", 46),
];

const METHODS_MAX: usize = 40;

/// Counts the functions in the `impl` blocks of each type, over all of these sources. Those of
/// traits do not count.
fn method_counts<'a>(sources: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for source in sources {
        let mut current = None;
        for line in without_tests(source).lines() {
            if line.starts_with("impl") {
                current = implemented(line);
            } else if line.starts_with('}') {
                current = None;
            } else if let Some(item) = line.strip_prefix("    ")
                && defined(item, &["fn", "const fn", "async fn"]).is_some()
                && let Some(name) = &current
            {
                *counts.entry(name.clone()).or_default() += 1;
            }
        }
    }
    counts
}

/// A file of at most 800 lines does not bound a type: its methods may fill a folder.
#[test]
fn types_have_few_methods() {
    let known: BTreeMap<_, _> =
        MANY_METHODS.iter().map(|(name, kind, count)| ((*name, *kind), *count)).collect();
    let mut many = BTreeMap::new();
    for (crate_name, folder) in crates() {
        let is_production = |file: &&PathBuf| !file.ends_with("tests.rs");
        let texts: Vec<_> = sources(&folder).iter().filter(is_production).map(|file| text(file)).collect();
        for (kind, count) in method_counts(texts.iter().map(String::as_str)) {
            if count > METHODS_MAX {
                many.insert((crate_name.clone(), kind), count);
            }
        }
    }
    let listed = |(name, kind): &(String, String)| known.get(&(name.as_str(), kind.as_str())).copied();
    let new = many.iter().filter(|(key, count)| listed(key) != Some(**count));
    let new = new.map(|((name, kind), count)| format!("{name}: {kind} has {count} methods"));
    let is_gone = |(name, kind): &&(&str, &str)| !many.contains_key(&((*name).into(), (*kind).into()));
    let gone = known
        .keys()
        .filter(is_gone)
        .map(|(name, kind)| format!("{name}: {kind} is no longer above the limit"));
    report(&new.chain(gone).collect::<Vec<_>>());
}

#[test]
fn methods_are_counted_over_all_files_of_a_type() {
    let first = "impl Store {\n    pub fn one(&self) {}\n    pub(crate) const fn two() {\n        fn inner() {}\n    }\n}";
    let second = "impl<T: Sized> Store<T> {\n    fn three() {}\n}\nimpl Drop for Store {\n    fn drop(&mut self) {}\n}";
    let tests = "#[cfg(test)]\nmod tests {\nimpl Store {\n    fn four() {}\n}\n}";
    let counts = method_counts([first, second, tests]);
    assert_eq!(counts, BTreeMap::from([("Store".to_owned(), 3)]));
}

#[test]
fn results_get_their_names_when_they_are_complete() {
    const CREATORS: [&str; 6] = [
        "create_new(true)",
        ".create(true)",
        " File::create(",
        "fs::File::create(",
        "fs::write(",
        "OFlags::CREATE",
    ];
    let mut found = BTreeSet::new();
    // Programs for experiments are not delivered.
    let shipped = crates().into_iter().filter(|(name, _)| !["varve-lab", "varve-sim"].contains(&&**name));
    for file in shipped.flat_map(|(_, folder)| sources(&folder)) {
        let source = without_tests(&text(&file));
        let is_test = file.file_name().is_some_and(|name| name == "tests.rs");
        if !is_test && CREATORS.iter().any(|creator| source.contains(creator)) {
            found.insert(file.strip_prefix(root().join("crates")).unwrap().display().to_string());
        }
    }
    let allowed: BTreeSet<String> = CREATED_IN_PLACE.iter().map(|(file, _)| (*file).to_owned()).collect();
    let new = found.difference(&allowed).map(|file| format!("{file}: use varve_content::NewFile"));
    let gone = allowed.difference(&found).map(|file| format!("{file}: creates no file any more"));
    report(&new.chain(gone).collect::<Vec<_>>());
}
