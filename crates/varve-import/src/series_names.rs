//! Names for the snapshots of a foreign archive, one for each of its sources. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::foreign::ForeignSnapshot;

/// The longest name that is made.
const NAME_CHARS_MAX: usize = 120;

/// The host and the path of snapshots.
pub type ForeignSource = (String, Vec<u8>);

/// A name for each source. A source that was imported before keeps its name, which is in `known`.
/// The name of another one is the last component of the path, with the host before it if there are
/// several hosts, and with more of the path if sources would share a name.
#[must_use]
pub fn series_names(
    snapshots: &[ForeignSnapshot],
    known: &BTreeMap<ForeignSource, String>,
) -> BTreeMap<ForeignSource, String> {
    let sources: BTreeSet<(String, Vec<u8>)> =
        snapshots.iter().map(|one| (one.host.clone(), one.source.clone())).collect();
    let hosts: BTreeSet<&String> = sources.iter().map(|(host, _)| host).collect();
    let several_hosts = hosts.len() > 1;
    let mut names: BTreeMap<_, _> =
        sources.iter().filter_map(|source| Some((source.clone(), known.get(source)?.clone()))).collect();
    // The word for the newest snapshot is no name.
    let mut taken: BTreeSet<String> = known.values().cloned().chain(["latest".to_owned()]).collect();
    for (host, source) in sources.iter().filter(|source| !known.contains_key(*source)) {
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
        let (id, earlier_ids, tags) = (String::new(), Vec::new(), Vec::new());
        ForeignSnapshot { id, earlier_ids, time: Timestamp(0), host, source, tags }
    }

    fn names(snapshots: &[ForeignSnapshot]) -> Vec<String> {
        series_names(snapshots, &BTreeMap::new()).into_values().collect()
    }

    #[test]
    fn a_source_keeps_its_name_when_others_join() {
        let known = BTreeMap::from([(("h".to_owned(), b"/home".to_vec()), "home".to_owned())]);
        let all = [of("g", "/home"), of("h", "/home"), of("h", "/x/home")];
        let names: Vec<_> = series_names(&all, &known).into_values().collect();
        assert_eq!(names, ["g-home", "home", "h-home"]);
        let one_host = [of("h", "/home"), of("h", "/x/home")];
        let names: Vec<_> = series_names(&one_host, &known).into_values().collect();
        assert_eq!(names, ["home", "x-home"]);
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
