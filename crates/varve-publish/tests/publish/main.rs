//! Publications in memory: what they cost, what they lead to, and what an interruption leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;
use varve_block::{BlockKind, BlockStore, MemoryBlockStore};
use varve_edition::{
    BlockForm, CheckedBlock, DiskProfile, EditionContentKey, EditionHead, EditionSigner, HEAD_NAME,
    MachineDescription, MapEntry, MapLevel, MapPage, ObjectName, ObjectPart, ProfileRead,
    PublishedBlockBytes, PublishedImage, StoredCompression,
};
use varve_publish::{
    CheckedPublication, ImageToPublish, MachineSource, ProfileSource, PruneError, PrunePlan,
    PublicationLayout, PublishError, PublishOptions, PublishReport, Publisher, check_publication,
};
use varve_remote::{Capabilities, MemoryTarget, Object, PutMode, Target, TargetError};
use varve_tree::{Entry, FixedBuilder, Shape, put_leaves};
use varve_world::{FileName, InlineWorkers, RealWorkers, Timestamp};

const BLOCK: u64 = 64 << 10;
const BLOCK_WORDS: u32 = (64 << 10) / 4;
const DAY: i64 = 86_400 * 1_000_000_000;

fn signers(seed: u8) -> Vec<EditionSigner> {
    vec![EditionSigner::from_seed([seed; 32])]
}

/// A disk of numbered blocks; block 0 is zeros.
fn disk(numbers: &[u16], rest: usize) -> Vec<u8> {
    let block = |number: &u16| {
        let words =
            (0..BLOCK_WORDS).map(|at| if *number == 0 { 0 } else { u32::from(*number) * 1000 + at % 97 });
        words.flat_map(u32::to_le_bytes).collect::<Vec<_>>()
    };
    let mut bytes: Vec<u8> = numbers.iter().flat_map(block).collect();
    bytes.truncate(bytes.len().saturating_sub(rest));
    bytes
}

fn archive(blocks: &MemoryBlockStore, bytes: &[u8]) -> Entry {
    let shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 16 << 10, pointer_bytes: 4096 };
    let mut builder = FixedBuilder::new(blocks, shape);
    builder.push(&put_leaves(blocks, &shape, bytes).unwrap()).unwrap();
    builder.finish(bytes.len() as u64).unwrap()
}

/// The form of an encrypted disk.
fn encrypted(seed: u8) -> BlockForm {
    EditionContentKey::from_bytes([seed; 32]).form()
}

fn all_forms() -> [BlockForm; 2] {
    [encrypted(1), encrypted(2)]
}

fn options(now: i64) -> PublishOptions {
    PublishOptions {
        form: BlockForm::Plain,
        known_forms: Vec::new(),
        changes_encryption: false,
        block_bytes: PublishedBlockBytes::new(BLOCK).unwrap(),
        compression: StoredCompression::Zstd(1),
        layout: PublicationLayout::Packs,
        keep: None,
        lifetime: 90 * DAY,
        damaged: BTreeSet::new(),
        mirrors: Vec::new(),
        is_dry_run: false,
        now: Timestamp(now),
        new_id: [7; 16],
    }
}

/// An archive, and the disks that were published from it.
#[derive(Default)]
struct Archive {
    blocks: MemoryBlockStore,
    entries: Vec<Entry>,
    /// The profile of the next disk.
    profile: ProfileSource,
    /// The machine of the next disk.
    machine: MachineSource,
}

impl Archive {
    fn publish(
        &mut self,
        target: &dyn Target,
        time: i64,
        bytes: &[u8],
        options: &PublishOptions,
    ) -> Result<PublishReport, PublishError> {
        let entry = archive(&self.blocks, bytes);
        let profile = self.profile.clone();
        let image = ImageToPublish {
            name: "day".into(),
            time: Timestamp(time),
            entry,
            profile,
            machine: self.machine,
        };
        let publisher = Publisher {
            target,
            blocks: &self.blocks as &dyn BlockStore,
            workers: &InlineWorkers,
            signers: &signers(1),
            mover: &(),
            observer: &(),
        };
        let report = publisher.publish(&[image], &self.entries, options);
        self.entries.push(entry);
        report
    }
}

/// The profile of a start that reads these blocks.
fn profile(blocks: impl IntoIterator<Item = u64>) -> DiskProfile {
    let reads = (0..).zip(blocks).map(|(milliseconds, block)| ProfileRead {
        milliseconds,
        range: block * BLOCK + 4096..block * BLOCK + 8192,
    });
    DiskProfile::from_reads(1 << 40, reads)
}

