use std::collections::BTreeMap;

use varve_trace::{TraceProfiler, TraceReader};

use super::fsl::{FslFile, PATTERNS};
use super::*;

/// Asserts that a figure is within 15 % of that of the profile: the bound of Tarasov et al.
fn assert_near(name: &str, actual: f64, expected: f64) {
    let error = (actual / expected - 1.0).abs();
    assert!(error <= 0.15, "{name}: {actual} is {:.0}% away from {expected}", error * 100.0);
}

fn by_number(files: &[FslFile]) -> BTreeMap<u64, Vec<u64>> {
    files.iter().map(|file| (file.number, file.chunks.clone())).collect()
}

#[expect(clippy::cast_precision_loss, reason = "shares need few digits")]
fn share(part: u64, all: u64) -> f64 {
    part as f64 / all as f64
}

/// The flags of the thirds of a file in which chunks differ.
fn changed_thirds(before: &[u64], after: &[u64]) -> u8 {
    let third = |chunk: usize| (0..3).find(|third| chunk < before.len() * (third + 1) / 3).unwrap_or(2);
    let differing = (0..before.len()).filter(|chunk| before[*chunk] != after[*chunk]);
    differing.fold(0, |flags, chunk| flags | 1 << third(chunk))
}

/// Each parameter is measured on the trees of two days, without a look at the generator's draws.
#[test]
fn each_parameter_of_a_tree_is_within_15_percent_of_its_profile() {
    let profile = FslProfile { files: 8000, ..FslProfile::default() };
    profile.check().unwrap();
    let mut tree = FslTree::new(profile.clone(), 7);
    let first_sizes: Vec<f64> = tree.files.iter().map(|file| (file.chunks.len() as f64) * 8192.0).collect();
    let mean = first_sizes.iter().sum::<f64>() / first_sizes.len() as f64;
    // Half a chunk is added to each file on average.
    let expected = profile.file_bytes_median * (profile.file_bytes_sigma.powi(2) / 2.0).exp() + 4096.0;
    assert_near("mean size", mean, expected);
    let mut newest = tree.files.iter().flat_map(|file| &file.chunks).max().copied().unwrap();
    let (mut files, mut changed, mut deleted, mut added) = (0, 0, 0, 0);
    let (mut placed, mut duplicates) = (0, 0);
    let mut patterns = BTreeMap::<u8, u64>::new();
    let (mut thirds, mut changed_in_thirds) = (0.0, 0.0);
    for _ in 0..80 {
        let before = by_number(&tree.files);
        tree.next_day();
        let after = by_number(&tree.files);
        files += before.len() as u64;
        for (number, chunks) in &before {
            let Some(now) = after.get(number) else {
                deleted += 1;
                continue;
            };
            if now == chunks {
                continue;
            }
            changed += 1;
            let fresh = chunks.iter().zip(now).filter(|(old, new)| old != new).map(|(_, new)| *new);
            for chunk in fresh {
                placed += 1;
                duplicates += u64::from(chunk <= newest);
            }
            let flags = changed_thirds(chunks, now);
            // From nine chunks on, each third shows. In large files its share is exact.
            if chunks.len() >= 9 {
                *patterns.entry(flags).or_default() += 1;
            }
            if chunks.len() >= 30 {
                thirds += f64::from(flags.count_ones()) * chunks.len() as f64 / 3.0;
                changed_in_thirds += chunks.iter().zip(now).filter(|(old, new)| old != new).count() as f64;
            }
        }
        let fresh_files = after.iter().filter(|(number, _)| !before.contains_key(number));
        for (_, chunks) in fresh_files {
            added += 1;
            placed += chunks.len() as u64;
            duplicates += chunks.iter().filter(|chunk| **chunk <= newest).count() as u64;
        }
        newest = newest.max(after.values().flatten().max().copied().unwrap());
    }
    assert_near("changed", share(changed, files), profile.changed);
    assert_near("deleted", share(deleted, files), profile.deleted);
    assert_near("added", share(added, files), profile.added);
    assert_near("duplicates", share(duplicates, placed), profile.duplicates);
    assert_near("changed chunks", changed_in_thirds / thirds, profile.changed_chunks);
    let pattern_count = patterns.values().sum();
    let weights: f64 = profile.change_patterns.iter().sum();
    for (flags, expected) in PATTERNS.iter().zip(profile.change_patterns).filter(|(_, share)| *share >= 0.1) {
        let actual = share(patterns.get(flags).copied().unwrap_or(0), pattern_count);
        assert_near(&format!("pattern {flags}"), actual, expected / weights);
    }
}

