//! The promises of a configuration, judged from its archives.

mod metrics;
mod metrics_text;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use varve_block::with_causes;
use varve_session::{CommandSession, StoreLocation, UserInterface};
use varve_world::{Clock, RealClock, RealStorage, Storage};

pub use self::metrics::metrics_page;
pub use self::metrics_text::MetricsText;
use crate::config::ConfiguredStore;
use crate::jobs::{Histories, empty_sources, overdue};
use crate::judging::{
    JudgeContext, OpenStoreView, StatusReport, StoreView, WriteOnlyView, judge_store, unread_files,
};
use crate::loaded_config::LoadedConfig;
use crate::state::StateFolder;
use crate::stores::{ask_clocks, look_at_replicas, open_store};

/// Judges all promises of the named configuration, or of the usual one; `None` if there is none.
///
/// # Errors
/// When the configuration cannot be read.
pub fn judge_named(named: Option<&Path>, frontend: Arc<dyn UserInterface>) -> Result<Option<StatusReport>> {
    let loaded = LoadedConfig::load_if_there(named, frontend)?;
    Ok(loaded.map(|loaded| judge_all(&loaded, &StateFolder::to_read(&loaded.state).histories())))
}

/// Judges all promises of a configuration. `histories` has the state of replicas that are away now,
/// as earlier runs saw it.
#[must_use]
pub fn judge_all(loaded: &LoadedConfig, histories: &Histories) -> StatusReport {
    let context = JudgeContext { config: &loaded.config, host: &loaded.host, now: RealClock.now() };
    let mut report = StatusReport::default();
    for (name, store) in &loaded.config.stores {
        report.merge(judge_store(context, name, &view(loaded, histories, (name, store))));
    }
    report
}

/// Looks at a store and its surroundings.
fn view(loaded: &LoadedConfig, histories: &Histories, (name, store): (&str, &ConfiguredStore)) -> StoreView {
    let clocks = ask_clocks(loaded, name);
    let unlooked_for = histories.unlooked_for(loaded, RealClock.now());
    let opened = loaded.session(store).and_then(|session| {
        let found = open_store(&session, store)?;
        Ok((session, found))
    });
    let (session, archive, facts) = match opened {
        Ok((session, Some((archive, facts)))) => (session, archive, facts),
        Ok((_, None)) => {
            let emptied_sources = histories.emptied_sources(&loaded.config);
            let server_clocks = clocks.wait();
            return StoreView::WriteOnly(WriteOnlyView { emptied_sources, server_clocks, unlooked_for });
        }
        Err(error) => return StoreView::Closed { error: with_causes(error.as_ref()) },
    };
    // Replicas are opened only to be judged.
    let is_judged = loaded.config.promises.replica_within.is_some();
    let own = loaded.config.replicas.iter().filter(|(_, replica)| is_judged && replica.of == name);
    let replicas = look_at_replicas(&session, |replica| histories.replica_state(replica), own);
    let unread = unread_files(&loaded.config, &loaded.host, name, &archive, &facts);
    let (free_bytes, empty_sources) = (free_bytes(&session), empty_sources(&loaded.config));
    let limit = loaded.config.promises.reclaimed_within;
    let then = limit.map(|limit| RealClock.now().minus(limit));
    let overdue = then.map(|then| overdue(loaded, name, &facts, then)).unwrap_or_default();
    let server_clocks = clocks.wait();
    StoreView::Open(Box::new(OpenStoreView {
        facts,
        unread,
        free_bytes,
        empty_sources,
        overdue,
        server_clocks,
        unlooked_for,
        replicas,
    }))
}

/// Returns the free bytes of the store's file system; `None` at a server, and if the file system
/// does not tell.
fn free_bytes(session: &CommandSession) -> Option<Result<u64, String>> {
    let Ok(StoreLocation::Folder(folder)) = session.home() else { return None };
    let space = RealStorage::new(&folder).free_space().transpose()?;
    Some(space.map(|space| space.free_bytes).map_err(|error| error.to_string()))
}
