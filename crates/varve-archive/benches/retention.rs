//! Measures how fast a policy judges many snapshots.
//!
//! Run with `cargo bench -p varve-archive --bench retention`. `cargo test --benches` runs it at a
//! tiny size, so that it keeps working.
//!
//! The times are those of the processor. So other programs on the machine make little difference.
#![expect(clippy::print_stdout, reason = "a bench takes the time and says so")]

use std::time::Duration;

use varve_archive::SnapshotId;
use varve_archive::retention::{ContentKind, Dated, RetentionPolicy, judge};
use varve_world::Timestamp;

/// Upper bound on the time for 100,000 snapshots.
const ELAPSED_MAX: Duration = Duration::from_millis(50);
const TRY_COUNT: usize = 8;
const ROUND_COUNT: u32 = 5;
const NOW: Timestamp = Timestamp(i64::MAX);
const HOUR: i64 = 3_600_000_000_000;

const POLICIES: [(&str, &str); 4] = [
    ("usual", "keep_daily = 7\nkeep_weekly = 4\nkeep_monthly = 12\nkeep_yearly = 10"),
    (
        "all rules",
        r#"keep_last = 50
keep_hourly = 1000
keep_daily = "unlimited"
keep_weekly = "unlimited"
keep_monthly = "unlimited"
keep_yearly = "unlimited"
keep_within = "30d"
keep_within_hourly = "1y"
keep_within_daily = "2y"
keep_within_weekly = "3y"
keep_within_monthly = "5y"
keep_within_yearly = "20y"
keep_tags = ["release"]"#,
    ),
    (
        "like borg",
        "count_like = \"borg\"\nkeep_hourly = 1000\nkeep_daily = 1000\nkeep_yearly = \"unlimited\"",
    ),
    ("like pbs", "count_like = \"pbs\"\nkeep_hourly = 1000\nkeep_daily = 1000\nkeep_yearly = \"unlimited\""),
];

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let count = if is_bench { 100_000 } else { 1000 };
    for group_count in [1, 30] {
        let snapshots = make_snapshots(count, group_count);
        for (name, text) in POLICIES {
            let policy: RetentionPolicy = format!("zone = \"Europe/Berlin\"\n{text}").parse().unwrap();
            let elapsed = measure(&format!("{group_count} groups, {name}"), &snapshots, &policy);
            assert!(!is_bench || elapsed < ELAPSED_MAX, "{elapsed:?}");
        }
    }
}

/// Snapshots of each hour in turn, over all groups, not in the order of their times.
fn make_snapshots(count: usize, group_count: usize) -> Vec<Dated> {
    let make = |number: usize| {
        let mixed = number * 7919 % count;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(mixed as u64).to_be_bytes());
        Dated {
            id: SnapshotId(id),
            time: Timestamp(i64::try_from(mixed).unwrap() * HOUR / 3),
            host: format!("host-{}", mixed % group_count),
            name: "home".to_owned(),
            kind: ContentKind::Folder,
            tags: if mixed.is_multiple_of(100) { vec!["release=1".to_owned()] } else { Vec::new() },
            holds: Vec::new(),
            keep_until: None,
            has_gaps: false,
            lesser_key: None,
            is_backdated: false,
        }
    };
    (0..count).map(make).collect()
}

/// The shortest mean time of a few rounds. It prints a hash of the verdicts as well.
fn measure(name: &str, snapshots: &[Dated], policy: &RetentionPolicy) -> Duration {
    let verdicts = judge(snapshots, policy, NOW);
    let rounds = |_| {
        let start = processor_time();
        for _ in 0..ROUND_COUNT {
            std::hint::black_box(judge(std::hint::black_box(snapshots), policy, NOW));
        }
        (processor_time() - start) / ROUND_COUNT
    };
    let elapsed = (0..TRY_COUNT).map(rounds).min().unwrap();
    let kept_count = verdicts.iter().filter(|verdict| verdict.is_kept()).count();
    let hash = blake3::hash(format!("{verdicts:?}").as_bytes()).to_hex();
    let (ms, count) = (elapsed.as_secs_f64() * 1e3, snapshots.len());
    println!("{name}: {ms:.1} ms, {kept_count} of {count} kept, {hash:.16}");
    elapsed
}

/// The time that this thread has had a processor.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}
