//! Objects in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::to_usize;
use varve_world::FileName;

use crate::target::{Capabilities, Object, PutMode, Target, TargetError, WholeObject, longer_than};

/// Objects in a map. Clones share the same objects.
#[derive(Debug, Clone, Default)]
pub struct MemoryTarget {
    objects: Arc<Mutex<BTreeMap<FileName, Bytes>>>,
}

impl MemoryTarget {
    /// Makes an empty target.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets or removes an object without any check, as an attacker or a careless copy would.
    pub fn set(&self, name: &FileName, contents: Option<Bytes>) {
        match contents {
            Some(contents) => self.objects.lock().insert(name.clone(), contents),
            None => self.objects.lock().remove(name),
        };
    }
}

impl fmt::Display for MemoryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory")
    }
}

impl Target for MemoryTarget {
    fn capabilities(&self) -> Capabilities {
        Capabilities { create_is_exclusive: true, ranges: true }
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        let mut objects = self.objects.lock();
        if mode == PutMode::Create && objects.contains_key(name) {
            return Err(TargetError::Exists { name: name.clone() });
        }
        objects.insert(name.clone(), contents);
        Ok(())
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        let objects = self.objects.lock();
        let contents = objects.get(name).ok_or_else(|| TargetError::NotFound { name: name.clone() })?;
        let (start, end) = (to_usize(range.start), to_usize(range.end));
        if start > end || end > contents.len() {
            return Err(TargetError::Short { name: name.clone(), end: range.end });
        }
        Ok(contents.slice(start..end))
    }

    fn get_whole(
        &self,
        name: &FileName,
        bytes_max: u64,
        _known: Option<&str>,
    ) -> Result<Option<WholeObject>, TargetError> {
        let found = self.objects.lock().get(name).cloned();
        let bytes = found.ok_or_else(|| TargetError::NotFound { name: name.clone() })?;
        if bytes.len() as u64 > bytes_max {
            return Err(TargetError::Refused { what: name.to_string(), source: longer_than(bytes_max) });
        }
        Ok(Some(WholeObject { bytes, mark: None }))
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let is_inside = |name: &FileName| name.as_str().starts_with(&prefix);
        let objects = self.objects.lock();
        let found = objects.iter().filter(|(name, _)| is_inside(name));
        Ok(found
            .map(|(name, contents)| Object { name: name.clone(), bytes: contents.len() as u64 })
            .collect())
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        self.objects
            .lock()
            .remove(name)
            .map(|_| ())
            .ok_or_else(|| TargetError::NotFound { name: name.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract() {
        crate::contract::check(&mut || Box::new(MemoryTarget::new()));
    }
}
