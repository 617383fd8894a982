//! Joins several files into one: tables of one name are merged, and a key that two files have is a
//! fault that names both places.

use super::config_error::FaultList;
use super::tree::{Item, ItemTable};

/// The tables that hold named tables.
const NAMED: [&str; 3] = ["store", "source", "replica"];

/// Adds the keys of `other` to `into`.
pub(crate) fn merge(into: &mut ItemTable, other: ItemTable, faults: &mut FaultList) {
    merge_at(into, other, &mut Vec::new(), faults);
}

fn merge_at(into: &mut ItemTable, other: ItemTable, path: &mut Vec<String>, faults: &mut FaultList) {
    for (key, found) in other {
        let Some(present) = into.get_mut(&key) else {
            into.insert(key, found);
            continue;
        };
        path.push(key);
        match (&mut present.value, found.value) {
            (Item::Table(present), Item::Table(found)) if is_merged(path) => {
                merge_at(present, found, path, faults);
            }
            _ => {
                let name = path.join(".");
                faults.add(&found.place, format!("{name} is already set at {}", present.place));
            }
        }
        path.pop();
    }
}

/// Reports whether the tables of this path are merged. Other tables are values, such as `keep`.
fn is_merged(path: &[String]) -> bool {
    match path {
        [_] => true,
        [first, _] => NAMED.contains(&first.as_str()),
        [first, _, last] => first == "source" && last == "hooks",
        _ => false,
    }
}
