//! Archives of other programs in a store of SHA-1 scores: what vac and vbackup wrote, looked into and restored as a snapshot is; and
//! folders archived so that vac's tools read them.
//!
//! ```text
//! vac:SCORE ──▶ root ─┬─ vac: three entries ──▶ VacFiles: folders of source and meta
//!                     └─ ext2, ffs, hfs, file: one entry ──▶ an image, byte for byte
//! ```
//!
//! What must always be true: whatever such an archive says, every name is one component of a path, a walk holds the names of one
//! folder a level, and what cannot be read hides nothing but itself.

mod files;
mod line;
mod node;
mod open;
mod owners;
mod write;

pub use files::VacFiles;
pub use line::{ParseVacLineError, VacLine};
pub use open::{OpenVacError, VacArchive, VacContent};
pub use owners::OwnerNames;
pub(crate) use write::VacTreeWriter;
pub use write::{ArchivedVac, VacOptions};
