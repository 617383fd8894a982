//! Finds a node of a folder by number or name, whatever the size of the folder. Lists are read in
//! pages, and pages are cached.
//!
//! A list has no index, so it is read once from its beginning. The position and the first and last
//! name of each page are kept. The nodes are cached while there is room, and are read again from
//! those positions.
//!
//! The cache key of a page is the content of the folder, and not its path. A folder that is the
//! same in several snapshots is read once for all of them.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use varve_block::{BlockStore, to_usize};
use varve_tree::Entry;
use varve_world::{FixedHasher, weighted_cache};

use crate::records::node::Node;
use crate::records::node_list::{ListPlace, NodeList, ReadFolderError};
use varve_image::Xattr;

/// Nodes per page. The last page of a list may have fewer.
const PAGE_NODES: usize = 256;
/// Upper bound on the memory of cached nodes.
const PAGES_BYTES_MAX: u64 = 64 << 20;
/// Upper bound on the memory of the tables of pages.
const TABLES_BYTES_MAX: u64 = 16 << 20;

/// Consecutive nodes of a folder.
pub(super) struct NodePage {
    nodes: Vec<Node>,
    weight: u64,
}

/// The positions of the pages in the list of a folder.
pub(super) struct PageTable {
    starts: Vec<ListPlace>,
    /// The last name of each page.
    last_names: Vec<Vec<u8>>,
    node_count: u64,
    weight: u64,
}

#[derive(Clone)]
struct ByWeight;

impl Weighter<(Entry, u32), Arc<NodePage>> for ByWeight {
    fn weight(&self, _: &(Entry, u32), page: &Arc<NodePage>) -> u64 {
        page.weight
    }
}

impl Weighter<Entry, Arc<PageTable>> for ByWeight {
    fn weight(&self, _: &Entry, table: &Arc<PageTable>) -> u64 {
        table.weight
    }
}

/// A cache of folders, shared by all readers of the snapshots of one store. It takes at most about
/// 80 MiB.
pub struct FolderPages {
    pages: Cache<(Entry, u32), Arc<NodePage>, ByWeight, FixedHasher>,
    tables: Cache<Entry, Arc<PageTable>, ByWeight, FixedHasher>,
}

impl Default for FolderPages {
    fn default() -> Self {
        Self {
            pages: weighted_cache(PAGES_BYTES_MAX, 32 << 10, ByWeight),
            tables: weighted_cache(TABLES_BYTES_MAX, 256, ByWeight),
        }
    }
}

/// A node in a page. The page stays in memory as long as this value.
pub(crate) struct NodeInPage {
    page: Arc<NodePage>,
    place: usize,
}

impl NodeInPage {
    /// The node. `None` only if the page has no such position.
    pub(crate) fn get(&self) -> Option<&Node> {
        self.page.nodes.get(self.place)
    }
}

impl FolderPages {
    /// Passes the nodes of a folder to `visit`, beginning with number `first`, each with its
    /// number, until `visit` returns false. Nodes before an error have been passed.
    pub(crate) fn visit(
        &self,
        blocks: &dyn BlockStore,
        folder: &Entry,
        first: u64,
        visit: &mut dyn FnMut(u64, &Node) -> bool,
    ) -> Result<(), ReadFolderError> {
        let (table, damage) = self.table(blocks, folder);
        let mut number = first;
        while number < table.node_count {
            let (page_number, skipped) = page_of(number);
            let page = self.page(blocks, folder, &table, page_number)?;
            for node in page.nodes.iter().skip(skipped) {
                if !visit(number, node) {
                    return Ok(());
                }
                number = number.saturating_add(1);
            }
            // A page that is shorter than the table claims would make this loop endless.
            if page.nodes.len() <= skipped {
                break;
            }
        }
        damage.map_or(Ok(()), Err)
    }

    /// The node with this number, if the folder has one.
    pub(crate) fn node(
        &self,
        blocks: &dyn BlockStore,
        folder: &Entry,
        number: u64,
    ) -> Result<Option<NodeInPage>, ReadFolderError> {
        let (page_number, place) = page_of(number);
        if let Some(page) = self.pages.get(&(*folder, page_number)) {
            return Ok((place < page.nodes.len()).then_some(NodeInPage { page, place }));
        }
        let (table, damage) = self.table(blocks, folder);
        if number >= table.node_count {
            return damage.map_or(Ok(None), Err);
        }
        let page = self.page(blocks, folder, &table, page_number)?;
        Ok((place < page.nodes.len()).then_some(NodeInPage { page, place }))
    }

