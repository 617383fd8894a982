use proptest::prelude::*;

use super::*;
use crate::{BlockForm, MapEntry, MapLevel, MapPage, ObjectPart, StoredCompression};

fn signers(count: u8) -> Vec<EditionSigner> {
    (1..=count).map(|seed| EditionSigner::from_seed([seed; 32])).collect()
}

fn keys(count: u8) -> Vec<EditionKey> {
    signers(count).iter().map(EditionSigner::key).collect()
}

fn image(name: &str) -> PublishedImage {
    let part = |text: &str, bytes| Some(StoredPart { name: ObjectName::of(text.as_bytes()), bytes });
    PublishedImage {
        name: name.to_owned(),
        time: Timestamp(1_777_669_200_000_000_000),
        shape: DiskShape { size: 2 << 30, block_bytes: PublishedBlockBytes::default() },
        root: part("root", 400).unwrap(),
        cipher: ImageCipher::None,
        profile: part("profile", 5800),
        machine: None,
    }
}

fn fields() -> EditionFields {
    EditionFields {
        id: [9; 16],
        serial: 7,
        time: Timestamp(1_777_672_800_000_000_000),
        expires: Timestamp(1_785_448_800_000_000_000),
        mirrors: vec!["https://mirror.example/disks".into()],
        keys: keys(2),
        images: vec![image("day"), PublishedImage { cipher: ImageCipher::Aes256Gcm, ..image("night shift") }],
        trees: BTreeMap::from([(ObjectName::of(b"root"), ObjectName::of(b"tree"))]),
    }
}

fn signed(text: &str) -> Vec<u8> {
    let signer = &signers(1)[0];
    let signature = STANDARD.encode(signer.sign(text.as_bytes()));
    format!("{text}{SIGNATURE}{} {signature}\n", signer.key().to_base64()).into_bytes()
}

#[test]
fn a_head_is_the_documented_text() {
    let bytes = EditionHead::new(fields()).unwrap().sign(&signers(1)).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (body, signature) = text.split_once(SIGNATURE).unwrap();
    let root = ObjectName::of(b"root");
    let profile = ObjectName::of(b"profile");
    let tree = ObjectName::of(b"tree");
    let [one, two] = [0, 1].map(|at| keys(2)[at].to_base64());
    let expected = format!(
        "varve publication 1\n\
         id = 09090909090909090909090909090909\n\
         serial = 7\n\
         time = 2026-05-01T22:00:00Z\n\
         expires = 2026-07-30T22:00:00Z\n\
         mirror = https://mirror.example/disks\n\
         key = {one}\n\
         key = {two}\n\
         image = day 2026-05-01T21:00:00Z 2147483648 131072 {root} 400 none {profile} 5800\n\
         image = night%20shift 2026-05-01T21:00:00Z 2147483648 131072 {root} 400 aes-256-gcm {profile} 5800\n\
         tree = {root} {tree}\n"
    );
    assert_eq!(body, expected);
    assert!(signature.starts_with(&format!("{one} ")) && signature.ends_with("==\n"), "{signature}");
}

const PAGE: &str = include_str!("../../../../docs/internals/publication-format.md");

/// The section of the page with a whole publication: this program writes the same bytes.
#[test]
fn the_publication_on_the_page_is_that_of_this_program() {
    let (_, section) = PAGE.split_once("## 9. A whole publication\n").unwrap();
    let (_, head) = section.split_once("```text\n").unwrap();
    let (head, _) = head.split_once("```").unwrap();
    let signer = EditionSigner::from_seed([7; 32]);
    assert!(section.contains(&format!("`#{}`", signer.key())), "the address");
    assert!(section.contains(&format!("The head has {} bytes", head.len())));
    let opened = EditionHead::open(head.as_bytes(), &[signer.key()]).unwrap();
    let image = &opened.head.fields().images[0];
    let digits: String = section.split_whitespace().collect();

    let mut content = b"hello".to_vec();
    for level in [None, Some(MapLevel::Blocks { page: 0 }), Some(MapLevel::Root)] {
        if let Some(level) = level {
            let stored = BlockForm::Plain.store(&content, StoredCompression::None);
            let part = ObjectPart::alone(ObjectName::of(&stored), u32::try_from(stored.len()).unwrap());
            content = MapPage::new(vec![MapEntry::Stored(part)], &image.shape, level).unwrap().encode(level);
        }
        let stored = BlockForm::Plain.store(&content, StoredCompression::None);
        assert!(digits.contains(&to_hex(&stored)), "{level:?}");
        assert!(section.contains(&format!("`{}`", ObjectName::of(&stored))), "{level:?}");
        assert_eq!(image.root.name == ObjectName::of(&stored), level == Some(MapLevel::Root));
    }
    assert_eq!(opened.head.sign(&[signer]).unwrap(), head.as_bytes());
}

