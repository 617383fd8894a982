//! The settings of the page.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::tz::TimeZone;
use varve_archive::SnapshotList;
use varve_block::BlockStore;
use varve_serve::TlsIdentity;
use varve_world::{Clock, Random, Workers};

use crate::gate::password::PasswordHash;
use crate::state::served_store::ServedStore;

/// The archive that the page shows, and the world around it.
pub struct WebSettings {
    pub address: SocketAddr,
    /// Other machines may connect.
    pub is_exposed: bool,
    /// Names of this machine that browsers may use, besides its addresses and `localhost`.
    pub host_names: Vec<String>,
    pub password: Option<PasswordHash>,
    /// With it, the page is served by HTTPS.
    pub tls: Option<TlsIdentity>,
    pub snapshots: Box<dyn SnapshotList>,
    /// `None` for an archive at a server, whose state is not known here.
    pub store: Option<ServedStore>,
    /// The store as commands name it, for those that the page shows.
    pub store_name: Option<PathBuf>,
    pub blocks: Arc<dyn BlockStore>,
    pub workers: Arc<dyn Workers>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// The time zone of days.
    pub zone: TimeZone,
}