fn get_part(target: &dyn Target, part: &ObjectPart) -> Bytes {
    let name = FileName::new(&part.object.path()).unwrap();
    target.get(&name, part.offset.into()..u64::from(part.offset) + u64::from(part.bytes)).unwrap()
}

fn newest_image(target: &dyn Target) -> PublishedImage {
    let head_bytes = contents(target)[HEAD_NAME];
    let head = target.get(&FileName::new(HEAD_NAME).unwrap(), 0..head_bytes).unwrap();
    let opened = EditionHead::open(&head, &[signers(1)[0].key()]).unwrap();
    opened.head.fields().images.iter().max_by_key(|image| image.time).unwrap().clone()
}

/// The stored blocks of the newest image, by their place on the disk.
fn stored_parts(target: &dyn Target) -> BTreeMap<u64, ObjectPart> {
    let image = newest_image(target);
    let page = |part: &ObjectPart, level| {
        let stored = get_part(target, part);
        let checked = CheckedBlock::check(&stored, &part.name).unwrap();
        let forms = [&[BlockForm::Plain][..], &all_forms()].concat();
        let open = |form: &BlockForm| MapPage::open(checked, form, &image.shape, level).ok();
        forms.iter().filter(|form| form.fits(image.cipher)).find_map(open).unwrap()
    };
    let root = page(&ObjectPart::alone(image.root.name, image.root.bytes), MapLevel::Root);
    let mut parts = BTreeMap::new();
    for (number, entry) in (0_u64..).zip(root.entries()) {
        let MapEntry::Stored(part) = entry else { continue };
        for (block, entry) in (number * 1024..).zip(page(part, MapLevel::Blocks { page: number }).entries()) {
            if let MapEntry::Stored(part) = entry {
                parts.insert(block, *part);
            }
        }
    }
    parts
}

fn check(target: &dyn Target) -> CheckedPublication {
    let keys = [signers(1)[0].key()];
    check_publication(target, &keys, &all_forms(), &RealWorkers::new(3)).unwrap()
}

fn contents(target: &dyn Target) -> BTreeMap<String, u64> {
    target.list("").unwrap().into_iter().map(|object| (object.name.to_string(), object.bytes)).collect()
}

/// The bytes of the newest image.
fn contents_of_newest(target: &dyn Target) -> Vec<u8> {
    let size = usize::try_from(newest_image(target).shape.size).unwrap();
    let mut bytes = vec![0; size];
    for (block, part) in stored_parts(target) {
        let stored = get_part(target, &part);
        let checked = CheckedBlock::check(&stored, &part.name).unwrap();
        let forms = [&[BlockForm::Plain][..], &all_forms()].concat();
        let fitting = forms.iter().filter(|form| form.fits(newest_image(target).cipher));
        let content = fitting.filter_map(|form| checked.unpack(form, 1 << 20).ok()).next().unwrap();
        let start = usize::try_from(block * BLOCK).unwrap();
        bytes[start..start + content.len()].copy_from_slice(&content);
    }
    bytes
}

#[test]
fn the_next_edition_reads_and_uploads_only_what_changed() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    let mut numbers: Vec<u16> = (1..=2500).collect();
    numbers[7] = 0;
    numbers[2000] = 5;
    let first = archive.publish(&target, 1, &disk(&numbers, 999), &options(DAY)).unwrap();
    assert_eq!((first.serial, first.images[0].read_count), (1, 2499));
    // One block is there twice; then there are three pages and the root.
    assert_eq!(first.object_count, 2498 + 3 + 1);
    let checked = check(&target);
    assert_eq!((checked.finding_count, checked.block_count), (0, 2498));

    numbers[100] = 60_000;
    numbers[2400] = 0;
    let second = archive.publish(&target, 2, &disk(&numbers, 999), &options(2 * DAY)).unwrap();
    assert_eq!((second.serial, second.listed_count), (2, 2));
    assert_eq!((second.images[0].read_count, second.images[0].kept_count), (1, 2497));
    assert_eq!(second.object_count, 1 + 2 + 1, "a block, two pages and the root");

    let again = archive.publish(&target, 2, &disk(&numbers, 999), &options(3 * DAY)).unwrap();
    assert!(again.images[0].was_there && again.object_count == 0);
    assert_eq!((again.serial, again.listed_count), (3, 2));
    assert_eq!(check(&target).finding_count, 0);
}

