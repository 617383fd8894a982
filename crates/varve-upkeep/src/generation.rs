//! The generation of an arena's successor.

use std::io;

use varve_log::{ArenaId, OpenedArena};
use varve_store::{Intake, Store};

/// Returns a generation that this arena never had. An unreadable arena had a generation too, and
/// there may be parity of it.
///
/// # Errors
/// When the parity files cannot be listed.
pub(crate) fn next_generation(
    store: &Store,
    intake: &Intake,
    id: ArenaId,
    arena: Option<&OpenedArena>,
) -> io::Result<u32> {
    let of_parity = store.vault().parity().list()?;
    let of_parity = of_parity.into_iter().filter(|(of, _)| *of == id).map(|(_, generation)| generation);
    let of_seal = intake.known_seal(id).map(|seal| seal.generation);
    let of_header = arena.map(|arena| arena.header().generation);
    let last = of_parity.chain(of_seal).chain(of_header).max();
    Ok(last.unwrap_or_default().saturating_add(1))
}
