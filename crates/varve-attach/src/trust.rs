//! Decides whether a head is believed. Pure: the head, the earlier ones and the time are arguments.

use varve_edition::{EditionHead, EditionKey, ObjectName, OpenHeadError, SeenEdition, TrustRecord};
use varve_world::Timestamp;

/// A clock that is wrong by less than this is no reason for a warning.
const CLOCK_ERROR: i64 = 86_400 * 1_000_000_000;

/// The user's choices about trust.
#[derive(Debug, Clone, Default)]
pub struct TrustRules {
    /// The keys in the address and in key files.
    pub keys: Vec<EditionKey>,
    /// Believes whatever key has signed, if none is given and none is remembered for the place.
    pub trusts_first_use: bool,
    /// Believes an older edition than one that was seen before.
    pub allows_older: bool,
    /// Refuses an edition that has expired.
    pub is_strict: bool,
}

/// The reason why a head is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    #[error("no key is known for {place}")]
    NoKey { place: String },
    #[error("the head is not believed: {0}")]
    Head(#[from] OpenHeadError),
    #[error("this is edition {serial}, but edition {seen} was seen before")]
    Older { serial: u64, seen: u64 },
    #[error(
        "there are two different editions with the number {serial}: the server or the publisher deceives"
    )]
    Forked { serial: u64 },
    #[error("this is another publication than the one that was there before")]
    OtherPublication,
    #[error("edition {serial} has expired: newer ones may be kept from you")]
    Expired { serial: u64 },
}

/// Something that the user should know about a believed head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustWarning {
    /// The edition has expired, so newer ones may be withheld.
    Expired { expires: Timestamp },
    /// The edition is of the future, so a clock is wrong.
    FromTheFuture { time: Timestamp },
    /// An older edition was believed on request.
    Older { serial: u64, seen: u64 },
    /// The key was believed because it was the first one.
    FirstUse { key: EditionKey },
    /// The head is signed by a later key than the one in the address.
    NewKey { key: EditionKey },
}

/// A head that is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BelievedHead {
    pub head: EditionHead,
    pub warnings: Vec<TrustWarning>,
}

/// Decides whether the head of the publication at `place` is believed, and adds it to the record.
///
/// # Errors
/// [`TrustError`]. The record is then unchanged.
pub fn believe_head(
    bytes: &[u8],
    place: &str,
    rules: &TrustRules,
    record: &mut TrustRecord,
    now: Timestamp,
) -> Result<BelievedHead, TrustError> {
    let mut warnings = Vec::new();
    let known = record.place(place);
    let keys = match (&rules.keys[..], known) {
        ([], Some((_, key))) => vec![key],
        ([], None) if rules.trusts_first_use => {
            let signers = signers_of(bytes)?;
            warnings.extend(signers.first().map(|key| TrustWarning::FirstUse { key: *key }));
            signers
        }
        ([], None) => return Err(TrustError::NoKey { place: place.to_owned() }),
        (keys, _) => keys.to_vec(),
    };
    let trusted = record.successors(&keys);
    let opened = EditionHead::open(bytes, &trusted)?;
    let fields = opened.head.fields();
    let signers: Vec<_> = opened.signers.iter().filter(|signer| trusted.contains(signer)).copied().collect();
    let seen = SeenEdition { serial: fields.serial, digest: ObjectName::of(bytes) };
    if !rules.allows_older && known.is_some_and(|(id, _)| id != fields.id) {
        return Err(TrustError::OtherPublication);
    }
    let newest = signers.iter().filter_map(|signer| record.seen(signer, &fields.id));
    if let Some(newest) = newest.max_by_key(|seen| seen.serial) {
        let is_forked = newest.serial == seen.serial && newest.digest != seen.digest;
        if is_forked && !rules.allows_older {
            return Err(TrustError::Forked { serial: seen.serial });
        }
        if newest.serial > seen.serial {
            if !rules.allows_older {
                return Err(TrustError::Older { serial: seen.serial, seen: newest.serial });
            }
            warnings.push(TrustWarning::Older { serial: seen.serial, seen: newest.serial });
        }
    }
    if now > fields.expires {
        let is_certain = now.0.saturating_sub(fields.expires.0) > CLOCK_ERROR;
        if rules.is_strict && is_certain {
            return Err(TrustError::Expired { serial: fields.serial });
        }
        warnings.push(TrustWarning::Expired { expires: fields.expires });
    }
    if fields.time.0.saturating_sub(now.0) > CLOCK_ERROR {
        warnings.push(TrustWarning::FromTheFuture { time: fields.time });
    }
    if let Some(signer) = signers.first().filter(|_| !signers.iter().any(|signer| keys.contains(signer))) {
        warnings.push(TrustWarning::NewKey { key: *signer });
    }
    let first_key = known.map(|(_, key)| key).filter(|key| trusted.contains(key));
    if let Some(first_key) = first_key.or_else(|| keys.first().copied()) {
        record.add(place, fields.id, first_key, seen, &signers, &fields.keys);
    }
    Ok(BelievedHead { head: opened.head, warnings })
}