#[test]
fn the_blocks_of_a_profile_lie_together_in_its_order() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    let mut numbers: Vec<u16> = (1..=2500).collect();
    numbers[30] = 0;
    let order: Vec<u64> = vec![2000, 7, 8, 30, 1500, 9, 2001];
    archive.profile = ProfileSource::Given(profile(order.clone()));
    let first = archive.publish(&target, 1, &disk(&numbers, 999), &options(DAY)).unwrap();
    assert_eq!((first.images[0].packed_count, first.images[0].read_count), (Some(7), 2499));
    // Six blocks and the two pages that lead to them are in two packs. The profile is one more.
    assert_eq!(first.object_count, 2499 - 6 + 1 + 1 + 1 + 1 + 1);
    let parts = stored_parts(&target);
    let packed: Vec<_> = order.iter().filter_map(|block| parts.get(block)).collect();
    assert_eq!(packed.len(), 6, "a block of zeros is not stored");
    assert!(packed.windows(2).all(|two| two[0].object == two[1].object));
    assert!(packed.windows(2).all(|two| two[0].offset + two[0].bytes == two[1].offset));
    let others = parts.values().filter(|part| part.object != part.name).count();
    assert_eq!(others, 6, "no other block is packed");
    assert_eq!(check(&target).finding_count, 0);

    // The next night has the same profile without a word about it. One of its blocks has changed.
    archive.profile = ProfileSource::Earlier;
    numbers[8] = 60_000;
    let second = archive.publish(&target, 2, &disk(&numbers, 999), &options(2 * DAY)).unwrap();
    assert_eq!((second.images[0].packed_count, second.images[0].read_count), (Some(7), 1));
    assert_eq!(second.object_count, 1 + 1 + 1, "a block, its page and the root");
    assert_eq!(check(&target).finding_count, 0);

    // Most blocks of the first pack change. Its remaining blocks are packed anew, and so is the
    // block that lies alone.
    for block in [2000, 7, 1500] {
        numbers[block] += 20_000;
    }
    let third = archive.publish(&target, 3, &disk(&numbers, 999), &options(3 * DAY)).unwrap();
    assert_eq!((third.images[0].read_count, third.images[0].kept_count), (3 + 2 + 1, 2499 - 6));
    let parts = stored_parts(&target);
    let packs: BTreeSet<_> =
        order.iter().filter_map(|block| parts.get(block)).map(|part| part.object).collect();
    assert_eq!(packs.len(), 1);
    assert_eq!(check(&target).finding_count, 0);

    archive.profile = ProfileSource::None;
    let plain = archive.publish(&target, 4, &disk(&numbers, 999), &options(4 * DAY)).unwrap();
    assert_eq!((plain.images[0].packed_count, plain.images[0].read_count), (None, 0));
}

#[test]
fn a_machine_is_described_until_another_one_is() {
    let machine =
        |cpu_count| MachineDescription { cpu_count: Some(cpu_count), ..MachineDescription::default() };
    for form in [BlockForm::Plain, encrypted(1)] {
        let (target, mut archive) = (MemoryTarget::new(), Archive::default());
        let options = |day: i64| PublishOptions { form: form.clone(), ..options(day * DAY) };
        let described = |target: &MemoryTarget| {
            let part = newest_image(target).machine?;
            let stored = get_part(target, &ObjectPart::alone(part.name, part.bytes));
            let text = CheckedBlock::check(&stored, &part.name).unwrap().unpack(&form, 4096).unwrap();
            Some(MachineDescription::parse(&text).unwrap())
        };
        archive.machine = MachineSource::Given(machine(2));
        let first = archive.publish(&target, 1, &disk(&[1, 2], 0), &options(1)).unwrap();
        // Two blocks, a page, the root, the machine, and an empty profile, which packs nothing.
        assert_eq!((first.object_count, first.images[0].packed_count), (6, None));
        archive.machine = MachineSource::Earlier;
        let second = archive.publish(&target, 2, &disk(&[1, 3], 0), &options(2)).unwrap();
        assert_eq!((second.object_count, second.images[0].packed_count), (3, None));
        assert_eq!(described(&target), Some(machine(2)));
        // The same image with another machine, and then without one.
        archive.machine = MachineSource::Given(machine(3));
        let other = archive.publish(&target, 2, &disk(&[1, 3], 0), &options(3)).unwrap();
        assert_eq!((other.object_count, other.listed_count, described(&target)), (1, 2, Some(machine(3))));
        assert!(archive.publish(&target, 2, &disk(&[1, 3], 0), &options(4)).unwrap().images[0].was_there);
        assert_eq!(check(&target).finding_count, 0);
        archive.machine = MachineSource::None;
        archive.publish(&target, 3, &disk(&[1, 3], 0), &options(5)).unwrap();
        assert_eq!((described(&target), newest_image(&target).profile), (None, None));
        // A prune keeps the machines of listed images.
        let keys = [signers(1)[0].key()];
        PrunePlan::new(&target, &keys, &all_forms(), Timestamp(9 * DAY), 0).unwrap().apply(&target).unwrap();
        assert_eq!(check(&target).finding_count, 0);
    }
}

