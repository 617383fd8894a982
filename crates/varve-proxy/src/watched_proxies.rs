//! The state of proxies: as text for people, and as metrics for monitoring.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::bounded::BoundedStore;
use crate::buffer::WriteBuffer;
use crate::cache::Cache;
use crate::read_ahead::ReadAheadStore;
use crate::shards::ShardedStore;

#[derive(Clone)]
pub(crate) enum WatchedProxy {
    Cache(Arc<Cache>),
    Bounded(Arc<BoundedStore>),
    Buffer(Arc<WriteBuffer>),
    Shards(Arc<ShardedStore>),
    ReadAhead(Arc<ReadAheadStore>),
}

/// Running proxies, by their names in the configuration.
#[derive(Clone)]
pub struct WatchedProxies(pub(crate) Vec<(String, WatchedProxy)>);

/// One metric, with its values for all proxies that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyMetric {
    /// The name of the metric, in the style of Prometheus.
    pub name: &'static str,
    /// The description of the metric.
    pub help: &'static str,
    /// The value never decreases.
    pub is_counter: bool,
    pub samples: Vec<ProxySample>,
}

/// One value of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySample {
    /// Names and values of the labels.
    pub labels: Vec<(&'static str, String)>,
    pub value: u64,
}

/// The descriptions of the metrics. Names that end in `_total` are counters.
const HELP: [(&str, &str); 16] = [
    ("varve_cache_reads_total", "Blocks that a cache returned, by their origin."),
    ("varve_cache_look_aside_failures_total", "Failed reads and writes of a look-aside."),
    ("varve_look_aside_bytes", "Bytes in a bounded look-aside."),
    ("varve_buffer_waiting_bytes", "Bytes in a write buffer that wait to be sent on."),
    ("varve_buffer_room_bytes", "Capacity of a write buffer in bytes."),
    ("varve_buffer_blocked_ways", "Routes of a write buffer whose store cannot be reached."),
    (
        "varve_buffer_held_blocks",
        "Blocks that the store behind a write buffer refuses, or that cannot be read in it.",
    ),
    ("varve_buffer_fault", "1 if a write to a write buffer failed, so that it takes no more blocks."),
    ("varve_buffer_sent_blocks_total", "Blocks that a write buffer has sent on."),
    ("varve_buffer_sent_bytes_total", "Bytes that a write buffer has sent on."),
    ("varve_buffer_refused_writes_total", "Writes that were refused because a write buffer was full."),
    ("varve_shard_failing", "1 if the last request to a shard failed."),
    ("varve_shard_failures_total", "Failures of a shard."),
    ("varve_read_ahead_blocks_total", "Blocks that were read ahead."),
    ("varve_read_ahead_hits_total", "Reads of blocks that had been read ahead."),
    ("varve_read_ahead_misses_total", "Reads of blocks that had not been read ahead."),
];

/// The name of a metric, an optional label, and the value.
type MetricValue = (&'static str, Option<(&'static str, String)>, u64);

impl WatchedProxies {
    /// A report for people, with one value per line.
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = String::new();
        for (name, part) in &self.0 {
            for (what, value) in part.report() {
                let _ = writeln!(text, "{:<44}{value:>16}", format!("{name}: {what}"));
            }
        }
        text
    }

    /// The current metrics, grouped by name.
    #[must_use]
    pub fn metrics(&self) -> Vec<ProxyMetric> {
        let numbers: Vec<(&String, MetricValue)> = self
            .0
            .iter()
            .flat_map(|(store, part)| part.numbers().into_iter().map(move |n| (store, n)))
            .collect();
        let metric = |(name, help): (&'static str, &'static str)| {
            let own = numbers.iter().filter(|(_, number)| number.0 == name);
            let sample = |(store, (_, label, value)): &(&String, MetricValue)| {
                let labels = std::iter::once(("store", store.to_string())).chain(label.clone()).collect();
                ProxySample { labels, value: *value }
            };
            let samples = own.map(sample).collect();
            ProxyMetric { name, help, is_counter: name.ends_with("_total"), samples }
        };
        HELP.into_iter().map(metric).filter(|metric| !metric.samples.is_empty()).collect()
    }
}

