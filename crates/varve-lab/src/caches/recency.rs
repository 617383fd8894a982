//! Least-recently-used caches of all sizes at once.
//!
//! A cache of `size` bytes that evicts what was used least recently has an item exactly if the
//! items that were used since the item's last use, and the item itself, fit into `size` (Mattson,
//! Gecsei, Slutz and Traiger 1970). So the number of these bytes, the *distance*, says for every
//! size whether a use of an item is a hit.

/// Items in the order of their last uses.
pub(super) struct RecencyStack {
    /// The bytes of each item.
    weights: Vec<u64>,
    /// The position of each item's last use.
    last: Vec<Option<usize>>,
    /// A Fenwick tree over positions: the bytes of the items whose last use is there.
    sums: Vec<u64>,
    next: usize,
    total: u64,
    newest: Option<usize>,
}

impl RecencyStack {
    /// Makes a stack on which no item of these sizes has been used.
    pub(super) fn new(weights: Vec<u64>) -> Self {
        let positions = (2 * weights.len()).max(16);
        Self {
            last: vec![None; weights.len()],
            weights,
            sums: vec![0; positions + 1],
            next: 0,
            total: 0,
            newest: None,
        }
    }

    /// Returns the bytes of an item.
    pub(super) fn weight(&self, item: usize) -> u64 {
        self.weights[item]
    }

    /// Uses an item. Returns its distance; `None` at its first use.
    pub(super) fn touch(&mut self, item: usize) -> Option<u64> {
        let weight = self.weights[item];
        if self.newest == Some(item) {
            return Some(weight);
        }
        let distance = self.last[item].map(|at| {
            let distance = self.total - self.before(at);
            self.add(at, weight, false);
            distance
        });
        self.last[item] = None;
        if self.next + 1 >= self.sums.len() {
            self.renumber();
        }
        self.add(self.next, weight, true);
        self.last[item] = Some(self.next);
        self.next += 1;
        self.newest = Some(item);
        distance
    }

    /// Returns the bytes of the items whose last use is before a position.
    fn before(&self, position: usize) -> u64 {
        let mut at = position;
        let mut sum = 0;
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }

    fn add(&mut self, position: usize, weight: u64, is_new: bool) {
        let mut at = position + 1;
        while at < self.sums.len() {
            self.sums[at] = if is_new { self.sums[at] + weight } else { self.sums[at] - weight };
            at += at & at.wrapping_neg();
        }
        self.total = if is_new { self.total + weight } else { self.total - weight };
    }

    /// Gives the items the first positions, in the order that they have.
    fn renumber(&mut self) {
        let mut used: Vec<_> =
            self.last.iter().enumerate().filter_map(|(item, at)| Some(((*at)?, item))).collect();
        used.sort_unstable();
        self.sums.fill(0);
        (self.total, self.next) = (0, 0);
        for (_, item) in used {
            self.add(self.next, self.weights[item], true);
            self.last[item] = Some(self.next);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The items that a cache of a size has after these uses, and true if the last use was a hit.
    fn is_hit(weights: &[u64], uses: &[usize], size: u64) -> bool {
        let mut cache: Vec<usize> = Vec::new();
        let mut hit = false;
        for item in uses {
            hit = cache.contains(item);
            cache.retain(|known| known != item);
            cache.push(*item);
            while cache.iter().map(|item| weights[*item]).sum::<u64>() > size {
                cache.remove(0);
            }
        }
        hit
    }

    proptest! {
        #[test]
        fn a_distance_says_which_caches_have_the_item(
            weights in prop::collection::vec(1_u64..20, 6),
            uses in prop::collection::vec(0_usize..6, 1..60),
        ) {
            let mut stack = RecencyStack::new(weights.clone());
            for (at, item) in uses.iter().enumerate() {
                let distance = stack.touch(*item);
                for size in [1, 5, 17, 30, 60, 130] {
                    let ours = distance.is_some_and(|distance| distance <= size);
                    prop_assert_eq!(ours, is_hit(&weights, &uses[..=at], size), "use {}, size {}", at, size);
                }
            }
        }
    }
}
