//! Opening editions: which head is used, and what is remembered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_attach::{
    AttachedEdition, EditionOpener, OpenEditionError, PublicationServer, TrustError, TrustRules, choose_image,
};
use varve_edition::EditionSigner;
use varve_world::{MemoryStorage, Storage, Timestamp};

use crate::publication::{Layout, Publication, TestServer, disk_of, mirrors};

struct Machine {
    storage: Arc<dyn Storage>,
    rules: TrustRules,
}

impl Machine {
    fn new() -> Self {
        let rules = TrustRules { keys: vec![signer(1).key()], ..TrustRules::default() };
        Self { storage: Arc::new(MemoryStorage::new()), rules }
    }

    fn open(&self, servers: &[&Arc<TestServer>]) -> Result<AttachedEdition, OpenEditionError> {
        self.opener(&mirrors(servers)).open()
    }

    fn look(&self, servers: &[&Arc<TestServer>]) -> Result<AttachedEdition, OpenEditionError> {
        self.opener(&mirrors(servers)).look()
    }

    fn opener<'a>(&'a self, mirrors: &'a [PublicationServer]) -> EditionOpener<'a> {
        EditionOpener {
            place: "server 0",
            mirrors,
            rules: &self.rules,
            folder: Some(&*self.storage),
            patience: Some(Duration::from_millis(300)),
            now: Timestamp(10),
        }
    }
}

fn signer(seed: u8) -> EditionSigner {
    EditionSigner::from_seed([seed; 32])
}

fn serial(edition: &AttachedEdition) -> u64 {
    edition.head.fields().serial
}

fn published(number: u64) -> (Publication, Arc<TestServer>) {
    let publication = Publication::new(disk_of(3), Layout::Alone);
    publication.put_head(number, &signer(1));
    let server = TestServer::with(&publication.objects);
    (publication, server)
}

#[test]
fn the_cached_head_is_used_only_if_nobody_answers() {
    let (publication, server) = published(5);
    let machine = Machine::new();
    let none = machine.open(&[]).unwrap_err();
    assert!(matches!(none, OpenEditionError::NotCached { .. }), "{none}");
    let opened = machine.open(&[&server]).unwrap();
    assert_eq!((serial(&opened), opened.cached_because), (5, None));
    // The server says that the head is as before.
    let opened = machine.open(&[&server]).unwrap();
    assert_eq!((serial(&opened), opened.cached_because), (5, None));
    publication.put_head(6, &signer(1));
    assert_eq!(serial(&machine.open(&[&server]).unwrap()), 6);
    server.set(|faults| faults.is_down = true);
    let cached = machine.open(&[&server]).unwrap();
    assert_eq!(serial(&cached), 6);
    assert!(cached.cached_because.unwrap().contains("nobody answers"));
    assert_eq!(serial(&machine.open(&[]).unwrap()), 6);

    // An older head is refused, and the cached one is no excuse for it.
    server.set(|faults| faults.is_down = false);
    publication.put_head(5, &signer(1));
    let older = machine.open(&[&server]).unwrap_err();
    assert!(
        matches!(older, OpenEditionError::Trust { source: TrustError::Older { serial: 5, seen: 6 }, .. }),
        "{older}"
    );
    publication.put_head(7, &signer(2));
    let other = machine.open(&[&server]).unwrap_err();
    assert!(matches!(other, OpenEditionError::Trust { source: TrustError::Head(_), .. }), "{other}");
    // Another machine does not know better.
    publication.put_head(5, &signer(1));
    assert_eq!(serial(&Machine::new().open(&[&server]).unwrap()), 5);
}

