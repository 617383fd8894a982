//! Decides if a dirty bitmap proves what has changed on a drive since an archived snapshot. Pure.
//!
//! ```text
//! varve-STORE-SNAPSHOT          changes since the moment of the snapshot SNAPSHOT
//! varve-STORE-SNAPSHOT-BEFORE   the same; the record of BEFORE was stopped at that moment
//! ```
//!
//! SNAPSHOT is the ID of a snapshot. A record is begun, and the one before it stopped, in the same
//! transaction in which the machine's disk is held for reading. So if the new snapshot fails, the
//! two records together contain the changes since BEFORE.
//!
//! Invariant: a record is trusted only if its snapshot is in the catalog and QEMU reports that it
//! recorded without a gap. Everything that cannot be proven unchanged is read.

use varve_archive::SnapshotId;

/// A dirty bitmap: QEMU's record of the writes to a drive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Bitmap {
    pub name: String,
    /// True if it records new writes.
    pub is_recording: bool,
    /// True if QEMU could not save it when it ended.
    pub is_inconsistent: bool,
    /// True if an operation of QEMU uses it.
    pub is_busy: bool,
}

/// The parts of the name of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BitmapName {
    /// The store to which the record belongs.
    pub store: StoreTag,
    /// The snapshot with which the record begins.
    pub snapshot: SnapshotId,
    /// The snapshot whose record was stopped at that moment.
    pub before: Option<SnapshotId>,
}

/// Distinguishes the records of different stores: the first bytes of the store's ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreTag(pub [u8; 4]);

impl std::fmt::Display for StoreTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Display for BitmapName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "varve-{}-{}", self.store, self.snapshot)?;
        self.before.map_or(Ok(()), |before| write!(f, "-{before}"))
    }
}

impl BitmapName {
    /// Parses a name. Returns `None` if it is not one of this program's.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("varve-")?.split('-');
        let store = StoreTag(from_hex(parts.next()?)?);
        let snapshot = SnapshotId(from_hex(parts.next()?)?);
        let before = parts.next().map(from_hex).map(|id| id.map(SnapshotId));
        let parsed = Self { store, snapshot, before: before.map_or(Some(None), |id| id.map(Some))? };
        // Only the canonical spelling is accepted, so that no other program's bitmap is taken for
        // one of ours.
        (parsed.to_string() == name).then_some(parsed)
    }
}

fn from_hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    if text.len() != 2 * BYTES || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// The usable records of a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BitmapChain {
    /// The record to use and the snapshot with which it begins, or the reason why the whole drive
    /// must be read.
    pub since: Result<TrustedBitmap, String>,
    /// Our other records, which are of no more use.
    pub useless: Vec<String>,
}

/// A trusted record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustedBitmap {
    /// The snapshot with which the record begins.
    pub snapshot: SnapshotId,
    pub record: String,
    /// The record that continues it: it was stopped for a snapshot that failed.
    pub goes_on: Option<String>,
}

/// Finds the record to use. `rank` returns the age order of an archived snapshot, or the reason why
/// it cannot be used.
pub(crate) fn find(
    store: StoreTag,
    bitmaps: &[Bitmap],
    rank: &dyn Fn(&SnapshotId) -> Result<u64, String>,
) -> BitmapChain {
    let ours: Vec<(BitmapName, &Bitmap)> = bitmaps
        .iter()
        .filter_map(|bitmap| Some((BitmapName::parse(&bitmap.name)?, bitmap)))
        .filter(|(name, _)| name.store == store)
        .collect();
    let since = choose(&ours, rank);
    let kept = |name: &String| {
        since.as_ref().is_ok_and(|since| since.record == *name || since.goes_on.as_ref() == Some(name))
    };
    let useless = ours.iter().map(|(_, bitmap)| bitmap.name.clone()).filter(|name| !kept(name)).collect();
    BitmapChain { since, useless }
}

fn choose(
    ours: &[(BitmapName, &Bitmap)],
    rank: &dyn Fn(&SnapshotId) -> Result<u64, String>,
) -> Result<TrustedBitmap, String> {
    if ours.is_empty() {
        return Err("QEMU has no record of the changes since an archived snapshot".into());
    }
    let mut reason = String::new();
    let mut newest: Option<(u64, BitmapName, &Bitmap)> = None;
    for (name, bitmap) in ours {
        match rank(&name.snapshot) {
            Ok(rank) if newest.is_none_or(|(other, _, _)| other < rank) => {
                newest = Some((rank, *name, bitmap))
            }
            Ok(_) => {}
            Err(said) => reason = said,
        }
    }
    let Some((_, name, bitmap)) = newest else { return Err(reason) };
    sound(bitmap)?;
    if bitmap.is_recording {
        return Ok(TrustedBitmap { snapshot: name.snapshot, record: bitmap.name.clone(), goes_on: None });
    }
    let mut followers = ours.iter().filter(|(other, _)| other.before == Some(name.snapshot));
    let (Some((_, follower)), None) = (followers.next(), followers.next()) else {
        return Err("the record of changes was stopped, and no other continues it".into());
    };
    sound(follower)?;
    if !follower.is_recording {
        return Err("the record of changes was stopped, and so was the one that continues it".into());
    }
    Ok(TrustedBitmap {
        snapshot: name.snapshot,
        record: bitmap.name.clone(),
        goes_on: Some(follower.name.clone()),
    })
}

