//! The catalog roots that the log's pages name.

use varve_block::{BlockName, BlockType};
use varve_log::{ArenaId, ArenaState, DirectoryPage, OpenLogError};

use super::Vault;

/// The root of a catalog, as a directory page names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogRoot {
    pub name: BlockName,
    /// True if the writer could read the root before this one, so that this root leads to every
    /// earlier snapshot.
    pub is_final: bool,
}

impl Vault {
    /// Returns all catalog roots that directory pages name, newest first. Skips unreadable pages.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub(crate) fn catalog_roots(&self) -> Result<Vec<CatalogRoot>, OpenLogError> {
        let arenas = self.log.arenas()?.into_iter().rev();
        Ok(arenas.flat_map(|id| self.catalog_roots_of(id)).collect())
    }

    /// Returns the roots from which a store that is opened now reads its catalog, oldest first: the
    /// newest one of a writer that could read its predecessor, and all roots after it. Unlike
    /// [`Store::catalogs`], it reads the log, and ignores what this session has seen.
    ///
    /// # Errors
    /// As for [`Store::catalog_roots`].
    pub(crate) fn newest_catalog_roots(&self) -> Result<Vec<BlockName>, OpenLogError> {
        let mut names = Vec::new();
        for id in self.log.arenas()?.into_iter().rev() {
            let roots = self.catalog_roots_of(id);
            let last = roots.iter().position(|root| root.is_final);
            names.extend(roots.iter().take(last.map_or(roots.len(), |last| last + 1)).map(|root| root.name));
            if last.is_some() {
                break;
            }
        }
        names.reverse();
        Ok(names)
    }

    /// Returns the roots that the pages of one arena name, newest first.
    fn catalog_roots_of(&self, id: ArenaId) -> Vec<CatalogRoot> {
        let Ok(arena) = self.log.open_arena(id) else { return Vec::new() };
        let pages: Vec<_> = match self.log.state(&arena) {
            Ok(ArenaState::Sealed { pages, .. }) => {
                pages.iter().filter_map(|row| self.log.read_page(&arena, row).ok()).collect()
            }
            _ => match self.log.scan(&arena) {
                Ok(found) => found.pages.into_iter().map(|(_, page)| page).collect(),
                Err(_) => return Vec::new(),
            },
        };
        let of_page = |page: &DirectoryPage| -> Vec<_> {
            let blocks: Vec<_> = page.blocks().map(|block| block.name).collect();
            blocks.into_iter().rev().filter(|name| name.block_type == BlockType::CATALOG).collect()
        };
        let is_final = !arena.header().is_write_only();
        let names = pages.iter().rev().flat_map(of_page);
        names.map(|name| CatalogRoot { name, is_final }).collect()
    }
}
