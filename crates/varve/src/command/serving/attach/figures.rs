//! The figures of an attached disk: as metrics, and as a summary at the end.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use serde_json::json;
use varve_attach::{AttachFigures, BlockSupply};

use super::newer_edition::EditionSerials;
use crate::invocation::Invocation;
use crate::{say, show};
use varve_daily::MetricsText;

/// Returns the page with the current values.
pub(super) fn page(source: &Weak<BlockSupply>, serials: &EditionSerials) -> String {
    let mut page = MetricsText::default();
    let Some(source) = source.upgrade() else { return String::new() };
    let figures = source.figures();
    let name = "varve_attach_blocks_total";
    page.head(name, "Accesses to blocks, by where the block came from.", "counter");
    for (origin, value) in [
        ("zeros", figures.zeros),
        ("memory", figures.memory),
        ("storage", figures.storage),
        ("waited", figures.waited),
        ("fetched", figures.fetched),
        ("failed", figures.failed),
    ] {
        page.labelled(name, &[("origin", origin)], value);
    }
    let name = "varve_attach_received_bytes_total";
    page.head(name, "Bytes of blocks that servers have sent, by what they were fetched for.", "counter");
    for (purpose, value) in
        [("reader", figures.reader_bytes), ("ahead", figures.ahead_bytes), ("fill", figures.fill_bytes)]
    {
        page.labelled(name, &[("purpose", purpose)], value);
    }
    page.counter(
        "varve_attach_falsified_total",
        "Blocks that a server has sent with wrong bytes. They were not used.",
        figures.falsified,
    );
    page.counter_of_seconds(
        "varve_attach_opening_seconds_total",
        "The time of all threads together to unpack blocks, and to check those that servers have sent.",
        figures.opening,
    );
    page.gauge("varve_attach_edition", "The number of the attached edition.", serials.attached);
    page.gauge(
        "varve_attach_newest_edition",
        "The number of the newest edition that was seen.",
        serials.newest.load(Ordering::Relaxed),
    );
    if let Some(cache) = figures.cache {
        page.gauge("varve_attach_cache_blocks", "Blocks in the cache on disk.", cache.blocks);
        page.gauge("varve_attach_cache_bytes", "Bytes of the cache on disk.", cache.bytes);
        page.counter(
            "varve_attach_cache_damaged_total",
            "Blocks of the cache on disk that were found damaged.",
            cache.damaged,
        );
    }
    page.into_text()
}

/// Prints the figures at the end.
pub(super) fn tell(invocation: &Invocation, figures: &AttachFigures) {
    let received = figures.reader_bytes + figures.ahead_bytes + figures.fill_bytes;
    if invocation.json {
        let fields = json!({
            "zeros": figures.zeros, "memory": figures.memory, "storage": figures.storage,
            "waited": figures.waited, "fetched": figures.fetched, "failed": figures.failed,
            "received_bytes": received, "falsified": figures.falsified,
            "opening_seconds": figures.opening.as_secs_f64(),
            "cache_damaged": figures.cache.map(|cache| cache.damaged),
        });
        return say::record("detached", fields);
    }
    if invocation.quiet {
        return;
    }
    let fetched = figures.fetched + figures.waited;
    say!(
        "blocks: {} from memory, {} from the cache, {fetched} fetched; {} received",
        figures.memory,
        figures.storage,
        show::bytes(received)
    );
    if figures.falsified > 0 {
        say!("{} refused", show::count(figures.falsified, "falsified block"));
    }
    if figures.failed > 0 {
        say!("{} failed", show::count(figures.failed, "read"));
    }
}
