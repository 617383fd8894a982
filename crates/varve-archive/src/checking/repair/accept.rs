//! Saying that what is lost may be forgotten: first a plan with a name, then that plan and no other.

use varve_store::{Permission, RepairError, Store};

use super::RepairArchiveError;
use crate::catalog::catalog_root::{Catalog, LoadCatalogError};
use crate::catalog::losses::Losses;
use crate::checking::verify::VerifyError;

/// How many digits the name of a plan has.
const NAME_DIGITS: usize = 8;

/// What would be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptPlan {
    /// What is lost, and was not accepted earlier.
    pub losses: Losses,
    /// Names these losses and no others.
    pub name: String,
}

/// Why nothing was accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptLossError {
    /// The catalog could not be read: it may list more.
    #[error("what is lost cannot be told")]
    Catalog(#[from] LoadCatalogError),
    /// Something else is lost by now than the plan says.
    #[error("another plan is called {wanted}: what is lost now is called {actual}")]
    OtherPlan {
        /// The name that was given.
        wanted: String,
        /// The name of what is lost now.
        actual: String,
    },
    /// It could not be found out what is back, or not be written down.
    #[error(transparent)]
    Repair(#[from] RepairArchiveError),
}

/// What is lost and was not accepted yet.
///
/// # Errors
/// [`AcceptLossError`].
pub fn plan_to_accept(store: &Store) -> Result<AcceptPlan, AcceptLossError> {
    let denied = |error| RepairArchiveError::from(RepairError::from(error));
    store.role().require(Permission::Read).map_err(denied)?;
    let losses = noted(store, &Catalog::load_all(store, &store.catalogs())?)?;
    Ok(AcceptPlan { name: name_of(store, &losses), losses: losses.unaccepted() })
}

/// Accepts what is lost, if it is what the plan of this name says. The list keeps it, with the time. Returns what was accepted.
///
/// # Errors
/// [`AcceptLossError`]; what is lost is noted as it was.
pub fn accept_losses(store: &Store, name: &str) -> Result<Losses, AcceptLossError> {
    let denied = |error| RepairArchiveError::from(RepairError::from(error));
    store.role().require(Permission::Destroy).map_err(denied)?;
    let mut catalog = Catalog::load_all(store, &store.catalogs())?.require_all()?;
    let mut losses = noted(store, &catalog)?;
    let actual = name_of(store, &losses);
    if name != actual {
        return Err(AcceptLossError::OtherPlan { wanted: name.into(), actual });
    }
    let accepted = losses.unaccepted();
    losses.accept(store.world().clock.now());
    let saved = catalog.set_losses(store, &losses).and_then(|_| catalog.write_again(store));
    saved.map_err(RepairArchiveError::from)?;
    Ok(accepted)
}

/// What is noted, but for what can be read again.
fn noted(store: &Store, catalog: &Catalog) -> Result<Losses, RepairArchiveError> {
    let mut losses = catalog.losses(store);
    losses.drop_readable(store).map_err(VerifyError::from)?;
    Ok(losses)
}

fn name_of(store: &Store, losses: &Losses) -> String {
    let mut hasher = blake3::Hasher::new();
    let open = losses.unaccepted();
    for block in open.blocks() {
        hasher.update(block.name.score.as_bytes()).update(&[block.name.block_type.to_byte()]);
    }
    for place in open.places() {
        hasher.update(format!("{:?}", place.id).as_bytes());
    }
    hasher.update(&[open.is_incomplete().into()]).update(&store.config().id);
    let mut name = hasher.finalize().to_hex().to_string();
    name.truncate(NAME_DIGITS);
    name
}
