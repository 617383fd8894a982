//! The entries of an archive that are not brought over as they are, until they can be reported.

use std::collections::VecDeque;

use varve_content::folder::{DescriptionError, TreeStep};

/// Upper bound on the memory of the reports, in bytes, roughly.
const REPORT_BYTES_MAX: usize = 64 << 20;
/// The memory of a report without its name, in bytes, roughly.
const REPORT_BYTES: usize = 200;

/// Reports in their order. If there are too many, the last one has the number of the others.
#[derive(Default)]
pub(crate) struct LostEntries {
    steps: VecDeque<TreeStep>,
    bytes: usize,
    further_count: u64,
}

impl LostEntries {
    /// Adds an entry, or a part of one, that is left out.
    pub(crate) fn lose(&mut self, name: Vec<u8>, error: impl Into<DescriptionError>) {
        self.add(TreeStep::Lost { name, error: error.into() });
    }

    /// Adds the reason of a problem that a node has.
    pub(crate) fn harm(&mut self, name: Vec<u8>, error: impl Into<DescriptionError>) {
        self.add(TreeStep::Harmed { name, error: error.into() });
    }

    fn add(&mut self, step: TreeStep) {
        let (TreeStep::Lost { name, .. } | TreeStep::Harmed { name, .. }) = &step else { return };
        self.bytes = self.bytes.saturating_add(name.len()).saturating_add(REPORT_BYTES);
        if self.bytes > REPORT_BYTES_MAX {
            self.further_count = self.further_count.saturating_add(1);
        } else {
            self.steps.push_back(step);
        }
    }

    /// Returns the next report.
    pub(crate) fn next(&mut self) -> Option<TreeStep> {
        if let Some(step) = self.steps.pop_front() {
            return Some(step);
        }
        let count = std::mem::take(&mut self.further_count);
        let error = || format!("they were not brought over as they are: {count} more").into();
        (count > 0).then(|| TreeStep::Lost { name: b"further entries".to_vec(), error: error() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_beyond_the_bound_are_counted() {
        let mut lost = LostEntries::default();
        let fit = REPORT_BYTES_MAX / (REPORT_BYTES + 1);
        (0..fit + 7).for_each(|_| lost.lose(b"a".to_vec(), "it is lost"));
        (0..fit)
            .for_each(|_| assert!(matches!(lost.next(), Some(TreeStep::Lost { name, .. }) if name == b"a")));
        let Some(TreeStep::Lost { error, .. }) = lost.next() else { panic!() };
        assert!(error.to_string().ends_with(" 7 more"), "{error}");
        assert!(lost.next().is_none());
    }
}
