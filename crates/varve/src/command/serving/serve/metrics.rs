//! The metrics of a server in the text format of Prometheus.

use std::sync::{Arc, Weak};

use varve_proxy::WatchedProxies;
use varve_serve::venti::VentiServer;
use varve_store::Store;

use varve_daily::MetricsText;

/// Returns the page with the current values.
pub(super) fn page(store: &Weak<Store>, venti: &Weak<VentiServer>) -> String {
    let mut page = MetricsText::default();
    if let Some(server) = Weak::upgrade(venti) {
        venti_numbers(&server, &mut page);
    }
    if let Some(store) = Weak::upgrade(store) {
        index_numbers(&store, &mut page);
    }
    page.into_text()
}

/// Returns the page of a server with proxies.
pub(super) fn proxies_page(watched: &WatchedProxies, venti: &Weak<VentiServer>) -> String {
    let mut page = MetricsText::default();
    if let Some(server) = Weak::upgrade(venti) {
        venti_numbers(&server, &mut page);
    }
    for metric in watched.metrics() {
        page.head(metric.name, metric.help, if metric.is_counter { "counter" } else { "gauge" });
        for sample in metric.samples {
            let labels: Vec<(&str, &str)> =
                sample.labels.iter().map(|(label, of)| (*label, of.as_str())).collect();
            page.labelled(metric.name, &labels, sample.value);
        }
    }
    page.into_text()
}

fn venti_numbers(server: &Arc<VentiServer>, page: &mut MetricsText) {
    let counts = server.counts();
    page.gauge("varve_venti_clients", "Connected clients.", counts.clients);
    page.gauge(
        "varve_venti_read_only",
        "1 if a write to the store failed, so that only reads are served.",
        u64::from(counts.is_degraded),
    );
    for (name, help, value) in [
        ("varve_venti_clients_total", "Clients that were accepted.", counts.clients_taken),
        ("varve_venti_clients_refused_total", "Clients that were refused.", counts.clients_refused),
        ("varve_venti_reads_total", "Blocks that were read.", counts.reads),
        ("varve_venti_read_bytes_total", "Bytes of blocks that were read.", counts.read_bytes),
        (
            "varve_venti_reads_from_memory_total",
            "Blocks that were read from the server's own memory, without a cache or the store.",
            counts.reads_from_memory,
        ),
        ("varve_venti_misses_total", "Reads of blocks that do not exist.", counts.misses),
        ("varve_venti_writes_total", "Blocks that were written, including known ones.", counts.writes),
        ("varve_venti_written_bytes_total", "Bytes of blocks that were written.", counts.written_bytes),
        ("varve_venti_syncs_total", "Syncs that were answered.", counts.syncs),
        ("varve_venti_flushes_total", "Syncs by the server itself.", counts.flushes),
        (
            "varve_venti_errors_total",
            "Requests that were answered with an error, except misses.",
            counts.errors,
        ),
        (
            "varve_venti_collisions_total",
            "Blocks that were refused because another block has their score.",
            counts.collisions,
        ),
    ] {
        page.counter(name, help, value);
    }
}

/// Adds the metrics of the index, among them memventi's two histograms.
fn index_numbers(store: &Store, page: &mut MetricsText) {
    if let Some(index) = store.memory_index_stats() {
        page.gauge("varve_index_blocks", "Blocks in the index.", index.block_count);
        page.gauge("varve_index_memory_bytes", "Memory of the index.", index.memory_bytes);
        page.head("varve_index_buckets", "Buckets of the index, by how full they are in per cent.", "gauge");
        for (number, count) in index.fills.iter().enumerate() {
            let fill = format!("{}-{}", 5 * number, 5 * (number + 1));
            page.labelled("varve_index_buckets", &[("fill", &fill)], count);
        }
    }
    let candidates = store.candidates_per_lookup();
    let name = "varve_index_lookups_total";
    page.head(name, "Look-ups in the index, by how many candidates it proposed.", "counter");
    let last = candidates.len() - 1;
    for (number, count) in candidates.iter().enumerate() {
        let label = if number == last { format!("{number}+") } else { number.to_string() };
        page.labelled(name, &[("candidates", &label)], count);
    }
}