impl WatchedProxy {
    fn numbers(&self) -> Vec<MetricValue> {
        match self {
            Self::Cache(cache) => {
                let counts = cache.counts();
                let reads =
                    |from: &str, value| ("varve_cache_reads_total", Some(("from", from.to_owned())), value);
                vec![
                    reads("memory", counts.from_memory),
                    reads("look-aside", counts.from_look_aside),
                    reads("source", counts.from_source),
                    ("varve_cache_look_aside_failures_total", None, counts.look_aside_failures),
                ]
            }
            Self::Bounded(bounded) => vec![("varve_look_aside_bytes", None, bounded.used())],
            Self::Buffer(buffer) => {
                let status = buffer.status();
                vec![
                    ("varve_buffer_waiting_bytes", None, status.waiting_bytes),
                    ("varve_buffer_room_bytes", None, status.bytes_max),
                    ("varve_buffer_blocked_ways", None, status.blocked_ways),
                    ("varve_buffer_held_blocks", None, status.held_blocks),
                    ("varve_buffer_fault", None, status.fault.is_some().into()),
                    ("varve_buffer_sent_blocks_total", None, status.sent_blocks),
                    ("varve_buffer_sent_bytes_total", None, status.sent_bytes),
                    ("varve_buffer_refused_writes_total", None, status.refused_writes),
                ]
            }
            Self::Shards(shards) => {
                let numbers = |shard: crate::shards::ShardStatus| {
                    let label = Some(("shard", shard.name));
                    let failing = ("varve_shard_failing", label.clone(), shard.is_failing.into());
                    [failing, ("varve_shard_failures_total", label, shard.failures)]
                };
                shards.status().into_iter().flat_map(numbers).collect()
            }
            Self::ReadAhead(ahead) => {
                let counts = ahead.counts();
                vec![
                    ("varve_read_ahead_blocks_total", None, counts.ahead),
                    ("varve_read_ahead_hits_total", None, counts.hits),
                    ("varve_read_ahead_misses_total", None, counts.misses),
                ]
            }
        }
    }

    fn report(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Cache(cache) => {
                let counts = cache.counts();
                vec![
                    ("read from memory", counts.from_memory.to_string()),
                    ("read from the look-aside", counts.from_look_aside.to_string()),
                    ("read from the store behind", counts.from_source.to_string()),
                    ("failures of the look-aside", counts.look_aside_failures.to_string()),
                ]
            }
            Self::Shards(shards) => {
                let status = shards.status();
                let failing = status.iter().filter(|shard| shard.is_failing);
                let names: Vec<&str> = failing.map(|shard| shard.name.as_str()).collect();
                let mut lines = vec![
                    ("shards", status.len().to_string()),
                    ("shards whose last request failed", names.len().to_string()),
                ];
                lines.extend((!names.is_empty()).then(|| ("these", names.join(", "))));
                lines
            }
            Self::Bounded(bounded) => vec![("bytes", bounded.used().to_string())],
            Self::Buffer(buffer) => {
                let status = buffer.status();
                let mut lines = vec![
                    ("bytes waiting", status.waiting_bytes.to_string()),
                    ("capacity in bytes", status.bytes_max.to_string()),
                    ("blocks sent on", status.sent_blocks.to_string()),
                    ("bytes sent on", status.sent_bytes.to_string()),
                    ("blocks refused by the store behind", status.held_blocks.to_string()),
                    ("writes refused because it was full", status.refused_writes.to_string()),
                ];
                lines.extend(status.trouble.map(|trouble| ("store cannot be reached", trouble)));
                lines.extend(status.fault.map(|fault| ("no more writes are taken", fault)));
                lines
            }
            Self::ReadAhead(ahead) => {
                let counts = ahead.counts();
                vec![
                    ("blocks read ahead", counts.ahead.to_string()),
                    ("reads of read-ahead blocks", counts.hits.to_string()),
                    ("reads of other blocks", counts.misses.to_string()),
                ]
            }
        }
    }
}