/// Returns the keys that have signed a head, all of them with good signatures.
fn signers_of(bytes: &[u8]) -> Result<Vec<EditionKey>, TrustError> {
    match EditionHead::open(bytes, &[]) {
        Err(OpenHeadError::OtherKeys { signers }) => Ok(signers),
        Err(error) => Err(error.into()),
        Ok(opened) => Ok(opened.signers),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use varve_edition::{EditionFields, EditionSigner};

    use super::*;

    const DAY: i64 = CLOCK_ERROR;

    fn signer(seed: u8) -> EditionSigner {
        EditionSigner::from_seed([seed; 32])
    }

    fn key(seed: u8) -> EditionKey {
        signer(seed).key()
    }

    /// A head of day `serial`, which expires after ten days.
    fn head_of(id: u8, serial: u64, signers: &[u8], keys: &[u8]) -> Vec<u8> {
        let time = Timestamp(i64::try_from(serial).unwrap() * DAY);
        let fields = EditionFields {
            id: [id; 16],
            serial,
            time,
            expires: Timestamp(time.0 + 10 * DAY),
            mirrors: Vec::new(),
            keys: keys.iter().map(|seed| key(*seed)).collect(),
            images: Vec::new(),
            trees: BTreeMap::new(),
        };
        let signers: Vec<_> = signers.iter().map(|seed| signer(*seed)).collect();
        EditionHead::new(fields).unwrap().sign(&signers).unwrap()
    }

    fn head(serial: u64, signers: &[u8]) -> Vec<u8> {
        head_of(7, serial, signers, signers)
    }

    fn rules(keys: &[u8]) -> TrustRules {
        TrustRules { keys: keys.iter().map(|seed| key(*seed)).collect(), ..TrustRules::default() }
    }

    #[derive(Default)]
    struct Machine(TrustRecord);

    impl Machine {
        fn on_day(
            &mut self,
            day: i64,
            bytes: &[u8],
            rules: &TrustRules,
        ) -> Result<Vec<TrustWarning>, TrustError> {
            let before = self.0.clone();
            let believed = believe_head(bytes, "place", rules, &mut self.0, Timestamp(day * DAY));
            assert!(believed.is_ok() || self.0 == before, "a refusal changes nothing");
            assert_eq!(TrustRecord::parse(&self.0.to_text()), Ok(self.0.clone()));
            believed.map(|believed| believed.warnings)
        }
    }

    #[test]
    fn an_older_edition_is_refused_and_a_forked_one_too() {
        let mut machine = Machine::default();
        assert_eq!(machine.on_day(5, &head(5, &[1]), &rules(&[1])), Ok(vec![]));
        assert_eq!(machine.on_day(5, &head(5, &[1]), &rules(&[1])), Ok(vec![]));
        let older = TrustError::Older { serial: 4, seen: 5 };
        assert_eq!(machine.on_day(5, &head(4, &[1]), &rules(&[1])), Err(older));
        let forked = head_of(7, 5, &[1], &[1, 2]);
        assert_eq!(machine.on_day(5, &forked, &rules(&[1])), Err(TrustError::Forked { serial: 5 }));
        let allowed = TrustRules { allows_older: true, ..rules(&[1]) };
        let warning = TrustWarning::Older { serial: 4, seen: 5 };
        assert_eq!(machine.on_day(5, &head(4, &[1]), &allowed), Ok(vec![warning]));
        assert!(machine.on_day(5, &head(4, &[1]), &rules(&[1])).is_err(), "the newest stays remembered");
        assert_eq!(machine.on_day(6, &head(6, &[1]), &rules(&[1])), Ok(vec![]));
    }

    #[test]
    fn only_trusted_keys_are_believed() {
        let mut machine = Machine::default();
        assert!(matches!(machine.on_day(1, &head(1, &[2]), &rules(&[1])), Err(TrustError::Head(_))));
        assert!(matches!(machine.on_day(1, &head(1, &[1]), &rules(&[])), Err(TrustError::NoKey { .. })));
        let first = TrustRules { trusts_first_use: true, ..TrustRules::default() };
        let warnings = machine.on_day(1, &head(1, &[2]), &first);
        assert_eq!(warnings, Ok(vec![TrustWarning::FirstUse { key: key(2) }]));
        // From now on it is the key of this place.
        assert!(matches!(machine.on_day(2, &head(2, &[3]), &first), Err(TrustError::Head(_))));
        assert_eq!(machine.on_day(2, &head(2, &[2]), &rules(&[])), Ok(vec![]));
        let mut bad = head(3, &[2]);
        bad[30] ^= 1;
        assert!(matches!(machine.on_day(3, &bad, &first), Err(TrustError::Head(_))));
    }

    #[test]
    fn a_key_is_changed_by_an_edition_with_both() {
        let mut machine = Machine::default();
        assert!(machine.on_day(1, &head(1, &[1]), &rules(&[1])).is_ok());
        assert!(machine.on_day(2, &head(2, &[2]), &rules(&[1])).is_err(), "the new key is not known yet");
        assert_eq!(machine.on_day(2, &head(2, &[1, 2]), &rules(&[1])), Ok(vec![]));
        let warning = TrustWarning::NewKey { key: key(2) };
        assert_eq!(machine.on_day(3, &head(3, &[2]), &rules(&[1])), Ok(vec![warning]));
        assert!(machine.on_day(3, &head(3, &[2]), &rules(&[2])).is_ok());
        // The serial that a stolen key has signed does not bind its successor.
        assert!(machine.on_day(3, &head(1 << 10, &[1]), &rules(&[1])).is_ok());
        assert!(machine.on_day(4, &head(4, &[2]), &rules(&[2])).is_ok());
        assert!(Machine::default().on_day(3, &head(3, &[2]), &rules(&[1])).is_err());
    }

    #[test]
    fn another_publication_of_the_same_publisher_is_no_substitute() {
        let mut machine = Machine::default();
        assert!(machine.on_day(5, &head(5, &[1]), &rules(&[1])).is_ok());
        let other = head_of(8, 9, &[1], &[1]);
        assert_eq!(machine.on_day(9, &other, &rules(&[1])), Err(TrustError::OtherPublication));
        // At another place it has a serial of its own.
        let mut record = machine.0.clone();
        let young = head_of(8, 1, &[1], &[1]);
        assert!(believe_head(&young, "elsewhere", &rules(&[1]), &mut record, Timestamp(DAY)).is_ok());
    }

    #[test]
    fn time_is_watched() {
        let mut machine = Machine::default();
        let head = head(10, &[1]);
        let expires = Timestamp(20 * DAY);
        assert_eq!(machine.on_day(20, &head, &rules(&[1])), Ok(vec![]));
        let strict = TrustRules { is_strict: true, ..rules(&[1]) };
        let warning = TrustWarning::Expired { expires };
        assert_eq!(machine.on_day(21, &head, &strict), Ok(vec![warning]), "a clock may be wrong by a day");
        assert_eq!(machine.on_day(30, &head, &rules(&[1])), Ok(vec![warning]));
        assert_eq!(machine.on_day(30, &head, &strict), Err(TrustError::Expired { serial: 10 }));
        let early = TrustWarning::FromTheFuture { time: Timestamp(10 * DAY) };
        assert_eq!(machine.on_day(8, &head, &strict), Ok(vec![early]));
    }
}
