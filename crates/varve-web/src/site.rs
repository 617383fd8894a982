//! The page and the archive behind it.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use axum::http::Uri;
use jiff::tz::TimeZone;
use tokio::sync::Semaphore;
use varve_block::BlockStore;
use varve_world::{Clock, Timestamp, Workers};

use crate::archive::known_names::KnownNames;
use crate::archive::open_files::FileOpener;
use crate::archive::snapshot_view::{FollowedSnapshots, SnapshotView};
use crate::gate::Gate;
use crate::gate::sessions::Session;
use crate::settings::WebSettings;
use crate::state::SiteState;

/// Pages that are made at a time. Further requests wait.
const PAGES_MAX: usize = 8;
/// Downloads at a time. Further ones are refused.
const DOWNLOADS_MAX: usize = 16;

/// The page and the archive behind it.
pub(crate) struct Site {
    pub(crate) gate: Gate,
    pub(crate) snapshots: FollowedSnapshots,
    pub(crate) opener: Arc<FileOpener>,
    pub(crate) names: Arc<KnownNames>,
    /// For downloads, which read each block once.
    pub(crate) blocks: Arc<dyn BlockStore>,
    pub(crate) workers: Arc<dyn Workers>,
    pub(crate) state: Option<SiteState>,
    pub(crate) zone: TimeZone,
    /// The store as commands name it.
    pub(crate) store_name: Option<Vec<u8>>,
    pub(crate) download_slots: Arc<Semaphore>,
    pub(crate) page_slots: Semaphore,
    clock: Arc<dyn Clock>,
}

/// A request for a page.
pub(crate) struct PageRequest {
    pub(crate) site: Arc<Site>,
    pub(crate) view: Arc<SnapshotView>,
    pub(crate) session: Session,
    pub(crate) now: Timestamp,
    uri: Uri,
}

impl PageRequest {
    /// The part of the address behind a beginning, decoded.
    pub(crate) fn rest(&self, beginning: &str) -> Vec<u8> {
        let path = self.uri.path();
        crate::show::path_of_link(path.strip_prefix(beginning).unwrap_or_default())
    }

    /// A value of the address's query.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let query = self.uri.query()?;
        url::form_urlencoded::parse(query.as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }

    /// The bytes of a value that is a path, written as in addresses.
    pub(crate) fn path_value(&self, name: &str) -> Option<Vec<u8>> {
        let query = self.uri.query()?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| crate::show::path_of_link(value))
    }

    pub(crate) fn zone(&self) -> &TimeZone {
        &self.site.zone
    }
}

impl Site {
    pub(crate) fn new(gate: Gate, settings: WebSettings) -> Arc<Self> {
        let WebSettings { snapshots, blocks, workers, clock, zone, store, store_name, .. } = settings;
        let names = KnownNames::new(store.as_ref().map(|served| Arc::clone(&served.store)));
        let state = store.map(|store| SiteState::new(store, &clock));
        Arc::new(Self {
            gate,
            snapshots: FollowedSnapshots::new(snapshots),
            opener: Arc::new(FileOpener::new(Arc::clone(&blocks))),
            names,
            blocks,
            workers,
            state,
            zone,
            store_name: store_name.map(|name| name.into_os_string().into_vec()),
            download_slots: Arc::new(Semaphore::new(DOWNLOADS_MAX)),
            page_slots: Semaphore::new(PAGES_MAX),
            clock,
        })
    }

    pub(crate) fn request(self: &Arc<Self>, session: Session, uri: Uri) -> PageRequest {
        let view = self.snapshots.view();
        PageRequest { site: Arc::clone(self), view, session, now: self.clock.now(), uri }
    }
}
