//! A target with a limited transfer rate.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use varve_world::FileName;

use crate::{Capabilities, Object, Pace, PutMode, Survey, TakePiece, Target, TargetError, edge};

/// Any target, with a [`Pace`].
///
/// Pauses before a call with known bytes. So an object is sent at full speed, and the pause lies
/// between objects. A target from [`open`](crate::open) with paces in its options does better: it
/// spreads the bytes within a call.
pub struct PacedTarget<T> {
    target: T,
    up: Option<Arc<Pace>>,
    down: Option<Arc<Pace>>,
}

impl<T: Target> PacedTarget<T> {
    /// Wraps `target` with a pace for uploads and one for downloads.
    pub fn new(target: T, up: Option<Arc<Pace>>, down: Option<Arc<Pace>>) -> Self {
        Self { target, up, down }
    }
}

impl<T: Target> fmt::Display for PacedTarget<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl<T: Target> Target for PacedTarget<T> {
    fn capabilities(&self) -> Capabilities {
        self.target.capabilities()
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        if let Some(pace) = &self.up {
            edge::sleep(pace.take(contents.len()));
        }
        self.target.put(name, contents, mode)
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        // Tokens are taken after the download, because the object may not exist.
        let contents = self.target.get(name, range)?;
        if let Some(pace) = &self.down {
            edge::sleep(pace.take(contents.len()));
        }
        Ok(contents)
    }

    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), TargetError> {
        self.target.get_in_pieces(name, range, place, &mut |piece| {
            if let Some(pace) = &self.down {
                edge::sleep(pace.take(piece.len()));
            }
            take(piece)
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        self.target.list(folder)
    }

    fn survey(&self) -> Result<Survey, TargetError> {
        self.target.survey()
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        self.target.remove(name)
    }

    fn remove_leftovers(&self) -> usize {
        self.target.remove_leftovers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryTarget;

    #[test]
    fn keeps_the_contract() {
        let pace = Arc::new(Pace::new(1 << 30));
        let limited =
            || PacedTarget::new(MemoryTarget::new(), Some(Arc::clone(&pace)), Some(Arc::clone(&pace)));
        crate::contract::check(&mut || limited());
    }

    #[test]
    fn objects_wait_for_their_turn() {
        let pace = Arc::new(Pace::new(1 << 20));
        let target = PacedTarget::new(MemoryTarget::new(), Some(Arc::clone(&pace)), Some(pace));
        let name = FileName::new("object").unwrap();
        let started = edge::now();
        target.put(&name, vec![0; 100 << 10].into(), PutMode::Create).unwrap();
        target.get(&name, 0..100 << 10).unwrap();
        let passed = started.elapsed().as_millis();
        assert!((180..2000).contains(&passed), "200 KiB at 1 MiB a second took {passed} ms");
    }
}
