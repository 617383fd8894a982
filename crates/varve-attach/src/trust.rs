//! Decides whether a head is believed. Pure: the head, the earlier ones and the time are arguments.

use std::time::Duration;

use varve_edition::{EditionHead, EditionKey, ObjectName, OpenHeadError, SeenEdition, TrustRecord};
use varve_world::Timestamp;

/// A clock that is wrong by less than this is no reason for a warning.
const CLOCK_ERROR: Duration = Duration::from_hours(24);

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
    #[error("edition {serial} is signed with the key {key}, which edition {seen} has withdrawn")]
    WithdrawnKey { serial: u64, key: EditionKey, seen: u64 },
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
/// The order of the checks is that of `docs/internals/publication-format.md`, section 4.
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
    let roots = match (&rules.keys[..], known) {
        ([], Some((_, key))) => vec![key],
        ([], None) if rules.trusts_first_use => {
            let signers = signers_of(bytes)?;
            warnings.extend(signers.first().map(|key| TrustWarning::FirstUse { key: *key }));
            signers
        }
        ([], None) => return Err(TrustError::NoKey { place: place.to_owned() }),
        (keys, _) => keys.to_vec(),
    };
    // The id of the publication is in the lines, and decides which of these keys count.
    let opened = EditionHead::open(bytes, &record.all_keys_after(&roots))?;
    let (fields, signers) = (opened.head.fields(), &opened.signers);
    let (id, serial) = (fields.id, fields.serial);
    let known_here = known.filter(|(known_id, _)| *known_id == id).map(|(_, key)| key);
    let witnesses = roots.iter().chain(signers).copied().chain(known_here);
    let newest = witnesses.filter_map(|key| record.seen(&key, &id)).max_by_key(|seen| seen.serial).cloned();
    let is_older = newest.as_ref().is_some_and(|newest| serial <= newest.serial);
    let digest = ObjectName::of(bytes);
    let believes = |root: &EditionKey| {
        let has_seen_it = record.seen(root, &id).is_some_and(|seen| seen.digest == digest);
        has_seen_it || record.keys_after(root, &id).iter().any(|key| signers.contains(key))
    };
    let root = match roots.iter().find(|root| believes(root)) {
        Some(root) => *root,
        None => match (signers.iter().find(|signer| roots.contains(signer)), &newest) {
            // An older head was signed with the keys of its time.
            (Some(key), Some(_)) if rules.allows_older && is_older => *key,
            (Some(key), Some(newest)) => {
                return Err(TrustError::WithdrawnKey { serial, key: *key, seen: newest.serial });
            }
            _ => return Err(OpenHeadError::OtherKeys { signers: opened.signers }.into()),
        },
    };
    if let Some(newest) = newest.filter(|newest| is_older && newest.digest != digest) {
        if !rules.allows_older {
            return Err(match newest.serial == serial {
                true => TrustError::Forked { serial },
                false => TrustError::Older { serial, seen: newest.serial },
            });
        }
        warnings.push(TrustWarning::Older { serial, seen: newest.serial });
    }
    if !rules.allows_older && known.is_some() && known_here.is_none() {
        return Err(TrustError::OtherPublication);
    }
    if now > fields.expires {
        let is_certain = now.since(fields.expires) > CLOCK_ERROR;
        if rules.is_strict && is_certain {
            return Err(TrustError::Expired { serial });
        }
        warnings.push(TrustWarning::Expired { expires: fields.expires });
    }
    if fields.time.since(now) > CLOCK_ERROR {
        warnings.push(TrustWarning::FromTheFuture { time: fields.time });
    }
    let new_key = signers.first().filter(|_| !signers.iter().any(|signer| roots.contains(signer)));
    warnings.extend(new_key.map(|key| TrustWarning::NewKey { key: *key }));
    let place_key = known_here.filter(believes).unwrap_or(root);
    record.add_place(place, id, place_key);
    if !is_older {
        let seen = SeenEdition { serial, digest, keys: fields.keys.clone() };
        record.add_edition(id, &seen, signers);
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

    const DAY: i64 = 86_400_000_000_000;

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
        assert!(Machine::default().on_day(3, &head(3, &[2]), &rules(&[1])).is_err());
        assert!(machine.on_day(4, &head(4, &[2, 3]), &rules(&[])).is_ok(), "the place leads to the key");
        assert!(machine.on_day(5, &head(5, &[3]), &rules(&[1])).is_ok(), "and the first address still does");
    }

    /// A reader that has believed editions 3 (old key), 5 (both keys) and 8 (new key).
    fn after_a_change_of_key() -> Machine {
        let mut machine = Machine::default();
        for (serial, signers) in [(3, &[1][..]), (5, &[1, 2]), (8, &[2])] {
            assert!(machine.on_day(8, &head(serial, signers), &rules(&[1])).is_ok(), "{serial}");
        }
        machine
    }

    /// Lines of signatures are not signed, so a server can leave out one.
    #[test]
    fn an_older_edition_is_refused_whoever_has_signed_it() {
        let [old, new] = [1, 2].map(|signer| head_of(7, 6, &[signer], &[1, 2]));
        let both = head_of(7, 6, &[1, 2], &[1, 2]);
        for address in [&[1][..], &[2], &[1, 2], &[]] {
            for (name, edition) in [("old", &old), ("new", &new), ("both", &both)] {
                let mut machine = after_a_change_of_key();
                let refused = machine.on_day(8, edition, &rules(address));
                assert!(
                    matches!(
                        refused,
                        Err(TrustError::Older { .. } | TrustError::WithdrawnKey { .. } | TrustError::Head(_))
                    ),
                    "{address:?}, {name}: {refused:?}"
                );
            }
        }
        // The new address alone has seen nothing but edition 8, which it believes by itself.
        let mut machine = Machine::default();
        assert!(machine.on_day(3, &head(3, &[1]), &rules(&[1])).is_ok());
        assert!(machine.on_day(8, &head(8, &[2]), &rules(&[2])).is_ok());
        let older = TrustError::Older { serial: 6, seen: 8 };
        assert_eq!(machine.on_day(8, &old, &rules(&[1])), Err(older), "it was seen at this place");
    }

    #[test]
    fn a_key_that_the_newest_edition_does_not_list_signs_no_later_one() {
        let stolen = head(100, &[1]);
        let mut machine = after_a_change_of_key();
        let withdrawn = TrustError::WithdrawnKey { serial: 100, key: key(1), seen: 8 };
        assert_eq!(machine.on_day(9, &stolen, &rules(&[1])), Err(withdrawn.clone()));
        let allowed = TrustRules { allows_older: true, ..rules(&[1]) };
        assert_eq!(machine.on_day(9, &stolen, &allowed), Err(withdrawn), "it is not older");
        assert!(machine.on_day(9, &stolen, &rules(&[2])).is_err());
        assert!(machine.on_day(9, &stolen, &rules(&[])).is_err());
        let listing_itself = head_of(7, 100, &[1], &[1, 2]);
        assert!(machine.on_day(9, &listing_itself, &rules(&[1])).is_err());
        assert!(machine.on_day(9, &head(9, &[2]), &rules(&[1])).is_ok());
        // A head may be the last one of its own key, and is believed again.
        assert!(machine.on_day(10, &head_of(7, 10, &[2], &[3]), &rules(&[1])).is_ok());
        assert!(machine.on_day(10, &head_of(7, 10, &[2], &[3]), &rules(&[2])).is_ok());
        assert!(machine.on_day(11, &head(11, &[2]), &rules(&[2])).is_err());
        // On request, an edition of the old key is believed, and changes no memory.
        let before = machine.0.clone();
        let warning = TrustWarning::Older { serial: 3, seen: 10 };
        assert_eq!(machine.on_day(10, &head(3, &[1]), &allowed), Ok(vec![warning]));
        assert_eq!(machine.0, before);
    }

    #[test]
    fn a_publication_with_the_id_of_another_one_has_a_memory_of_its_own() {
        let mut machine = after_a_change_of_key();
        let mut copy = head_of(7, 1000, &[9], &[9, 2]);
        assert!(believe_head(&copy, "elsewhere", &rules(&[9]), &mut machine.0, Timestamp(0)).is_ok());
        assert!(machine.on_day(9, &head(9, &[2]), &rules(&[1])).is_ok());
        assert!(machine.on_day(9, &copy, &rules(&[1])).is_err());
        copy = head_of(7, 10, &[9], &[9]);
        assert!(machine.on_day(10, &copy, &rules(&[2])).is_err());
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
