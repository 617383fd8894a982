//! Prints the profile of a workload for people.

use varve_trace::{ClassHistogram, SnapshotShape, TraceProfile};

use crate::show;

/// Prints the sums of a profile, and then its histograms.
pub(super) fn print(profile: &TraceProfile) {
    say!(
        "{} series, {}",
        profile.series_count,
        show::count(profile.first.put_bytes.count() + profile.later.put_bytes.count(), "snapshot")
    );
    for (title, shape) in [("first snapshots", &profile.first), ("later snapshots", &profile.later)] {
        if shape.put_bytes.count() > 0 {
            print_shape(title, shape);
        }
    }
    if profile.read_runs.count() > 0 {
        print_histogram("lengths of reads", &profile.read_runs);
    }
}

fn print_shape(title: &str, shape: &SnapshotShape) {
    let rows = [
        ("data", &shape.put_bytes),
        ("new data", &shape.new_bytes),
        ("new structure", &shape.structure_bytes),
        ("stretches of new blocks", &shape.new_runs),
        ("gaps between them", &shape.gaps),
        ("stretches of known blocks", &shape.known_runs),
        ("stretches of repeated blocks", &shape.repeated_runs),
        ("new blocks", &shape.block_bytes),
    ];
    let mut table = show::table(&[title, "count", "mean", "sum"], &[1, 2, 3]);
    for (name, histogram) in rows {
        table.add_row([
            name.to_owned(),
            histogram.count().to_string(),
            show::bytes(histogram.mean()),
            show::bytes(histogram.sum()),
        ]);
    }
    say!("\n{table}");
    let all = shape.size_classes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    for (class, bytes) in shape.size_classes.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        let percent = u128::from(*bytes) * 100 / u128::from(all.max(1));
        match class {
            0 => say!("{percent:>3}% of new data: not known how well it compresses"),
            8 => say!("{percent:>3}% of new data does not compress"),
            _ => say!("{percent:>3}% of new data compresses to at most {class}/8"),
        }
    }
    for (name, histogram) in &rows[3..5] {
        if histogram.count() > 1 {
            print_histogram(name, histogram);
        }
    }
}

fn print_histogram(title: &str, histogram: &ClassHistogram) {
    let mut table = show::table(&[title, "count", "sum"], &[1, 2]);
    for bucket in histogram.buckets() {
        table.add_row([
            format!("from {}", show::bytes(bucket.at_least)),
            bucket.count.to_string(),
            show::bytes(bucket.sum),
        ]);
    }
    say!("\n{table}");
}
