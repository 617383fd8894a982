//! Archives of other programs in a store with SHA-1 scores. Archives of vac and vbackup are listed
//! and restored like snapshots, and folders are archived in a form that vac's tools read.
//!
//! ```text
//! vac:SCORE ──▶ root ─┬─ vac: three entries ──▶ VacFiles: folders of source and meta
//!                     └─ ext2, ffs, hfs, file: one entry ──▶ an image, byte for byte
//! ```
//!
//! Invariants, whatever such an archive contains: every name is one path component. A walk holds
//! the names of one folder per level. Unreadable data affects nothing else.

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
