//! The copies of each snapshot, as the last replications and verifications left them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use varve_archive::Snapshot;
use varve_daily::{CopiedSnapshot, CopyRecord, usual_replicas};
use varve_session::target;
use varve_store::Vault;

use crate::{moment, show};

/// The known copies of a store.
pub(super) struct ListedCopies {
    record: CopyRecord,
    /// The names of the configuration, by address.
    names: BTreeMap<String, String>,
}

impl ListedCopies {
    /// Reads the record of a store. Snapshots at a server have none.
    pub(super) fn read(vault: Option<&Vault>) -> Self {
        let record = vault.map(CopyRecord::read).unwrap_or_default();
        let replicas = if record.copies().next().is_some() { usual_replicas() } else { Vec::new() };
        let names = replicas.into_iter().map(|one| (target::shown(&one.at), one.name)).collect();
        Self { record, names }
    }

    /// Names the copies that hold a snapshot. Empty only if the store has no copies.
    pub(super) fn text(&self, snapshot: &Snapshot) -> String {
        let holding = self.record.copies().filter_map(|(address, copy)| {
            let known = copy.snapshot(&snapshot.id)?;
            let name = show::name(self.name(address).as_bytes());
            Some(match known {
                _ if copy.is_damaged => format!("{name} (damaged)"),
                CopiedSnapshot { read: Some(read), .. } => {
                    format!("{name} (read {})", moment::show_day(read))
                }
                CopiedSnapshot { verified: Some(time), .. } => {
                    format!("{name} (verified {})", moment::show_day(time))
                }
                _ => name,
            })
        });
        let holding = holding.collect::<Vec<_>>().join(", ");
        match self.record.copies().next() {
            Some(_) if holding.is_empty() => "none".to_owned(),
            _ => holding,
        }
    }

    /// Lists the copies that hold a snapshot for programs.
    pub(super) fn json(&self, snapshot: &Snapshot) -> Value {
        let holding = self.record.copies().filter_map(|(address, copy)| {
            let known = copy.snapshot(&snapshot.id)?;
            Some(json!({
                "address": address,
                "name": self.names.get(address),
                "verified": known.verified.map(moment::rfc3339),
                "read": known.read.map(moment::rfc3339),
                "damaged": copy.is_damaged,
            }))
        });
        holding.collect()
    }

    /// Returns the name in the configuration, or the last part of the address.
    fn name<'a>(&'a self, address: &'a str) -> &'a str {
        let last = || Path::new(address).file_name().and_then(|name| name.to_str());
        self.names.get(address).map(String::as_str).or_else(last).unwrap_or(address)
    }
}
