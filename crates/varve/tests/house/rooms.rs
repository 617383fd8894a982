//! The rules for the rooms of a crate, which are its top-level folders and files: they form no
//! circle, and a room names another one itself, and not through the crate's front door.
//!
//! A name that a room takes from the front door (`lib.rs`) is an arrow back: the front door knows
//! all rooms. The room then seems to depend on nothing, and circles hide. Names that the front door
//! itself defines are free for all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::files::{Module, Use, all_uses, module_sources, reached, target};
use crate::{crates, report};

/// A crate: its modules with their sources, and with their `use` paths.
struct Rooms {
    sources: BTreeMap<Module, String>,
    uses: BTreeMap<Module, Vec<Use>>,
}

impl Rooms {
    fn new(sources: BTreeMap<Module, String>) -> Self {
        let is_test = |module: &Module| module.last().is_some_and(|name| name == "tests");
        let sources = sources.into_iter().filter(|(module, _)| !is_test(module)).collect();
        Self { uses: all_uses(&sources), sources }
    }

    /// The paths that a module takes names from.
    fn paths(&self, module: &Module) -> Vec<Module> {
        let uses = self.uses[module].iter().map(|one| one.path.clone());
        uses.chain(inline_paths(&self.sources[module])).collect()
    }

    /// Each room with those that it takes names from.
    fn arrows(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for module in self.uses.keys() {
            let Some(room) = module.first() else { continue };
            let paths = self.paths(module).into_iter();
            let other = paths.filter_map(|path| target(&path, &self.uses, 0).first().cloned());
            let other = other.filter(|other| other != room).map(|other| vec![other]);
            arrows.entry(vec![room.clone()]).or_default().extend(other);
        }
        arrows
    }

    /// The circles of rooms, each with its rooms in alphabetical order.
    fn circles(&self) -> BTreeSet<String> {
        let arrows = self.arrows();
        let all: BTreeMap<_, _> = arrows.keys().map(|room| (room, reached(room, &arrows))).collect();
        let circle = |room: &&Module| {
            let in_it = all[*room].iter().filter(|other| all[other].contains(*room));
            let names: Vec<_> = in_it.map(|other| other.concat()).collect();
            (!names.is_empty()).then(|| names.join(" "))
        };
        all.keys().filter_map(circle).collect()
    }

    /// The names of other rooms that rooms take through the front door.
    fn through_the_front_door(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for module in self.uses.keys().filter(|module| !module.is_empty()) {
            for path in self.paths(module) {
                let is_room = path.first().is_some_and(|first| self.uses.contains_key(&vec![first.clone()]));
                if !is_room && !target(&path, &self.uses, 0).is_empty() {
                    found.insert(format!("{}: {}", module.join("::"), path.join("::")));
                }
            }
        }
        found
    }
}

/// Returns the paths that begin with `crate::` anywhere in the code. Of a `use` of several names,
/// it is the common part.
fn inline_paths(source: &str) -> Vec<Module> {
    let code: Vec<_> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        if code[..at].ends_with('$') {
            // The crate of a macro.
            continue;
        }
        let rest = &code[at + start.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
        let parts = rest[..end].split("::").filter(|part| !part.is_empty());
        found.push(parts.map(str::to_owned).collect());
    }
    found.retain(|path: &Module| !path.is_empty());
    found
}

#[test]
fn rooms_form_no_circles() {
    let of_crate = |(name, folder): (String, PathBuf)| {
        let circles = Rooms::new(module_sources(&folder)).circles();
        circles.into_iter().map(move |circle| format!("a circle of rooms in {name}: {circle}"))
    };
    report(&crates().into_iter().flat_map(of_crate).collect::<Vec<_>>());
}

#[test]
fn rooms_name_each_other_themselves() {
    let mut findings = Vec::new();
    for (name, folder) in crates() {
        let found = Rooms::new(module_sources(&folder)).through_the_front_door();
        findings.extend(found.iter().map(|found| format!("{name}: {found}: name its own room")));
    }
    report(&findings);
}

/// A crate of these sources, each with the path of its module.
fn planted(sources: &[(&str, &str)]) -> Rooms {
    let module = |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    Rooms::new(sources.iter().map(|(path, source)| (module(path), (*source).to_owned())).collect())
}

#[test]
fn a_planted_circle_is_found() {
    let lib = ("", "mod attic;\nmod cellar;\npub use cellar::deep::Well;\n");
    let attic = ("attic", "use crate::cellar::deep::Well;");
    let cellar = |deep| [("cellar", "pub mod deep;"), ("cellar::deep", deep)];
    let innocent = planted(&[&[lib, attic][..], &cellar("")].concat());
    assert!(innocent.circles().is_empty() && innocent.through_the_front_door().is_empty());
    let backs = [
        "use crate::attic::Roof;",
        "fn roof() -> crate::attic::Roof;",
        "use super::super::attic::Roof;",
        "pub use crate::attic::{Roof, Tile};",
    ];
    for back in backs {
        let guilty = planted(&[&[lib, attic][..], &cellar(back)].concat());
        assert_eq!(Vec::from_iter(guilty.circles()), ["attic cellar"], "{back}");
    }
    let hidden = [lib, ("attic", "use crate::Well;")];
    let hidden = planted(&[&hidden[..], &cellar("use crate::attic::Roof;")].concat());
    assert_eq!(Vec::from_iter(hidden.circles()), ["attic cellar"]);
    assert_eq!(Vec::from_iter(hidden.through_the_front_door()), ["attic: Well"]);
}
