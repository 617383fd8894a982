//! An archived folder: its nodes are found, listed, read and compared.

pub(crate) mod difference;
pub(crate) mod files;
pub(crate) mod list;
pub(crate) mod lookup;
pub(crate) mod pages;