#[test]
fn answers_that_are_no_heads_are_named() {
    let open = |bytes: &[u8]| EditionHead::open(bytes, &keys(1)).unwrap_err();
    for html in ["<!DOCTYPE html>\n<html>", "\n <html>", "<a/>"] {
        assert_eq!(open(html.as_bytes()), OpenHeadError::Html, "{html}");
    }
    assert_eq!(open(b"\x1f\x8b\x08\x00"), OpenHeadError::Gzip);
    assert_eq!(open(b"varve publication 1\n"), OpenHeadError::NotSigned);
}

#[test]
fn a_key_is_trusted_or_not() {
    let head = EditionHead::new(fields()).unwrap();
    let bytes = head.sign(&signers(2)).unwrap();
    for trusted in [&keys(1)[..], &keys(2)[1..], &keys(4)] {
        let opened = EditionHead::open(&bytes, trusted).unwrap();
        assert_eq!((&opened.head, opened.signers), (&head, keys(2)));
    }
    let error = EditionHead::open(&bytes, &keys(3)[2..]).unwrap_err();
    assert_eq!(error, OpenHeadError::OtherKeys { signers: keys(2) });
    assert!(error.to_string().contains(&keys(1)[0].to_string()), "{error}");
    assert!(EditionHead::open(&bytes, &[]).is_err());
}

#[test]
fn unknown_lines_are_skipped() {
    let head = EditionHead::new(fields()).unwrap();
    let text = head.lines().replace("serial", "colour = blue = green\nserial");
    assert_eq!(EditionHead::open(&signed(&text), &keys(1)).unwrap().head, head);
}

#[test]
fn wrong_lines_are_named() {
    let good = EditionHead::new(fields()).unwrap().lines();
    for (from, to, says) in [
        ("publication 1", "publication 2", "newer than this program"),
        ("serial = 7\n", "", "no line \"serial\""),
        ("serial = 7", "serial = 07", "line 3 is invalid"),
        ("serial = 7", "serial = 7\nserial = 8", "line 4 is invalid: an earlier line"),
        ("serial = 7", "serial", "line 3 is invalid: it has no \" = \""),
        ("id = 09", "id = 9", "32 digits"),
        ("22:00:00Z\nexpires", "22:00Z\nexpires", "a time has the form"),
        ("expires = 2026-07", "expires = 2025-07", "expires before"),
        ("https://", "ftp://", "http:// or https://"),
        ("131072", "131073", "power of two"),
        ("2147483648", "18446744073709551616", "size of an image"),
        (" 400 ", " 0 ", "impossible length"),
        (" 400 ", " 16777217 ", "impossible length"),
        (" none ", " rot13 ", "cipher"),
        ("night%20shift", "day", "twice"),
        ("night%20shift", "night shift", "a time has the form"),
        (" 5800\n", " 5800 1\n", "no length"),
        ("tree = ", "tree = 00", "64 digits"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let error = EditionHead::open(&signed(&text), &keys(1)).unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error} is not {says}");
    }
}