/// Options of an encrypted edition.
fn with_key(seed: u8, now: i64) -> PublishOptions {
    PublishOptions { form: encrypted(seed), ..options(now) }
}

/// All bytes but those of the page that describes the format.
fn all_bytes(target: &dyn Target) -> Vec<u8> {
    let files = contents(target);
    files
        .iter()
        .filter(|(name, _)| *name != "FORMAT.md")
        .flat_map(|(name, bytes)| target.get(&FileName::new(name).unwrap(), 0..*bytes).unwrap())
        .collect()
}

#[test]
fn an_encrypted_edition_costs_what_has_changed_and_shows_no_content() {
    for layout in [PublicationLayout::Packs, PublicationLayout::Files] {
        let (target, mut archive) = (MemoryTarget::new(), Archive::default());
        let with_key = |seed, now| PublishOptions {
            layout,
            compression: StoredCompression::None,
            ..with_key(seed, now)
        };
        let mut numbers: Vec<u16> = (1..=1200).collect();
        archive.profile = ProfileSource::Given(profile([1100, 7, 8]));
        let first = archive.publish(&target, 1, &disk(&numbers, 999), &with_key(1, DAY)).unwrap();
        // In packs, three blocks are in one pack and two pages in another one.
        let expected = if layout == PublicationLayout::Packs { 1200 - 3 + 1 + 1 } else { 1200 + 2 };
        assert_eq!(first.object_count, expected + 1 + 1, "with the root and the profile");
        archive.profile = ProfileSource::Earlier;
        numbers[8] = 60_000;
        numbers[1190] = 0;
        let second = archive.publish(&target, 2, &disk(&numbers, 999), &with_key(1, 2 * DAY)).unwrap();
        assert_eq!((second.images[0].read_count, second.images[0].kept_count), (1, 1198));
        // A block, its page, the page of the zeros and the root. Pages of packed blocks are packed.
        let expected = if layout == PublicationLayout::Packs { 1 + 1 + 1 } else { 1 + 2 + 1 };
        assert_eq!(second.object_count, expected, "{layout:?}");
        let again = archive.publish(&target, 2, &disk(&numbers, 999), &with_key(1, 3 * DAY)).unwrap();
        assert!(again.images[0].was_there && again.object_count == 0);
        assert!(contents_of_newest(&target) == disk(&numbers, 999));
        assert_eq!((check(&target).finding_count, check(&target).unopened.len()), (0, 0));

        let published = all_bytes(&target);
        let has = |text: &[u8]| published.windows(text.len()).any(|part| part == text);
        let block = disk(&[9], 0);
        assert!(has(b"aes-256-gcm") && !has(b"VARVEMAP") && !has(b"varve profile") && !has(&block[..64]));
        for entry in &archive.entries {
            let tree = ObjectName::of(&entry.encode()).to_string();
            assert!(!has(tree.as_bytes()), "the hint for the publisher confirms no guess");
        }
    }
}

#[test]
fn a_check_without_the_content_key_says_what_it_has_not_seen() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    archive.profile = ProfileSource::Given(profile([3, 1]));
    archive.publish(&target, 1, &disk(&[1, 2, 3, 4, 5], 0), &with_key(1, DAY)).unwrap();
    let keys = [signers(1)[0].key()];
    let check_with = |forms: &[BlockForm]| check_publication(&target, &keys, forms, &InlineWorkers).unwrap();
    let whole = contents(&target);
    let objects: Vec<_> = whole.keys().filter(|name| name.starts_with("objects/")).cloned().collect();
    for forms in [&[][..], &[encrypted(2)]] {
        let checked = check_with(forms);
        assert_eq!((checked.finding_count, checked.unopened.len()), (0, 1));
        // The root and the profile are named by the head.
        assert_eq!(checked.compared_count, Some(objects.len() as u64 - 2));
    }
    let checked = check_with(&[encrypted(2), encrypted(1)]);
    assert_eq!((checked.finding_count, checked.unopened.len(), checked.compared_count), (0, 0, None));
    for object in &objects {
        let name = FileName::new(object).unwrap();
        let good = target.get(&name, 0..whole[object]).unwrap();
        let mut flipped = good.to_vec();
        flipped[good.len() / 2] ^= 1;
        target.set(&name, Some(flipped.into()));
        for forms in [&[][..], &[encrypted(1)]] {
            let checked = check_with(forms);
            assert_eq!(checked.finding_count, 1, "{object}");
            assert!(object.contains(&checked.findings[0].object.to_string()));
        }
        target.set(&name, None);
        assert_eq!(check_with(&[encrypted(1)]).finding_count, 1, "{object} is missing");
        target.set(&name, Some(good));
    }
}

