//! The file of a trace that a recorder writes. It is good at any moment: without its end, it is a
//! trace that was cut.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use varve_archive::{Archive, SnapshotHome};
use varve_proxy::RecordingStore;
use varve_session::{StoreLocation, UsageError};

use crate::invocation::Invocation;

/// Makes the new file of a trace, which only its owner can read.
pub fn create(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(Box::new(file))
}

/// The name of this program in the header of a trace.
pub fn maker() -> String {
    format!("varve {}", env!("CARGO_PKG_VERSION"))
}

/// Records the work of later snapshots as a trace, in a new file. The recording shares the blocks,
/// so it must end before the archive is closed.
pub fn record(
    invocation: &Invocation,
    archive: &mut Archive<dyn SnapshotHome>,
    file: &Path,
) -> Result<Arc<RecordingStore>> {
    if matches!(invocation.session.home()?, StoreLocation::Venti(_)) {
        let text = "--trace records the work of a store on this machine: at a Venti server, record in a proxy before it (docs/guide/venti.md)";
        bail!(UsageError(text.into()));
    }
    let output = create(file).with_context(|| format!("cannot make {}", file.display()))?;
    let home = archive.home();
    let (random, clock) = (&home.world().random, Arc::clone(&home.world().clock));
    let recording = Arc::new(RecordingStore::new(home.blocks(), output, &maker(), None, &**random, clock)?);
    archive.set_front(Arc::clone(&recording) as _);
    Ok(recording)
}
