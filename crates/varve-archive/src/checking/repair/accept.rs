//! Accepts losses in two steps: first a plan with a name, then exactly that plan.

use varve_store::{Permission, Store};
use varve_upkeep::RepairError;

use super::RepairArchiveError;
use crate::catalog::catalog_root::Catalog;
use crate::catalog::losses::Losses;
use crate::catalog::root_record::LoadCatalogError;
use crate::checking::verify::VerifyError;

/// The number of digits in the name of a plan.
const NAME_DIGITS: usize = 8;

/// The losses that would be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptPlan {
    /// The losses that were not accepted earlier.
    pub losses: Losses,
    /// A name for exactly these losses.
    pub name: String,
}

/// Why no loss was accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptLossError {
    /// The catalog was unreadable, and may list more losses.
    #[error("the losses cannot be determined")]
    Catalog(#[from] LoadCatalogError),
    /// The losses are no longer those of the plan.
    #[error("the plan {wanted} is out of date: the plan for the present losses is called {actual}")]
    OtherPlan {
        /// The name that the caller gave.
        wanted: String,
        /// The name of the current losses.
        actual: String,
    },
    /// Checking for readable blocks failed, or writing the list failed.
    #[error("{0}")]
    Repair(#[from] RepairArchiveError),
}

/// Plans the acceptance of all losses that are not accepted yet.
///
/// # Errors
/// [`AcceptLossError`].
pub fn plan_to_accept(store: &Store) -> Result<AcceptPlan, AcceptLossError> {
    let denied = |error| RepairArchiveError::from(RepairError::from(error));
    store.role().require(Permission::Read).map_err(denied)?;
    let losses = noted(store, &Catalog::load_of(store, store)?)?;
    Ok(AcceptPlan { name: name_of(store, &losses), losses: losses.unaccepted() })
}

/// Accepts the losses, if they are those of the plan with this name. The list keeps them, with the
/// time. Returns the accepted losses.
///
/// # Errors
/// [`AcceptLossError`]; the list of losses is then unchanged.
pub fn accept_losses(store: &Store, name: &str) -> Result<Losses, AcceptLossError> {
    let denied = |error| RepairArchiveError::from(RepairError::from(error));
    store.role().require(Permission::Destroy).map_err(denied)?;
    let mut catalog = Catalog::load_of(store, store)?.require_all()?;
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

/// The recorded losses, without the blocks that are readable again.
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