#[test]
fn nothing_encrypted_is_opened_or_locked_by_accident() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    let bytes = disk(&[1, 2, 3, 4], 0);
    archive.profile = ProfileSource::Given(profile([2, 1]));
    let plain = archive.publish(&target, 1, &bytes, &options(DAY)).unwrap();
    // Encryption makes all objects anew, and reports the image that stays open.
    archive.profile = ProfileSource::Earlier;
    let first = archive.publish(&target, 2, &bytes, &with_key(1, 2 * DAY)).unwrap();
    assert_eq!((first.object_count, first.images[0].read_count), (plain.object_count, 4));
    assert_eq!((first.unencrypted_count, first.images[0].packed_count), (1, Some(2)));
    let before = contents(&target);
    for options in [options(3 * DAY), with_key(2, 3 * DAY)] {
        for time in [1, 2, 3] {
            let refused = archive.publish(&target, time, &bytes, &options).unwrap_err();
            let is_right = match &options.form {
                BlockForm::Plain => matches!(refused, PublishError::Unencrypted { .. }),
                BlockForm::Encrypted(_) => matches!(refused, PublishError::OtherContentKey { .. }),
            };
            assert!(is_right, "{refused}");
        }
    }
    assert_eq!(contents(&target), before);

    // Another key needs the old one for the profile, or another choice.
    let change = PublishOptions { changes_encryption: true, ..with_key(2, 3 * DAY) };
    let refused = archive.publish(&target, 3, &bytes, &change).unwrap_err();
    assert!(matches!(refused, PublishError::EarlierProfile { .. }), "{refused}");
    let known = PublishOptions { known_forms: vec![encrypted(1)], ..change.clone() };
    let changed = archive.publish(&target, 3, &bytes, &known).unwrap();
    assert_eq!((changed.object_count, changed.images[0].packed_count), (plain.object_count, Some(2)));
    // The same image with the new key, too, and from now on without a word.
    let moved = archive.publish(&target, 2, &bytes, &with_key(2, 4 * DAY)).unwrap();
    assert_eq!((moved.images[0].was_there, moved.object_count, moved.listed_count), (false, 0, 3));
    assert!(archive.publish(&target, 2, &bytes, &with_key(2, 5 * DAY)).unwrap().images[0].was_there);
    let keep = PublishOptions { keep: Some(1), ..with_key(2, 6 * DAY) };
    let report = archive.publish(&target, 3, &bytes, &keep).unwrap();
    assert_eq!((report.dropped.len(), report.unencrypted_count), (2, 0));

    let open =
        PublishOptions { changes_encryption: true, known_forms: vec![encrypted(2)], ..options(7 * DAY) };
    let opened = archive.publish(&target, 4, &bytes, &open).unwrap();
    assert_eq!((opened.images[0].read_count, opened.object_count), (4, 0), "the old objects are still there");
    assert_eq!(newest_image(&target).cipher.to_string(), "none");
    assert_eq!(check(&target).finding_count, 0);
}

/// Two images with a key each: a page that is damaged is made anew, and the other image stays.
#[test]
fn a_damaged_page_of_an_encrypted_image_is_made_anew() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    let bytes = disk(&[1, 2, 3], 0);
    let first = archive.publish(&target, 1, &bytes, &with_key(1, DAY)).unwrap();
    let change = PublishOptions { changes_encryption: true, ..with_key(2, 2 * DAY) };
    let second = archive.publish(&target, 2, &bytes, &change).unwrap();
    assert_eq!(first.object_count, second.object_count, "no object serves both keys");
    for object in contents(&target).keys().filter(|name| name.starts_with("objects/")) {
        let name = FileName::new(object).unwrap();
        let good = target.get(&name, 0..contents(&target)[object]).unwrap();
        let mut flipped = good.to_vec();
        flipped[3] ^= 1;
        target.set(&name, Some(flipped.into()));
        let damaged: BTreeSet<_> =
            check(&target).findings.into_iter().map(|finding| finding.object).collect();
        assert_eq!(damaged.len(), 1);
        let keys = [signers(1)[0].key()];
        let plan = PrunePlan::new(&target, &keys, &all_forms(), Timestamp(3 * DAY), 0);
        assert!(plan.is_err() || plan.unwrap().removed.is_empty(), "{object}");
        for (time, seed) in [(1, 1), (2, 2)] {
            let repair = PublishOptions {
                damaged: damaged.clone(),
                changes_encryption: true,
                ..with_key(seed, 3 * DAY)
            };
            archive.publish(&target, time, &bytes, &repair).unwrap();
        }
        assert_eq!((check(&target).finding_count, check(&target).image_count), (0, 2), "{object}");
    }
}