fn sound(bitmap: &Bitmap) -> Result<(), String> {
    if bitmap.is_inconsistent {
        return Err("QEMU was not shut down cleanly, and did not save its record of changes".into());
    }
    if bitmap.is_busy {
        return Err("the record of changes is used by another program".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STORE: StoreTag = StoreTag([1, 2, 3, 4]);

    fn snapshot_id(number: u8) -> SnapshotId {
        SnapshotId([number; 16])
    }

    fn name(of: u8, before: Option<u8>) -> BitmapName {
        BitmapName { store: STORE, snapshot: snapshot_id(of), before: before.map(snapshot_id) }
    }

    fn record(of: u8, before: Option<u8>, is_recording: bool) -> Bitmap {
        Bitmap { name: name(of, before).to_string(), is_recording, ..Bitmap::default() }
    }

    /// Snapshots 1 to 5 are archived, in this order.
    fn chain(bitmaps: &[Bitmap]) -> BitmapChain {
        find(STORE, bitmaps, &|id| match id.0[0] {
            number @ 1..=5 => Ok(number.into()),
            _ => Err("the night was not archived".into()),
        })
    }

    fn since(of: &BitmapChain) -> (SnapshotId, bool) {
        let since = of.since.as_ref().unwrap();
        (since.snapshot, since.goes_on.is_some())
    }

    #[test]
    fn names_say_what_they_say() {
        for written in [name(7, None), name(7, Some(9))] {
            assert_eq!(BitmapName::parse(&written.to_string()), Some(written));
            assert!(written.to_string().len() < 255);
        }
        let good = name(7, None).to_string();
        for bad in [
            "",
            "varve-",
            "backup-1",
            &good.to_uppercase(),
            &good[..good.len() - 1],
            &format!("{good}-"),
            "varve-+1020304-",
        ] {
            assert_eq!(BitmapName::parse(bad), None, "{bad}");
        }
        assert_eq!(BitmapName::parse(&good.replace("07", "0A")), None, "one way to write it");
    }

    #[test]
    fn the_newest_archived_snapshot_is_gone_by() {
        assert_eq!(since(&chain(&[record(3, Some(2), true)])), (snapshot_id(3), false));
        // A run was killed after its snapshot was archived, and before it removed the previous
        // record.
        let both = chain(&[record(3, Some(2), false), record(4, Some(3), true)]);
        assert_eq!(since(&both), (snapshot_id(4), false));
        assert_eq!(both.useless, [name(3, Some(2)).to_string()]);
        // A run was killed before its snapshot was archived: 9 is not in the catalog.
        let failed = chain(&[record(3, Some(2), false), record(9, Some(3), true)]);
        assert_eq!(since(&failed), (snapshot_id(3), true));
        assert!(failed.useless.is_empty());
    }

    #[test]
    fn what_is_not_proven_is_read() {
        let reason = |bitmaps: &[Bitmap]| chain(bitmaps).since.unwrap_err();
        assert!(reason(&[]).contains("no record"));
        assert!(reason(&[record(9, None, true)]).contains("not archived"));
        assert!(reason(&[record(3, None, false)]).contains("no other continues it"));
        assert!(
            reason(&[record(3, None, false), record(9, Some(2), true)]).contains("no other continues it")
        );
        assert!(reason(&[record(3, None, false), record(9, None, true)]).contains("no other continues it"));
        assert!(reason(&[record(3, None, false), record(9, Some(3), false)]).contains("so was"));
        let two = [record(3, None, false), record(8, Some(3), true), record(9, Some(3), true)];
        assert!(reason(&two).contains("no other continues it"));
        let inconsistent = Bitmap { is_inconsistent: true, ..record(3, None, true) };
        assert!(reason(std::slice::from_ref(&inconsistent)).contains("was not shut down cleanly"));
        let useless = chain(std::slice::from_ref(&inconsistent)).useless;
        assert_eq!(useless.first(), Some(&inconsistent.name));
        let follower = Bitmap { is_inconsistent: true, ..record(9, Some(3), true) };
        assert!(reason(&[record(3, None, false), follower]).contains("was not shut down cleanly"));
        assert!(reason(&[Bitmap { is_busy: true, ..record(3, None, true) }]).contains("another program"));
    }

    #[test]
    fn records_of_others_are_left_alone() {
        let other = BitmapName { store: StoreTag([9; 4]), ..name(3, None) }.to_string();
        let theirs = Bitmap { name: other, is_recording: true, ..Bitmap::default() };
        let libvirt = Bitmap { name: "checkpoint-1".into(), is_recording: true, ..Bitmap::default() };
        let chain = chain(&[theirs, libvirt]);
        assert!(chain.since.unwrap_err().contains("no record"));
        assert!(chain.useless.is_empty());
    }

    proptest! {
        #[test]
        fn no_name_panics(name in ".{0,100}", hex in "varve-[0-9a-f]{8}-[0-9a-f-]{0,70}") {
            let _ = (BitmapName::parse(&name), BitmapName::parse(&hex));
        }
    }
}
