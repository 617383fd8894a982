//! The marks of harmed files and folders on pages.

use std::sync::Arc;
use std::time::Duration;

use varve_archive::Snapshot;
use varve_content::NodeKind;

use crate::show;
use crate::site::PageRequest;
use crate::state::followed_state::KnownState;
use crate::state::known_harm::KnownHarm;

/// A page waits so long for the harm, which is known at once if no loss is.
const WAIT: Duration = Duration::from_millis(100);

/// The harm as far as it is known.
pub(crate) enum HarmMarks {
    /// No loss is known, or the archive is at a server.
    None,
    /// Losses are known, and the harm that they do is not.
    Unknown,
    Known(Arc<KnownHarm>, String),
}

impl HarmMarks {
    pub(crate) fn of(request: &PageRequest) -> Self {
        let Some(state) = &request.site.state else { return Self::None };
        let harm = state.harm.known_within(WAIT);
        match harm.as_deref() {
            Some(KnownState { value: Ok(None), .. }) => Self::None,
            Some(KnownState { value: Ok(Some(harm)), at }) => {
                Self::Known(Arc::clone(harm), show::minute(*at, request.zone()))
            }
            Some(KnownState { value: Err(_), .. }) | None => {
                let log = state.log.known();
                let log = log.as_ref().and_then(|known| known.value.as_ref().ok());
                let has_loss = |log: &crate::state::log_state::LogState| {
                    log.lost_block_count > 0 || log.arenas.iter().any(|arena| arena.is_damaged)
                };
                if log.is_some_and(has_loss) { Self::Unknown } else { Self::None }
            }
        }
    }

    /// The mark of a snapshot; empty if it is not harmed.
    pub(crate) fn of_snapshot(&self, snapshot: &Snapshot) -> String {
        match self {
            Self::None => String::new(),
            Self::Known(harm, _) if harm.has_looked_at(&snapshot.id) => {
                match harm.paths(&snapshot.id).len() as u64 {
                    0 => String::new(),
                    _ if harm.is_harmed(&snapshot.id, b"") => "harmed".into(),
                    count => show::count(count, "harmed file"),
                }
            }
            Self::Unknown | Self::Known(..) => "harm not known yet".into(),
        }
    }

    /// The mark of a name in a folder; empty if it is not harmed.
    pub(crate) fn of_name(&self, snapshot: &Snapshot, path: &[u8], kind: NodeKind) -> &'static str {
        let Self::Known(harm, _) = self else { return "" };
        match kind {
            NodeKind::Folder if harm.is_harmed(&snapshot.id, path) => "its list is harmed",
            NodeKind::Folder if harm.is_harmed_below(&snapshot.id, path) => "harmed files in it",
            NodeKind::Folder => "",
            _ if harm.is_harmed(&snapshot.id, path) => "harmed",
            _ => "",
        }
    }

    /// The warning on the page of a file, or of a place inside a disk.
    pub(crate) fn warning(&self, snapshot: &Snapshot, path: &[u8], is_in_disk: bool) -> Option<String> {
        let Self::Known(harm, at) = self else { return None };
        match is_in_disk {
            true if harm.is_in_harmed_file(&snapshot.id, path) => Some(format!(
                "Some bytes of this disk are lost in the store, as was known at {at}. Files in it may be harmed."
            )),
            false if harm.is_harmed(&snapshot.id, path) => Some(format!(
                "Some bytes are lost in the store, as was known at {at}. A download ends early, unless a copy of the store has them."
            )),
            _ => None,
        }
    }
}