#[test]
fn a_disk_that_was_published_without_a_profile_is_packed_later() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    let numbers: Vec<u16> = (1..=40).collect();
    archive.publish(&target, 1, &disk(&numbers, 0), &options(DAY)).unwrap();
    archive.profile = ProfileSource::Given(profile([5, 3]));
    let packed = archive.publish(&target, 2, &disk(&numbers, 0), &options(2 * DAY)).unwrap();
    assert_eq!((packed.images[0].read_count, packed.images[0].kept_count), (2, 38));
    assert_eq!(packed.object_count, 1 + 1 + 1 + 1, "a pack, a page, the root and the profile");
    // The same image again: once with the profile that it has, and once with another one.
    let again = archive.publish(&target, 2, &disk(&numbers, 0), &options(3 * DAY)).unwrap();
    assert!(again.images[0].was_there);
    archive.profile = ProfileSource::Given(profile([5, 3, 8]));
    let other = archive.publish(&target, 2, &disk(&numbers, 0), &options(4 * DAY)).unwrap();
    assert_eq!((other.images[0].was_there, other.listed_count), (false, 2));
    assert_eq!(check(&target).finding_count, 0);
    let parts = stored_parts(&target);
    assert_eq!((parts[&5].object, parts[&5].offset), (parts[&3].object, 0));
    assert_eq!(parts[&3].offset, parts[&5].bytes);
}

#[test]
fn a_disk_that_grows_is_not_confused_with_its_shorter_self() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    let numbers: Vec<u16> = (1..=1500).collect();
    archive.publish(&target, 1, &disk(&numbers[..900], 5), &options(DAY)).unwrap();
    let grown = archive.publish(&target, 2, &disk(&numbers, 0), &options(2 * DAY)).unwrap();
    assert_eq!((grown.images[0].read_count, grown.images[0].kept_count), (601, 899));
    let shrunk = archive.publish(&target, 3, &disk(&numbers[..100], 9), &options(3 * DAY)).unwrap();
    assert_eq!((shrunk.images[0].read_count, shrunk.images[0].kept_count), (1, 99));
    assert_eq!(check(&target).finding_count, 0);
}

#[test]
fn damage_at_the_target_is_found_and_a_missing_object_is_uploaded_again() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    let bytes = disk(&[1, 2, 3, 4, 5], 0);
    archive.publish(&target, 1, &bytes, &options(DAY)).unwrap();
    let whole = contents(&target);
    let objects: Vec<_> = whole.keys().filter(|name| name.starts_with("objects/")).cloned().collect();
    assert_eq!(objects.len(), 5 + 1 + 1);
    let is_page = |object: &&String| {
        let stored = target.get(&FileName::new(object).unwrap(), 0..whole[*object]).unwrap();
        let checked = CheckedBlock::check(&stored, &ObjectName::of(&stored)).unwrap();
        checked.unpack(&BlockForm::Plain, 1 << 20).unwrap().starts_with(b"VARVEMAP")
    };
    let pages: Vec<_> = objects.iter().filter(is_page).cloned().collect();
    assert_eq!(pages.len(), 2);
    for object in &objects {
        let name = FileName::new(object).unwrap();
        let good = target.get(&name, 0..whole[object]).unwrap();
        let mut flipped = good.to_vec();
        flipped[good.len() / 2] ^= 1;
        for bad in [None, Some(good.slice(1..)), Some(Bytes::from(flipped))] {
            target.set(&name, bad);
            let checked = check(&target);
            assert_eq!(checked.finding_count, 1, "{object}");
            assert!(object.contains(&checked.findings[0].object.to_string()));
        }
        // A page is read by the next publication; a damaged block is not, and is removed by hand.
        if pages.contains(object) {
            assert_ne!(target.get(&name, 0..whole[object]).unwrap(), good);
        } else {
            target.set(&name, None);
        }
        let time = i64::try_from(archive.entries.len()).unwrap() + 1;
        archive.publish(&target, time, &bytes, &options(time * DAY)).unwrap();
        assert_eq!(check(&target).finding_count, 0, "{object}");
    }
}

