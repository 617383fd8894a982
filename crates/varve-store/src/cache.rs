//! The sizes of the caches of a store.

/// The most memory for data that was read, in bytes. More than this is in use while blocks are
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBytes {
    /// For opened frames.
    pub frames: u64,
    /// For the maps of clumps. A map takes a few thousandths of its clump.
    pub clump_maps: u64,
    /// For directory pages.
    pub pages: u64,
    /// For the lists of the directory pages of arenas.
    pub page_lists: u64,
}

impl CacheBytes {
    /// Divides `bytes` among the caches.
    #[must_use]
    pub fn sharing(bytes: u64) -> Self {
        let (contents, directories) = (bytes - bytes / 4, bytes / 4);
        Self {
            frames: contents - contents / 8,
            clump_maps: contents / 8,
            pages: directories - directories / 4,
            page_lists: directories / 4,
        }
    }
}

impl Default for CacheBytes {
    /// The sizes for a machine with one store.
    fn default() -> Self {
        Self { frames: 96 << 20, clump_maps: 16 << 20, pages: 32 << 20, page_lists: 8 << 20 }
    }
}
