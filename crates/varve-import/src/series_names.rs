//! Names for the snapshots of a foreign archive, one for each of its sources. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::foreign::ForeignSnapshot;

/// The longest name that is made.
const NAME_CHARS_MAX: usize = 120;

/// A name for each source, which is a host and a path: the last component of the path, with the
/// host before it if there are several hosts, and with more of the path if sources would share a
/// name.
#[must_use]
pub fn series_names(snapshots: &[ForeignSnapshot]) -> BTreeMap<(String, Vec<u8>), String> {
    let sources: BTreeSet<(String, Vec<u8>)> =
        snapshots.iter().map(|one| (one.host.clone(), one.source.clone())).collect();
    let hosts: BTreeSet<&String> = sources.iter().map(|(host, _)| host).collect();
    let several_hosts = hosts.len() > 1;
    let mut names = BTreeMap::new();
    // The word for the newest snapshot is no name.
    let mut taken = BTreeSet::from(["latest".to_owned()]);
    for (host, source) in &sources {
        let parts: Vec<String> = source
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
            .map(|part| clean(&String::from_utf8_lossy(part)))
            .collect();
        let prefix =
            if several_hosts && !host.is_empty() { format!("{}-", clean(host)) } else { String::new() };
        let whole = if host.is_empty() { "files".to_owned() } else { clean(host) };
        let candidates = (1..=parts.len()).map(|count| {
            let last = parts.get(parts.len() - count..).unwrap_or_default().join("-");
            format!("{prefix}{last}")
        });
        let candidates: Vec<String> = if parts.is_empty() { vec![whole] } else { candidates.collect() };
        let numbered = (2_u64..).map(|number| {
            let base = candidates.last().map_or("files", String::as_str);
            format!("{base}-{number}")
        });
        let short = |name: String| name.chars().take(NAME_CHARS_MAX).collect::<String>();
        let mut all = candidates.iter().cloned().map(short).chain(numbered);
        if let Some(name) = all.find(|name| !taken.contains(name)) {
            taken.insert(name.clone());
            names.insert((host.clone(), source.clone()), name);
        }
    }
    names
}

/// A part of a name without characters that a name should not have.
fn clean(part: &str) -> String {
    let is_bad = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '/' | ':' | '@');
    part.chars().map(|c| if is_bad(c) { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use varve_world::Timestamp;

    use super::*;

    fn of(host: &str, source: &str) -> ForeignSnapshot {
        let (host, source) = (host.to_owned(), source.as_bytes().to_vec());
        ForeignSnapshot { id: String::new(), time: Timestamp(0), host, source, tags: Vec::new() }
    }

    fn names(snapshots: &[ForeignSnapshot]) -> Vec<String> {
        series_names(snapshots).into_values().collect()
    }

    #[test]
    fn every_source_has_a_name_of_its_own() {
        assert_eq!(names(&[of("h", "/home"), of("h", "/home"), of("h", "/etc")]), ["etc", "home"]);
        assert_eq!(names(&[of("h", "/a/data"), of("h", "/b/data")]), ["data", "b-data"]);
        assert_eq!(names(&[of("a", "/home"), of("b", "/home")]), ["a-home", "b-home"]);
        assert_eq!(names(&[of("h", "/"), of("h", "/x y")]), ["h", "x-y"]);
        assert_eq!(names(&[of("", "/")]), ["files"]);
        assert_eq!(names(&[of("h", "/x y"), of("h", "/x-y")]), ["x-y", "x-y-2"]);
    }
}