#[test]
fn only_the_holder_of_the_key_publishes() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    archive.publish(&target, 1, &disk(&[1], 0), &options(DAY)).unwrap();
    let before = contents(&target);
    let publish = |keys: &[EditionSigner]| {
        let publisher = Publisher {
            target: &target,
            blocks: &archive.blocks,
            workers: &InlineWorkers,
            signers: keys,
            mover: &(),
            observer: &(),
        };
        publisher.publish(&[], &[], &options(2 * DAY))
    };
    assert!(matches!(publish(&signers(2)), Err(PublishError::Read(_))));
    assert_eq!(contents(&target), before);
    // A new key signs beside the old one once, and then alone.
    publish(&signers(1).into_iter().chain(signers(2)).collect::<Vec<_>>()).unwrap();
    publish(&signers(2)).unwrap();
    assert!(matches!(publish(&signers(1)), Err(PublishError::Read(_))));
}

#[test]
fn a_dry_run_changes_nothing_and_counts_the_same() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    let dry = PublishOptions { is_dry_run: true, ..options(DAY) };
    let planned = archive.publish(&target, 1, &disk(&[1, 2, 3], 0), &dry).unwrap();
    assert_eq!(contents(&target), BTreeMap::new());
    let done = archive.publish(&target, 1, &disk(&[1, 2, 3], 0), &options(DAY)).unwrap();
    assert_eq!((planned.object_count, planned.object_bytes), (done.object_count, done.object_bytes));
}

#[test]
fn retired_objects_are_removed_after_the_grace_period() {
    let (target, mut archive) = (MemoryTarget::new(), Archive::default());
    let keep = |time: i64| PublishOptions { keep: Some(1), ..options(time) };
    let keys = [signers(1)[0].key()];
    archive.publish(&target, 1, &disk(&[1, 2, 3], 0), &keep(DAY)).unwrap();
    let second = archive.publish(&target, 2, &disk(&[1, 2, 4], 0), &keep(2 * DAY)).unwrap();
    assert_eq!(second.dropped.len(), 1);
    let plan = |day: i64| PrunePlan::new(&target, &keys, &[], Timestamp(day * DAY), 14 * DAY).unwrap();
    let first = plan(2);
    // A block, a page and a root.
    assert_eq!((first.live_count, first.waiting.len(), first.removed.len()), (5, 3, 0));
    first.apply(&target).unwrap();
    assert_eq!((plan(10).waiting.len(), plan(10).removed.len()), (3, 0));
    // Block 3 is needed again, so it does not belong to the retired ones any more.
    archive.publish(&target, 3, &disk(&[3, 2, 4], 0), &options(11 * DAY)).unwrap();
    let last = plan(17);
    assert_eq!((last.waiting.len(), last.removed.len()), (0, 2));
    last.apply(&target).unwrap();
    assert_eq!(check(&target).finding_count, 0);
    let left = contents(&target).keys().filter(|name| name.starts_with("objects/")).count();
    assert_eq!(left, 4 + 2 * 2);
    assert!(PrunePlan::new(&target, &[signers(2)[0].key()], &[], Timestamp(0), 0).is_err());
}

/// A target that fails at one call, and at all after it.
struct EndingTarget {
    below: MemoryTarget,
    calls_left: AtomicU64,
}

impl EndingTarget {
    fn call(&self) -> Result<(), TargetError> {
        let left =
            self.calls_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let source = std::io::Error::other("the end");
        left.map(|_| ()).map_err(|_| TargetError::Failed { what: "memory".into(), source })
    }
}

impl fmt::Display for EndingTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory")
    }
}

impl Target for EndingTarget {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        self.call().and_then(|()| self.below.put(name, contents, mode))
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        self.call().and_then(|()| self.below.get(name, range))
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        self.call().and_then(|()| self.below.list(folder))
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        self.call().and_then(|()| self.below.remove(name))
    }
}

