//! The order in which the entries of a folder are listed. A client continues a listing at an offset
//! counted from its beginning, while new snapshots may appear.
//!
//! Invariant: a name keeps its position as long as no name of its folder vanishes. New names come
//! after the names that were shown.

use std::collections::BTreeMap;

use varve_image::FileId;

/// The orders of all folders that were listed.
#[derive(Debug, Default)]
pub(super) struct ListOrders(BTreeMap<FileId, BTreeMap<Vec<u8>, usize>>);

impl ListOrders {
    /// Arranges the current entries of a folder. Names that were listed before keep their
    /// positions.
    pub(super) fn arrange<T>(&mut self, folder: FileId, listed: Vec<(Vec<u8>, T)>) -> Vec<(Vec<u8>, T)> {
        let order = self.0.entry(folder).or_default();
        let known = listed.iter().filter(|(name, _)| order.contains_key(name)).count();
        if known < order.len() {
            // A name has vanished, which is rare: the order starts again.
            order.clear();
        }
        for (name, _) in &listed {
            let next = order.len();
            order.entry(name.clone()).or_insert(next);
        }
        let mut arranged = listed;
        arranged.sort_by_cached_key(|(name, _)| order.get(name).copied());
        arranged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(orders: &mut ListOrders, folder: u64, listed: &[&str]) -> Vec<String> {
        let listed = listed.iter().map(|name| (name.as_bytes().to_vec(), ())).collect();
        let arranged = orders.arrange(FileId(folder), listed);
        arranged.into_iter().map(|(name, ())| String::from_utf8(name).unwrap()).collect()
    }

    #[test]
    fn who_goes_on_listing_while_something_appears_sees_each_name_once() {
        let mut orders = ListOrders::default();
        assert_eq!(names(&mut orders, 1, &["b", "d"]), ["b", "d"]);
        let all = ["a", "b", "c", "d"];
        assert_eq!(names(&mut orders, 1, &all), ["b", "d", "a", "c"]);
        assert_eq!(names(&mut orders, 1, &all), ["b", "d", "a", "c"]);
        assert_eq!(names(&mut orders, 2, &all), all, "each folder has its own order");
        assert_eq!(names(&mut orders, 1, &["a", "c", "d"]), ["a", "c", "d"], "b has vanished");
    }
}
