//! The front end for Venti's protocol.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use varve_block::BlockStore;
use varve_serve::venti::{
    InheritedSockets, ListenAccess, ListenAddress, ServiceState, StartError, VentiServer, VentiSettings,
};
use varve_store::CandidateCounts;

use super::{FrontEnd, memory};
use crate::arguments::ServeArgs;

/// A server whose counters may be read elsewhere at the same time.
pub(super) struct VentiFrontEnd(pub(super) Arc<VentiServer>);

impl FrontEnd for VentiFrontEnd {
    fn addresses(&self) -> Vec<String> {
        let address = |(address, access): &(varve_venti::Address, ListenAccess)| match access {
            ListenAccess::ReadWrite => address.to_string(),
            ListenAccess::ReadOnly => format!("{address} (read-only)"),
        };
        self.0.addresses().iter().map(address).collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        if let Some(server) = Arc::into_inner(self.0) {
            server.drain();
        }
        Ok(())
    }
}

/// Returns the settings for its clients.
pub(super) fn settings(args: &ServeArgs) -> Result<VentiSettings> {
    let patience = args.venti_patience;
    Ok(VentiSettings {
        clients_max: args.venti_clients as usize,
        block_bytes_max: args.venti_block_size,
        client_bytes: args.venti_room.0,
        all_clients_bytes: args.venti_room.1,
        recent_bytes: memory(args),
        hello_timeout: Duration::from_secs(patience.hello),
        partial_timeout: Duration::from_secs(patience.message),
        idle_timeout: (patience.idle > 0).then(|| Duration::from_secs(patience.idle)),
        send_timeout: Duration::from_secs(patience.answer),
        drain_timeout: Duration::from_secs(patience.end),
        sync_after: Duration::from_secs(args.sync_after.into()),
        on_read_only: |_| super::tell(ServiceState::Degraded),
        tls: args.venti_tls.as_ref().map(super::identity).transpose()?,
        ..VentiSettings::default()
    })
}

/// Starts the server if it has an address.
pub(super) fn start(
    args: &ServeArgs,
    inherited: &mut InheritedSockets,
    blocks: Arc<dyn BlockStore>,
    settings: VentiSettings,
) -> Result<Option<VentiServer>> {
    let at = |access: ListenAccess| move |at: &_| ListenAddress { at: Clone::clone(at), access };
    let writable = args.venti.iter().map(at(ListenAccess::ReadWrite));
    let wanted: Vec<ListenAddress> =
        writable.chain(args.venti_read_only.iter().map(at(ListenAccess::ReadOnly))).collect();
    if wanted.is_empty() {
        return Ok(None);
    }
    let started = VentiServer::start(&wanted, args.expose, inherited, blocks, settings);
    Ok(Some(started.map_err(|error| match error {
        StartError::Listen(error) => super::not_listening(error),
        error => error.into(),
    })?))
}

/// Formats the counters of the server, one on each line.
pub(super) fn counts(server: &VentiServer) -> String {
    let counts = server.counts();
    let mut text = String::new();
    for (what, value) in [
        ("clients", counts.clients),
        ("clients accepted", counts.clients_taken),
        ("clients refused", counts.clients_refused),
        ("reads", counts.reads),
        ("bytes read", counts.read_bytes),
        ("reads from the server's memory", counts.reads_from_memory),
        ("reads of missing blocks", counts.misses),
        ("writes", counts.writes),
        ("bytes written", counts.written_bytes),
        ("syncs", counts.syncs),
        ("syncs by the server itself", counts.flushes),
        ("errors", counts.errors),
        ("collisions", counts.collisions),
        ("read-only after a fault", u64::from(counts.is_degraded)),
    ] {
        let _ = writeln!(text, "{what:<28}{value:>16}");
    }
    text
}

/// Formats memventi's first histogram: the buckets of the index by their fill.
pub(super) fn bucket_histogram(stats: Option<&varve_index::IndexStats>) -> String {
    let Some(stats) = stats else {
        return "the index is on disk: `varve stats` shows its fill level\n".into();
    };
    let mut text = String::from("buckets of the index, by fill level:\n");
    for (number, count) in stats.fills.iter().enumerate().filter(|(_, count)| **count > 0) {
        let _ = writeln!(text, "  {:>3} to {:>3} % {count:>14}", 5 * number, 5 * (number + 1));
    }
    let _ =
        writeln!(text, "  entries: {}, slots of the largest: {}", stats.block_count, stats.segment_slots_max);
    text
}

/// Formats memventi's second histogram: the look-ups by their candidates.
pub(super) fn lookup_histogram(counts: &CandidateCounts) -> String {
    let mut text = String::from("look-ups in the index, by number of candidates:\n");
    let last = counts.len() - 1;
    for (number, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let more = if number == last { "+" } else { " " };
        let _ = writeln!(text, "  {number:>3}{more} {count:>22}");
    }
    let _ = writeln!(text, "  look-ups in all: {}", counts.iter().sum::<u64>());
    text
}