fn generated(command: &str, args: &[&str]) -> (Vec<u8>, TraceProfile) {
    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: Generate,
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.vtrace");
    let line = ["generate", command, out.to_str().unwrap()];
    let line = <Line as clap::Parser>::parse_from(line.iter().chain(args));
    run(&line.command, &mut |_| Ok(())).unwrap();
    let bytes = std::fs::read(out).unwrap();
    let mut profiler = TraceProfiler::new();
    for record in TraceReader::new(&bytes[..]).unwrap() {
        profiler.add(&record.unwrap());
    }
    (bytes, profiler.finish())
}

/// Writes a profile as `varve-plan --json trace profile` prints it.
fn write_profile(folder: &Path, profile: &TraceProfile) -> String {
    let file = folder.join("profile.json");
    std::fs::write(&file, json!({ "type": "workload_profile", "profile": profile }).to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let few = ["--snapshots", "3", "--seed"];
    let of = |seed| generated("fsl", &[&few[..], &[seed]].concat()).0;
    assert_eq!(of("5"), of("5"));
    assert_ne!(of("5"), of("6"));
}

#[test]
fn old_snapshots_are_forgotten_and_the_store_is_collected_each_week() {
    let (bytes, _) = generated("fsl", &["--snapshots", "9", "--keep", "2"]);
    let records: Vec<_> = TraceReader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
    let forgotten: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            TraceRecord::Forget { snapshot } => Some(*snapshot),
            _ => None,
        })
        .collect();
    assert_eq!(forgotten, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(records.iter().filter(|record| **record == TraceRecord::Gc).count(), 1);
}

/// A trace from a profile has this profile again, on average, within the same bound.
#[test]
fn a_trace_from_a_profile_has_the_profile_again() {
    let folder = tempfile::tempdir().unwrap();
    let (_, original) = generated("fsl", &["--snapshots", "6"]);
    let file = write_profile(folder.path(), &original);
    for command in ["images", "trees"] {
        let (_, again) = generated(command, &["--snapshots", "20", "--profile", &file]);
        assert!(again.is_sound());
        #[expect(clippy::cast_precision_loss, reason = "a mean needs few digits")]
        let near = |name: &str, of: fn(&TraceProfile) -> u64| {
            assert_near(&format!("{command}: {name}"), of(&again) as f64, of(&original) as f64);
        };
        near("first data", |profile| profile.first.put_bytes.mean());
        near("first new data", |profile| profile.first.new_bytes.mean());
        near("later data", |profile| profile.later.put_bytes.mean());
        near("later new data", |profile| profile.later.new_bytes.mean());
        near("stretches", |profile| profile.later.new_runs.mean());
        near("gaps", |profile| profile.later.gaps.mean());
        let all: u64 = again.first.size_classes.iter().sum();
        let before: u64 = original.first.size_classes.iter().sum();
        for class in (0..9).filter(|class| original.first.size_classes[*class] * 20 > before) {
            let (now, then) = (again.first.size_classes[class], original.first.size_classes[class]);
            assert_near(&format!("class {class}"), share(now, all), share(then, before));
        }
    }
}

#[test]
fn a_profile_that_cannot_be_generated_is_refused() {
    assert!(FslProfile { changed: 0.9, deleted: 0.9, ..FslProfile::default() }.check().is_err());
    assert!(FslProfile { chunk_bytes: 1, ..FslProfile::default() }.check().is_err());
    assert!(FslProfile { files: u64::MAX, ..FslProfile::default() }.check().is_err());
    assert!(FslProfile { duplicates: f64::NAN, ..FslProfile::default() }.check().is_err());
}