#[test]
fn a_head_has_few_keys_and_signatures() {
    let head = EditionHead::new(fields()).unwrap();
    assert!(head.sign(&[]).is_err());
    assert!(head.sign(&signers(5)).is_err());
    assert!(
        head.sign(&[&signers(1)[..], &signers(1)[..]].map(|_| EditionSigner::from_seed([1; 32]))).is_err()
    );
    for keys in [vec![], keys(5), [keys(1), keys(1)].concat()] {
        assert!(EditionHead::new(EditionFields { keys, ..fields() }).is_err());
    }
    let mirrors = (0..17).map(|number| format!("https://{number}.example")).collect();
    assert!(EditionHead::new(EditionFields { mirrors, ..fields() }).is_err());
    let images = (0..8000).map(|number| image(&number.to_string())).collect();
    let error = EditionHead::new(EditionFields { images, ..fields() }).unwrap_err();
    assert!(matches!(error, HeadError::TooLong { .. }), "{error}");
    assert_eq!(EditionHead::open(&vec![b'\n'; HEAD_BYTES_MAX + 1], &keys(1)), Err(OpenHeadError::TooLong));
}

#[test]
fn forged_signatures_are_refused() {
    let bytes = EditionHead::new(fields()).unwrap().sign(&signers(1)).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let at = text.find(SIGNATURE).unwrap();
    let line = &text[at..];
    for (forged, says) in [
        (text[..at].to_owned(), "signatures at its end"),
        (text.trim_end().to_owned(), "signatures at its end"),
        (format!("{text}{line}"), "signed twice"),
        (format!("{text}image = x\n"), "no line of a signature"),
        (format!("{text}{}", line.repeat(4)), "signed twice"),
        (format!("{}serial = 9\n{line}", &text[..at]), "has not signed these lines"),
        (format!("{line}{text}"), "has not signed these lines"),
    ] {
        let error = EditionHead::open(forged.as_bytes(), &keys(1)).unwrap_err().to_string();
        assert!(error.contains(says), "{error} is not {says}");
    }
}

fn any_image() -> impl Strategy<Value = PublishedImage> {
    let part = || {
        (any::<u8>(), 1_u32..=16 << 20)
            .prop_map(|(seed, bytes)| StoredPart { name: ObjectName::of(&[seed]), bytes })
    };
    let times = (any::<i64>(), any::<u64>(), 16_u32..=20);
    let parts = (part(), proptest::option::of((part(), proptest::option::of(part()))));
    ("\\PC{1,12}", times, parts).prop_map(|(name, (time, size, shift), (root, more))| PublishedImage {
        name,
        time: Timestamp(time),
        shape: DiskShape { size, block_bytes: PublishedBlockBytes::new(1 << shift).unwrap() },
        root,
        cipher: if size % 2 == 0 { ImageCipher::None } else { ImageCipher::Aes256Gcm },
        profile: more.map(|(profile, _)| profile),
        machine: more.and_then(|(_, machine)| machine),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_head_is_read_as_it_was_written(
        id: [u8; 16], serial: u64, times: [i64; 2], images in proptest::collection::vec(any_image(), 0..6),
        trees in proptest::collection::vec((0_u8..9, any::<u8>()).prop_map(|(root, tree)| (ObjectName::of(&[root]), ObjectName::of(&[tree]))), 0..4),
    ) {
        let [time, expires] = [times[0].min(times[1]), times[0].max(times[1])].map(Timestamp);
        let fields = EditionFields { id, serial, time, expires, mirrors: Vec::new(), keys: keys(1), images, trees: trees.into_iter().collect() };
        let Ok(head) = EditionHead::new(fields) else { return Ok(()) };
        let bytes = head.sign(&signers(1)).unwrap();
        prop_assert_eq!(EditionHead::open(&bytes, &keys(1)).unwrap().head, head);
    }

    #[test]
    fn a_changed_byte_is_refused(at: usize, flip in 1_u8..) {
        let mut bytes = EditionHead::new(fields()).unwrap().sign(&signers(2)).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        prop_assert!(EditionHead::open(&bytes, &keys(2)).is_err());
    }

    #[test]
    fn no_signed_lines_panic(lines in "(\\PC|\n| = ){0,80}") {
        let text = format!("varve publication 1\nid = 09090909090909090909090909090909\n{lines}\n");
        if let Ok(opened) = EditionHead::open(&signed(&text), &keys(1)) {
            prop_assert!(opened.head.fields().keys.len() <= KEY_COUNT_MAX);
        }
    }
}
