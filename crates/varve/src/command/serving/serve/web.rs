//! The web page as a front end.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use varve_archive::SnapshotList;
use varve_block::BlockStore;
use varve_web::{PasswordHash, ServedStore, WebServer, WebSettings};
use varve_world::{RealClock, RealRandom, RealWorkers};

use super::{FrontEnd, identity, not_listening};
use crate::arguments::ServeArgs;
use crate::moment;

/// The page, which ends when it is dropped.
struct WebFrontEnd(WebServer);

impl FrontEnd for WebFrontEnd {
    fn addresses(&self) -> Vec<String> {
        vec![self.0.url()]
    }

    fn login_link(&self) -> Result<Option<String>> {
        let link = self.0.links().issue().context("cannot make a link that logs in")?;
        Ok(Some(format!("{}{link}", self.0.url())))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Starts the page, if it is requested. `store_name` is the store as a command in any folder names
/// it.
pub(super) fn start(
    args: &ServeArgs,
    store: Option<ServedStore>,
    store_name: Option<PathBuf>,
    snapshots: impl FnOnce() -> Result<Box<dyn SnapshotList>>,
    blocks: &Arc<dyn BlockStore>,
) -> Result<Option<Box<dyn FrontEnd>>> {
    let Some(address) = args.http else { return Ok(None) };
    let password = args.http_password.as_deref().map(PasswordHash::read).transpose()?;
    let server = varve_web::serve(WebSettings {
        address,
        is_exposed: args.expose,
        host_names: args.http_name.clone(),
        password,
        tls: args.http_tls.as_ref().map(identity).transpose()?,
        snapshots: snapshots()?,
        store,
        store_name,
        blocks: Arc::clone(blocks),
        workers: Arc::new(RealWorkers::one_a_core()),
        clock: Arc::new(RealClock),
        random: Arc::new(RealRandom),
        zone: moment::zone(),
    });
    Ok(Some(Box::new(WebFrontEnd(server.map_err(not_listening)?))))
}
