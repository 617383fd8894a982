//! Checks: reads the store, and reports what is wrong with it.
//!
//! It owns no state. Always true: a finding is reported only if it is found twice, since a writer
//! may be at work. Data of a newer program is never a finding: it ends the check with an error.

mod arena;
mod audit_record;
mod clumps;
mod loss;
mod order;
mod parity;
mod suspects;

pub use arena::StartedCheck;
pub use audit_record::{AuditRecord, AuditShare};
pub use clumps::ClumpGroup;
pub use loss::{ArenaLoss, LostEnd, LostRange, Witness};

use std::sync::Arc;

use varve_log::Log;
use varve_store::{Store, Vault};

/// Checks a store.
#[derive(Clone, Copy)]
pub struct Checker<'a> {
    store: &'a Store,
}

impl<'a> Checker<'a> {
    /// Makes a checker of this store.
    #[must_use]
    pub fn of(store: &'a Store) -> Self {
        Self { store }
    }

    fn vault(&self) -> &'a Vault {
        self.store.vault()
    }

    fn log(&self) -> &'a Arc<Log> {
        self.store.vault().log()
    }
}