    /// The node with this name, and its number.
    pub(crate) fn find(
        &self,
        blocks: &dyn BlockStore,
        folder: &Entry,
        name: &[u8],
    ) -> Result<Option<(u64, NodeInPage)>, ReadFolderError> {
        let (table, damage) = self.table(blocks, folder);
        let page_number = table.last_names.partition_point(|last| last.as_slice() < name);
        let absent = |damage: Option<ReadFolderError>| damage.map_or(Ok(None), Err);
        if page_number >= table.starts.len() {
            return absent(damage);
        }
        let page_number = u32::try_from(page_number).unwrap_or(u32::MAX);
        let page = self.page(blocks, folder, &table, page_number)?;
        let Ok(place) = page.nodes.binary_search_by(|node| node.name.as_slice().cmp(name)) else {
            return Ok(None);
        };
        Ok(Some((number_of(page_number, place), NodeInPage { page, place })))
    }

    /// The table of the pages of a folder, and the error that ended the reading of its list. Only a
    /// complete table is cached.
    fn table(&self, blocks: &dyn BlockStore, folder: &Entry) -> (Arc<PageTable>, Option<ReadFolderError>) {
        if let Some(table) = self.tables.get(folder) {
            return (table, None);
        }
        let mut table = PageTable { starts: Vec::new(), last_names: Vec::new(), node_count: 0, weight: 100 };
        let mut list = NodeList::of_content(blocks, Some(folder), &ListPlace::default());
        let damage = loop {
            let start = list.place();
            let (nodes, damage) = read_page(&mut list);
            let Some(last) = nodes.last() else { break damage };
            let page_number = u32::try_from(table.starts.len()).unwrap_or(u32::MAX);
            table.node_count = table.node_count.saturating_add(nodes.len() as u64);
            let names_bytes = start.previous.len().saturating_add(last.name.len()) as u64;
            table.weight = table.weight.saturating_add(names_bytes.saturating_add(100));
            table.last_names.push(last.name.clone());
            table.starts.push(start);
            let is_last = nodes.len() < PAGE_NODES;
            self.pages.insert((*folder, page_number), Arc::new(NodePage::new(nodes)));
            if damage.is_some() || is_last {
                break damage;
            }
        };
        let table = Arc::new(table);
        if damage.is_none() {
            self.tables.insert(*folder, Arc::clone(&table));
        }
        (table, damage)
    }

    fn page(
        &self,
        blocks: &dyn BlockStore,
        folder: &Entry,
        table: &PageTable,
        number: u32,
    ) -> Result<Arc<NodePage>, ReadFolderError> {
        if let Some(page) = self.pages.get(&(*folder, number)) {
            return Ok(page);
        }
        let start = table.starts.get(to_usize(number));
        let Some(start) = start else { return Ok(Arc::new(NodePage::new(Vec::new()))) };
        let (nodes, damage) = read_page(&mut NodeList::of_content(blocks, Some(folder), start));
        let page = Arc::new(NodePage::new(nodes));
        match damage {
            // The last page before the damage is as long as it was when the table was made.
            Some(damage) if page.nodes.is_empty() => Err(damage),
            Some(_) => Ok(page),
            None => {
                self.pages.insert((*folder, number), Arc::clone(&page));
                Ok(page)
            }
        }
    }
}

impl NodePage {
    fn new(nodes: Vec<Node>) -> Self {
        let xattr_bytes = |xattr: &Xattr| {
            size_of::<Xattr>().saturating_add(xattr.name.len()).saturating_add(xattr.value.len())
        };
        let node_bytes = |node: &Node| {
            let xattrs: usize = node.xattrs.iter().map(xattr_bytes).fold(0, usize::saturating_add);
            let text = node.name.len().saturating_add(node.target.len());
            size_of::<Node>().saturating_add(text).saturating_add(xattrs) as u64
        };
        let weight = nodes.iter().map(node_bytes).fold(100, u64::saturating_add);
        Self { nodes, weight }
    }
}

/// The page of a node, and its position there.
fn page_of(number: u64) -> (u32, usize) {
    let size = PAGE_NODES as u64;
    let page = number.checked_div(size).and_then(|page| u32::try_from(page).ok()).unwrap_or(u32::MAX);
    (page, to_usize(number.checked_rem(size).unwrap_or(0)))
}

fn number_of(page: u32, place: usize) -> u64 {
    u64::from(page).saturating_mul(PAGE_NODES as u64).saturating_add(place as u64)
}

fn read_page(list: &mut NodeList<'_>) -> (Vec<Node>, Option<ReadFolderError>) {
    let mut nodes = Vec::new();
    while nodes.len() < PAGE_NODES {
        match list.next() {
            None => break,
            Some(Ok(node)) => nodes.push(node),
            Some(Err(error)) => return (nodes, Some(error)),
        }
    }
    (nodes, None)
}