#[test]
fn an_interruption_at_any_call_leaves_a_whole_edition() {
    let (one, two) = (disk(&[1, 2, 3, 0, 5], 3), disk(&[1, 9, 3, 7, 5, 6], 0));
    for calls in 0.. {
        let (target, mut archive) = (MemoryTarget::new(), Archive::default());
        archive.publish(&target, 1, &one, &options(DAY)).unwrap();
        let ending = EndingTarget { below: target.clone(), calls_left: AtomicU64::new(calls) };
        let keep = PublishOptions { keep: Some(1), ..options(2 * DAY) };
        let done = archive.publish(&ending, 2, &two, &keep);
        let checked = check(&target);
        assert_eq!(checked.finding_count, 0, "after {calls} calls");
        assert_eq!(checked.serial, if done.is_ok() { 2 } else { 1 }, "after {calls} calls");
        let keys = [signers(1)[0].key()];
        let pruned =
            PrunePlan::new(&ending, &keys, &[], Timestamp(3 * DAY), 0).map(|plan| plan.apply(&ending));
        assert_eq!(check(&target).finding_count, 0, "after {calls} calls");
        // The same commands complete the work.
        archive.publish(&target, 2, &two, &keep).unwrap();
        PrunePlan::new(&target, &keys, &[], Timestamp(3 * DAY), 0).unwrap().apply(&target).unwrap();
        let checked = check(&target);
        assert_eq!((checked.finding_count, checked.image_count, checked.block_count), (0, 1, 6));
        let left = contents(&target).keys().filter(|name| name.starts_with("objects/")).count();
        assert_eq!(left, 6 + 2, "after {calls} calls");
        if matches!(pruned, Ok(Ok(()))) {
            assert!(calls > 10, "the interruptions were tried: {calls}");
            return;
        }
    }
}

#[test]
fn a_second_publisher_is_noticed() {
    /// Publishes something else before the head is read again.
    struct Rival {
        below: MemoryTarget,
        lists: AtomicU64,
    }
    impl fmt::Display for Rival {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("memory")
        }
    }
    impl Target for Rival {
        fn capabilities(&self) -> Capabilities {
            self.below.capabilities()
        }
        fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
            self.below.put(name, contents, mode)
        }
        fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
            self.below.get(name, range)
        }
        fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
            if self.lists.fetch_add(1, Ordering::Relaxed) == 1 {
                Archive::default().publish(&self.below, 5, &disk(&[8], 0), &options(5 * DAY)).unwrap();
            }
            self.below.list(folder)
        }
        fn remove(&self, name: &FileName) -> Result<(), TargetError> {
            self.below.remove(name)
        }
    }
    let rival = Rival { below: MemoryTarget::new(), lists: AtomicU64::new(0) };
    let refused = Archive::default().publish(&rival, 1, &disk(&[1], 0), &options(DAY));
    assert!(matches!(refused, Err(PublishError::Raced)), "{refused:?}");
    assert_eq!((check(&rival.below).serial, check(&rival.below).image_count), (1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// All listed disks are whole after any editions and prunes, encrypted or not, and nothing else
    /// stays after the grace period. Without all content keys, nothing is removed.
    #[test]
    fn editions_are_whole(
        days in proptest::collection::vec((
            proptest::collection::vec(0_u16..6, 0..9),
            (0_usize..3, 0_usize..4),
            1_usize..4,
            proptest::option::of(proptest::collection::vec(0_u64..12, 0..9)),
        ), 1..6),
    ) {
        let (target, mut archive) = (MemoryTarget::new(), Archive::default());
        let forms = [BlockForm::Plain, BlockForm::Plain, encrypted(1), encrypted(2)];
        for (day, (numbers, (rest, form), keep, order)) in (1_i64..).zip(days) {
            archive.profile = order.map_or(ProfileSource::Earlier, |order| ProfileSource::Given(profile(order)));
            let keep = PublishOptions {
                keep: Some(keep),
                form: forms[form].clone(),
                known_forms: all_forms().to_vec(),
                changes_encryption: true,
                ..options(day * DAY)
            };
            archive.publish(&target, day, &disk(&numbers, rest), &keep).unwrap();
            let keys = [signers(1)[0].key()];
            let plan = |known: &[BlockForm]| PrunePlan::new(&target, &keys, known, Timestamp(day * DAY), DAY);
            let whole = plan(&all_forms()).unwrap();
            for known in [&[][..], &all_forms()[..1], &all_forms()[1..]] {
                match plan(known) {
                    Ok(plan) => prop_assert_eq!(&plan, &whole),
                    Err(error) => prop_assert!(matches!(error, PruneError::NoKey { .. }), "{}", error),
                }
            }
            let plan = whole;
            plan.apply(&target).unwrap();
            let checked = check(&target);
            prop_assert_eq!(checked.finding_count, 0);
            prop_assert_eq!(contents_of_newest(&target), disk(&numbers, rest));
            let left = contents(&target).keys().filter(|name| name.starts_with("objects/")).count();
            prop_assert_eq!(left, plan.live_count + plan.waiting.len());
        }
    }
}
