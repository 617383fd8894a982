//! Compares verdicts with those of restic and borg. `make_vectors.py` has made `vectors.json` by
//! running both.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use varve_archive::retention::{Dated, KeptBy, RetentionRule, Verdict, judge};
use varve_world::Timestamp;

use super::{LATE, at, dated, policy};

/// The kept snapshots by reason, each by its number in its group.
type ByReason = BTreeMap<String, Vec<usize>>;

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

/// The snapshots of all groups; a group is a host.
fn snapshots(vectors: &Value) -> Vec<Dated> {
    let of_group = |(host, times): (&String, &Value)| {
        let made = times.as_array().unwrap().iter().enumerate().map(|(number, snapshot)| {
            let tags = snapshot["tags"].as_array().unwrap().iter();
            Dated {
                host: host.clone(),
                tags: tags.map(|tag| tag.as_str().unwrap().to_owned()).collect(),
                ..dated(number, at(snapshot["time"].as_str().unwrap()))
            }
        });
        made.collect::<Vec<_>>()
    };
    vectors["groups"].as_object().unwrap().iter().flat_map(of_group).collect()
}

/// The text of a policy file.
fn policy_text(vectors: &Value, vector: &Value) -> String {
    let count_like = if vector["tool"] == "borg" { "borg" } else { "union" };
    let mut text = format!("zone = {}\ncount_like = \"{count_like}\"\n", vectors["zone"]);
    for (key, value) in vector["policy"].as_object().unwrap() {
        // JSON's numbers, texts and lists are those of TOML.
        writeln!(text, "{key} = {value}").unwrap();
    }
    text
}

/// The word of the vectors for a rule.
fn word(rule: &RetentionRule) -> String {
    match rule {
        RetentionRule::Last(_) => "last".into(),
        RetentionRule::Periods(period, _) => period.word().into(),
        RetentionRule::Within(_) => "within".into(),
        RetentionRule::PeriodsWithin(period, _) => format!("within {}", period.word()),
        RetentionRule::Tags(_) => "tags".into(),
    }
}

fn by_reason<'a>(numbered: impl Iterator<Item = (usize, &'a Verdict)>) -> ByReason {
    let mut found = ByReason::new();
    for (number, verdict) in numbered {
        for reason in verdict.kept_by() {
            let word = match reason {
                KeptBy::Rule(rule) => word(rule),
                KeptBy::Oldest(rule) => format!("oldest {}", word(rule)),
                // Neither restic nor borg has this rule.
                KeptBy::Newest => continue,
                other => panic!("{other:?}"),
            };
            found.entry(word).or_default().push(number);
        }
    }
    found
}

#[test]
fn restic_and_borg_keep_the_same_for_the_same_reasons() {
    let vectors = vectors();
    let snapshots = snapshots(&vectors);
    let (mut policy_counts, mut verdict_count) = (BTreeMap::new(), 0);
    for vector in vectors["vectors"].as_array().unwrap() {
        let text = policy_text(&vectors, vector);
        let now = vector["now"].as_str().map_or(LATE, at);
        let verdicts = judge(&snapshots, &policy(&text), now);
        for (host, expected) in vector["kept"].as_object().unwrap() {
            let of_group = snapshots.iter().zip(&verdicts).filter(|(snapshot, _)| snapshot.host == *host);
            let found = by_reason(of_group.map(|(_, verdict)| verdict).enumerate());
            let expected: ByReason = serde_json::from_value(expected.clone()).unwrap();
            assert_eq!(found, expected, "{} of {host} with {text}", vector["tool"]);
            verdict_count += 1;
        }
        *policy_counts.entry(vector["tool"].as_str().unwrap()).or_insert(0) += 1;
    }
    assert!(policy_counts["restic"] >= 190 && policy_counts["borg"] >= 110, "{policy_counts:?}");
    assert!(verdict_count >= 1000, "{verdict_count} groups were compared");
}

/// A snapshot that no policy of the vectors drops shows that the vectors test too little.
#[test]
fn each_snapshot_of_the_vectors_is_kept_by_one_policy_and_dropped_by_another() {
    let vectors = vectors();
    let snapshots = snapshots(&vectors);
    let mut kept_count = vec![0; snapshots.len()];
    for vector in vectors["vectors"].as_array().unwrap() {
        let now: Timestamp = vector["now"].as_str().map_or(LATE, at);
        let verdicts = judge(&snapshots, &policy(&policy_text(&vectors, vector)), now);
        kept_count
            .iter_mut()
            .zip(&verdicts)
            .for_each(|(count, verdict)| *count += usize::from(verdict.is_kept()));
    }
    let all = vectors["vectors"].as_array().unwrap().len();
    let mut newest: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, snapshot) in snapshots.iter().enumerate() {
        newest.insert(&snapshot.host, place);
    }
    for (place, snapshot) in snapshots.iter().enumerate() {
        let is_newest = newest[snapshot.host.as_str()] == place;
        assert!(kept_count[place] > 0 && (is_newest == (kept_count[place] == all)), "{snapshot:?}");
    }
}