/// A server that sends its head slowly ends neither the others nor the reader.
#[test]
fn each_server_has_the_patience_of_the_reader_for_its_head() {
    let (_, slow) = published(5);
    let (_, good) = published(5);
    slow.set(|faults| faults.delay = Duration::from_secs(20));
    let begun = Instant::now();
    assert_eq!(serial(&Machine::new().open(&[&slow, &good]).unwrap()), 5);
    let error = Machine::new().open(&[&slow]).unwrap_err();
    assert!(matches!(error, OpenEditionError::Target { .. }), "{error}");
    assert!(varve_block::with_causes(&error).contains("it has not come within 0.3 s"), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_full_disk_keeps_nobody_from_reading() {
    let (_, server) = published(5);
    let storage = MemoryStorage::new();
    storage.set_bytes_max(Some(10));
    let machine = Machine { storage: Arc::new(storage), ..Machine::new() };
    let opened = machine.open(&[&server]).unwrap();
    assert!(serial(&opened) == 5 && opened.not_remembered.is_some(), "{:?}", opened.not_remembered);
}

#[test]
fn a_look_at_a_newer_edition_changes_nothing() {
    let (publication, server) = published(5);
    let machine = Machine::new();
    machine.open(&[&server]).unwrap();
    assert_eq!(serial(&machine.look(&[&server]).unwrap()), 5);
    publication.put_head(6, &signer(1));
    assert_eq!(serial(&machine.look(&[&server]).unwrap()), 6);
    // The edition in use is the one that works without a server.
    server.set(|faults| faults.is_down = true);
    assert!(matches!(machine.look(&[&server]), Err(OpenEditionError::Target { .. })));
    assert!(matches!(machine.look(&[]), Err(OpenEditionError::NotCached { .. })));
    assert_eq!(serial(&machine.open(&[&server]).unwrap()), 5);
    server.set(|faults| faults.is_down = false);
    publication.put_head(7, &signer(2));
    assert!(matches!(machine.look(&[&server]), Err(OpenEditionError::Trust { .. })));
}

#[test]
fn a_mirror_has_the_head_if_the_first_server_has_not() {
    let (_, old) = published(3);
    let (_, new) = published(4);
    let machine = Machine::new();
    assert_eq!(serial(&machine.open(&[&new]).unwrap()), 4);
    // The first server is behind its mirror.
    assert_eq!(serial(&machine.open(&[&old, &new]).unwrap()), 4);
    old.set(|faults| faults.is_down = true);
    assert_eq!(serial(&machine.open(&[&old, &new]).unwrap()), 4);
    let (empty, lacking) = published(9);
    empty.objects.set(&varve_world::FileName::new("head").unwrap(), None);
    let missing = machine.open(&[&lacking]).unwrap_err();
    assert!(matches!(missing, OpenEditionError::NoHead { .. }), "{missing}");
    assert_eq!(serial(&machine.open(&[&lacking, &new]).unwrap()), 4);
}

#[test]
fn a_damaged_record_is_not_forgotten_silently() {
    let (_, server) = published(5);
    let machine = Machine::new();
    machine.open(&[&server]).unwrap();
    let record = varve_world::FileName::new("trust").unwrap();
    machine.storage.create_anew(&record).unwrap();
    machine.storage.append(&record, b"varve trust 1\nnonsense\n").unwrap();
    let error = machine.open(&[&server]).unwrap_err();
    assert!(matches!(error, OpenEditionError::Record(_)), "{error}");
}

#[test]
fn images_are_chosen_by_name_and_time() {
    let image = |name: &str, time: i64| {
        let mut image = Publication::new(disk_of(1), Layout::Alone).image;
        (image.name, image.time) = (name.into(), Timestamp(time));
        image
    };
    let images = [image("web", 10), image("web", 20), image("db", 15)];
    let choose = |name, at: Option<i64>| {
        choose_image(&images, name, at.map(Timestamp)).map(|image| (image.name.as_str(), image.time.0))
    };
    assert_eq!(choose(Some("web"), None), Ok(("web", 20)));
    assert_eq!(choose(Some("web"), Some(19)), Ok(("web", 10)));
    assert_eq!(choose(Some("db"), Some(15)), Ok(("db", 15)));
    for (name, at, says) in [
        (None, None, "several images: name one of them: db, web"),
        (Some("mail"), None, "no image \"mail\": it has db, web"),
        (Some("web"), Some(9), "the oldest image \"web\" is younger"),
    ] {
        let error = choose(name, at).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(choose_image(&images[..2], None, None).unwrap().time, Timestamp(20));
    assert!(choose_image(&[], None, None).is_err());
}
