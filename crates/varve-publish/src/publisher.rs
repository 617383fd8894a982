//! Makes the next edition of a publication.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use varve_block::BlockStore;
use varve_edition::{
    BlockForm, DiskProfile, DiskShape, EditionFields, EditionHead, EditionKey, EditionSigner, HEAD_NAME,
    ImageCipher, MachineDescription, MapEntry, ObjectName, ObjectPart, PublishedBlockBytes, PublishedImage,
    StoredCompression, StoredPart,
};
use varve_remote::{Observer, PutMode, Target, TargetError};
use varve_tree::Entry;
use varve_world::{Timestamp, Workers};

use crate::image_map::{EarlierMap, MapWriter, UploadedMap};
use crate::packs::{PackingOrder, PublicationLayout};
use crate::publish_error::PublishError;
use crate::published::{
    FORMAT_PAGE, FORMAT_TEXT, PublishedState, ReadPartError, file_name, read_root, visit_pages,
};
use crate::uploads::Uploads;

/// Moves the profile of an earlier disk to a later state of the disk.
pub trait ProfileMover: Sync {
    /// Returns the profile with the places of the later disk. Reads that cannot be found again stay
    /// where they were, or are dropped.
    fn moved(&self, profile: &DiskProfile, from: &Entry, to: &Entry) -> DiskProfile;
}

/// Takes profiles as they are.
impl ProfileMover for () {
    fn moved(&self, profile: &DiskProfile, _from: &Entry, _to: &Entry) -> DiskProfile {
        profile.clone()
    }
}

/// The participants of a publication.
#[derive(Clone, Copy)]
pub struct Publisher<'a> {
    pub target: &'a dyn Target,
    /// The archive.
    pub blocks: &'a dyn BlockStore,
    pub workers: &'a dyn Workers,
    /// The keys that sign the head. A present head must be signed by one of them.
    pub signers: &'a [EditionSigner],
    pub mover: &'a dyn ProfileMover,
    pub observer: &'a dyn Observer,
}

/// A disk to be published.
#[derive(Debug, Clone)]
pub struct ImageToPublish {
    pub name: String,
    pub time: Timestamp,
    pub entry: Entry,
    pub profile: ProfileSource,
    pub machine: MachineSource,
}

/// The description of the machine that starts from a disk.
#[derive(Debug, Clone, Copy, Default)]
pub enum MachineSource {
    /// That of the newest published disk of the same name, if it has one.
    #[default]
    Earlier,
    Given(MachineDescription),
    None,
}

/// The profile of a disk: its blocks are packed in the order of first access.
#[derive(Debug, Clone, Default)]
pub enum ProfileSource {
    /// The profile of the newest published disk of the same name, if it has one. If its tree is in
    /// the archive, the profile is moved to the new disk.
    #[default]
    Earlier,
    Given(DiskProfile),
    None,
}

/// The choices for an edition.
#[derive(Debug, Clone)]
pub struct PublishOptions {
    pub block_bytes: PublishedBlockBytes,
    pub compression: StoredCompression,
    /// The form of the given disks. Other disks of the publication stay as they are.
    pub form: BlockForm,
    /// The forms of other encrypted images that are there: their profiles can be used.
    pub known_forms: Vec<BlockForm>,
    /// Publish a disk without encryption, or with another content key, although a listed image of
    /// its name is encrypted.
    pub changes_encryption: bool,
    /// The layout of the given disks. Other disks of the publication stay as they are.
    pub layout: PublicationLayout,
    /// The number of images of each name that stay listed, the newest ones. `None`: all.
    pub keep: Option<usize>,
    /// The nanoseconds after which the head expires.
    pub lifetime: i64,
    /// The URLs of other places with the same objects. If it is empty, those of the present head
    /// stay.
    pub mirrors: Vec<String>,
    /// Objects at the target that are missing or damaged. Unless there are none, the maps of all
    /// given disks are made anew, and these objects are uploaded again.
    pub damaged: BTreeSet<ObjectName>,
    pub is_dry_run: bool,
    pub now: Timestamp,
    /// The id of a new publication, drawn at random.
    pub new_id: [u8; 16],
}

/// One disk of a new edition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageOutcome {
    pub name: String,
    pub time: Timestamp,
    pub size: u64,
    /// True if it was published before.
    pub was_there: bool,
    /// The blocks that its profile lists; `None` without a profile.
    pub packed_count: Option<u64>,
    /// The blocks that were read from the archive.
    pub read_count: u64,
    /// The blocks that an earlier image has at the same place.
    pub kept_count: u64,
}

/// A new edition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishReport {
    pub serial: u64,
    pub images: Vec<ImageOutcome>,
    /// The images that are no longer listed.
    pub dropped: Vec<PublishedImage>,
    /// The listed images that are not encrypted, though a given disk of their name is.
    pub unencrypted_count: usize,
    pub listed_count: usize,
    pub object_count: usize,
    pub object_bytes: u64,
    pub expires: Timestamp,
    pub mirrors: Vec<String>,
}

impl Publisher<'_> {
    /// Returns the public keys of the signers.
    #[must_use]
    pub fn keys(&self) -> Vec<EditionKey> {
        self.signers.iter().map(EditionSigner::key).collect()
    }

    /// Publishes disks as a new edition. `archived` are trees of the same archive: those that are
    /// published already help to find unchanged blocks without reading them.
    ///
    /// # Errors
    /// [`PublishError`]. The old edition is still there, and uploaded objects are used next time.
    pub fn publish(
        &self,
        disks: &[ImageToPublish],
        archived: &[Entry],
        options: &PublishOptions,
    ) -> Result<PublishReport, PublishError> {
        let before = PublishedState::read(self.target, &self.keys())?.without(&options.damaged);
        self.check_encryption(&before, disks, options)?;
        let renewed = self.images_to_renew(&before, disks, options)?;
        let new_disks = disks.iter().filter(|disk| !is_there(disk, before.images(), &renewed, options));
        self.observer.set_total(new_disks.map(|disk| disk.entry.size()).sum());
        let (compression, is_dry_run) = (options.compression, options.is_dry_run);
        let uploads =
            Uploads::new(self.target, before.objects.clone(), &options.form, compression, is_dry_run);
        let mut draft = EditionDraft {
            publisher: self,
            options,
            before: &before,
            trees: ArchivedTrees::new(archived, options),
            renewed,
            uploads: &uploads,
            fields: next_fields(&before, options, self.keys()),
        };
        let images = disks.iter().map(|disk| draft.add(disk)).collect::<Result<Vec<_>, _>>()?;
        let mut fields = draft.fields;
        let dropped = keep_newest(&mut fields, options.keep);
        let new = uploads.into_new();
        let report = PublishReport {
            serial: fields.serial,
            images,
            dropped,
            unencrypted_count: unencrypted_count(&fields, disks, &options.form),
            listed_count: fields.images.len(),
            object_count: new.len(),
            object_bytes: new.values().sum(),
            expires: fields.expires,
            mirrors: fields.mirrors.clone(),
        };
        let head = EditionHead::new(fields)?.sign(self.signers)?;
        if !is_dry_run {
            self.complete(&before, &new, head)?;
        }
        Ok(report)
    }

    /// Refuses to open or to re-encrypt by accident what is encrypted now.
    fn check_encryption(
        &self,
        before: &PublishedState,
        disks: &[ImageToPublish],
        options: &PublishOptions,
    ) -> Result<(), PublishError> {
        if options.changes_encryption {
            return Ok(());
        }
        for disk in disks {
            let name = || disk.name.clone();
            let is_encrypted =
                |image: &&PublishedImage| image.name == disk.name && image.cipher != ImageCipher::None;
            let mut encrypted: Vec<_> = before.images().iter().filter(is_encrypted).collect();
            if options.form.cipher() == ImageCipher::None && !encrypted.is_empty() {
                return Err(PublishError::Unencrypted { name: name() });
            }
            // A damaged root says nothing about the key, so an older image is asked.
            encrypted.sort_by_key(|image| std::cmp::Reverse(image.time));
            for image in encrypted {
                match self.opens(image, &options.form)? {
                    Some(true) => break,
                    Some(false) => return Err(PublishError::OtherContentKey { name: name() }),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Returns whether a form opens an image; `None` if the root of the image is damaged.
    fn opens(&self, image: &PublishedImage, form: &BlockForm) -> Result<Option<bool>, PublishError> {
        match read_root(self.target, image, std::slice::from_ref(form)) {
            Ok(_) => Ok(Some(true)),
            Err(ReadPartError::NoKey) => Ok(Some(false)),
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(PublishError::Part { source: Box::new(error) }),
        }
    }

    /// Returns the roots of those disks that are published in a way that the options change: with
    /// packs, or with another content key.
    fn images_to_renew(
        &self,
        before: &PublishedState,
        disks: &[ImageToPublish],
        options: &PublishOptions,
    ) -> Result<BTreeSet<ObjectName>, PublishError> {
        let mut renewed = match options.layout {
            PublicationLayout::Packs => BTreeSet::new(),
            PublicationLayout::Files => self.packed_images(before, disks, &options.form)?,
        };
        renewed.extend(self.images_of_other_keys(before, disks, &options.form)?);
        Ok(renewed)
    }

    /// Returns the roots of those disks that are published with another content key.
    fn images_of_other_keys(
        &self,
        before: &PublishedState,
        disks: &[ImageToPublish],
        form: &BlockForm,
    ) -> Result<BTreeSet<ObjectName>, PublishError> {
        let mut others = BTreeSet::new();
        let is_given = |image: &&PublishedImage| disks.iter().any(|disk| is_image_of(image, disk));
        let is_encrypted =
            |image: &&PublishedImage| image.cipher != ImageCipher::None && form.fits(image.cipher);
        for image in before.images().iter().filter(is_given).filter(is_encrypted) {
            if self.opens(image, form)? == Some(false) {
                others.insert(image.root.name);
            }
        }
        Ok(others)
    }

    /// Returns the roots of those disks that are published with packs, or with damaged pages.
    fn packed_images(
        &self,
        before: &PublishedState,
        disks: &[ImageToPublish],
        form: &BlockForm,
    ) -> Result<BTreeSet<ObjectName>, PublishError> {
        let mut packed = BTreeSet::new();
        let is_given = |image: &&PublishedImage| disks.iter().any(|disk| is_image_of(image, disk));
        for image in before.images().iter().filter(is_given) {
            let mut has_packs = false;
            let visited = visit_pages(self.target, image, std::slice::from_ref(form), |_, place, _, page| {
                let is_packed = |part: &ObjectPart| part.object != part.name;
                let entries = page?;
                has_packs |= is_packed(place)
                    || entries
                        .entries()
                        .iter()
                        .any(|entry| matches!(entry, MapEntry::Stored(part) if is_packed(part)));
                Ok(())
            });
            match visited {
                // An image of another form is made anew in any case.
                Ok(_) | Err(ReadPartError::NoKey) => {}
                Err(error) if error.is_damage() => has_packs = true,
                Err(error) => return Err(PublishError::Part { source: Box::new(error) }),
            }
            if has_packs {
                packed.insert(image.root.name);
            }
        }
        Ok(packed)
    }

    /// Returns the profile of the newest published disk of the same name, moved to the new disk.
    fn earlier_profile(
        &self,
        before: &PublishedState,
        disk: &ImageToPublish,
        trees: &ArchivedTrees,
        options: &PublishOptions,
    ) -> Result<Option<DiskProfile>, PublishError> {
        let earlier = before.newest_profile(self.target, &known_forms(options), &disk.name);
        let earlier = earlier.map_err(|error| earlier_error(error, &disk.name))?;
        let Some((image, profile)) = earlier else { return Ok(None) };
        let tree = hint_of(before, image).and_then(|hint| trees.all.get(&hint));
        Ok(Some(tree.map_or(profile.clone(), |tree| self.mover.moved(&profile, tree, &disk.entry))))
    }

    /// Returns the description that the newest published disk of the same name has of its machine.
    fn earlier_machine(
        &self,
        before: &PublishedState,
        disk: &ImageToPublish,
        options: &PublishOptions,
    ) -> Result<Option<MachineDescription>, PublishError> {
        let earlier = before.newest_machine(self.target, &known_forms(options), &disk.name);
        earlier.map_err(|error| earlier_error(error, &disk.name))
    }

    /// Replaces the head, once everything that it leads to is there.
    fn complete(
        &self,
        before: &PublishedState,
        new: &BTreeMap<ObjectName, u64>,
        head: Vec<u8>,
    ) -> Result<(), PublishError> {
        if before.files.get(FORMAT_PAGE) != Some(&(FORMAT_TEXT.len() as u64)) {
            let page = Bytes::from_static(FORMAT_TEXT.as_bytes());
            self.target.put(&file_name(FORMAT_PAGE), page, PutMode::Replace)?;
        }
        let after = PublishedState::read(self.target, &self.keys())?;
        let mut missing = new.iter().filter(|(name, bytes)| after.objects.get(name) != Some(bytes));
        if let Some((first, _)) = missing.next() {
            return Err(PublishError::Missing { missing_count: missing.count() + 1, first: *first });
        }
        if after.head_bytes != before.head_bytes {
            return Err(PublishError::Raced);
        }
        let mode = if before.head_bytes.is_some() { PutMode::Replace } else { PutMode::Create };
        match self.target.put(&file_name(HEAD_NAME), Bytes::from(head), mode) {
            Err(TargetError::Exists { .. }) => Err(PublishError::Raced),
            done => Ok(done?),
        }
    }
}

/// The next edition, to which disks are added.
struct EditionDraft<'a> {
    publisher: &'a Publisher<'a>,
    options: &'a PublishOptions,
    before: &'a PublishedState,
    trees: ArchivedTrees,
    /// The roots of images that are made anew in any case.
    renewed: BTreeSet<ObjectName>,
    uploads: &'a Uploads<'a>,
    fields: EditionFields,
}

impl EditionDraft<'_> {
    /// Uploads a disk and lists its image, unless the publication has it already.
    fn add(&mut self, disk: &ImageToPublish) -> Result<ImageOutcome, PublishError> {
        let shape = DiskShape { size: disk.entry.size(), block_bytes: self.options.block_bytes };
        let outcome = ImageOutcome {
            name: disk.name.clone(),
            time: disk.time,
            size: shape.size,
            was_there: true,
            packed_count: None,
            read_count: 0,
            kept_count: shape.block_count(),
        };
        if is_there(disk, &self.fields.images, &self.renewed, self.options) {
            return Ok(outcome);
        }
        let profile = self.profile(disk)?;
        let has_packs = self.options.layout == PublicationLayout::Packs;
        let order = profile.as_ref().filter(|_| has_packs).map(|profile| PackingOrder::new(profile, &shape));
        let packed_count = order.as_ref().map(PackingOrder::block_count);
        let map = self.upload_map(disk, &shape, &order.unwrap_or_default())?;
        self.list(disk, shape, map.root, profile)?;
        let (read_count, kept_count) = (map.read_count, map.kept_count);
        Ok(ImageOutcome { was_there: false, packed_count, read_count, kept_count, ..outcome })
    }

    /// Uploads the blocks and the map of a disk.
    fn upload_map(
        &self,
        disk: &ImageToPublish,
        shape: &DiskShape,
        order: &PackingOrder,
    ) -> Result<UploadedMap, PublishError> {
        let writer = MapWriter {
            target: self.publisher.target,
            blocks: self.publisher.blocks,
            workers: self.publisher.workers,
            observer: self.publisher.observer,
            uploads: self.uploads,
            before: self.before,
            layout: self.options.layout,
        };
        let earlier = earlier_map(self.before, disk, shape, &self.trees, &self.options.form);
        writer.write(&disk.entry, shape, earlier.as_ref(), order)
    }

    /// Lists an uploaded disk in place of an image of the same name and time.
    fn list(
        &mut self,
        disk: &ImageToPublish,
        shape: DiskShape,
        root: StoredPart,
        profile: Option<DiskProfile>,
    ) -> Result<(), PublishError> {
        let machine = self.machine(disk)?;
        // The head has no place for a machine without a profile.
        let profile = profile.or_else(|| machine.map(|_| DiskProfile::from_reads(shape.size, [])));
        let profile = profile.map(|profile| self.put_text(&profile.to_text())).transpose()?;
        let machine = machine.map(|machine| self.put_text(&machine.to_text())).transpose()?;
        let form = &self.options.form;
        self.fields.trees.insert(root.name, form.tree_hint(&disk.entry.encode()));
        self.fields.images.retain(|image| !is_image_of(image, disk));
        let (name, time, cipher) = (disk.name.clone(), disk.time, form.cipher());
        self.fields.images.push(PublishedImage { name, time, shape, root, cipher, profile, machine });
        Ok(())
    }

    fn profile(&self, disk: &ImageToPublish) -> Result<Option<DiskProfile>, PublishError> {
        match &disk.profile {
            ProfileSource::None => Ok(None),
            ProfileSource::Given(profile) => Ok(Some(profile.clone())),
            ProfileSource::Earlier => {
                self.publisher.earlier_profile(self.before, disk, &self.trees, self.options)
            }
        }
    }

    fn machine(&self, disk: &ImageToPublish) -> Result<Option<MachineDescription>, PublishError> {
        match disk.machine {
            MachineSource::None => Ok(None),
            MachineSource::Given(machine) => Ok(Some(machine)),
            MachineSource::Earlier => self.publisher.earlier_machine(self.before, disk, self.options),
        }
    }

    fn put_text(&self, text: &str) -> Result<StoredPart, PublishError> {
        let part = self.uploads.put(text.as_bytes())?;
        Ok(StoredPart { name: part.name, bytes: part.bytes })
    }
}

/// Returns true if one of the images is the disk as the options publish it.
fn is_there(
    disk: &ImageToPublish,
    images: &[PublishedImage],
    renewed: &BTreeSet<ObjectName>,
    options: &PublishOptions,
) -> bool {
    let is_it = |image: &PublishedImage| {
        is_image_of(image, disk)
            && options.form.fits(image.cipher)
            && !renewed.contains(&image.root.name)
            && has_profile(image, &disk.profile, options)
            && has_machine(image, disk.machine, options)
    };
    options.damaged.is_empty() && images.iter().any(is_it)
}

fn known_forms(options: &PublishOptions) -> Vec<BlockForm> {
    [&options.form].into_iter().chain(&options.known_forms).cloned().collect()
}

fn earlier_error(error: ReadPartError, name: &str) -> PublishError {
    match error {
        ReadPartError::NoKey => PublishError::EarlierProfile { name: name.to_owned() },
        error => PublishError::Part { source: Box::new(error) },
    }
}

fn is_image_of(image: &PublishedImage, disk: &ImageToPublish) -> bool {
    image.name == disk.name && image.time == disk.time
}

/// The trees of the archive, by their hints in the head.
struct ArchivedTrees {
    /// The hints of images in the form of the edition.
    own: BTreeMap<ObjectName, Entry>,
    /// The hints of images in any known form.
    all: BTreeMap<ObjectName, Entry>,
}

impl ArchivedTrees {
    fn new(archived: &[Entry], options: &PublishOptions) -> Self {
        let with_hints = |form: &BlockForm| -> Vec<(ObjectName, Entry)> {
            archived.iter().map(|entry| (form.tree_hint(&entry.encode()), *entry)).collect()
        };
        let forms = [&BlockForm::Plain, &options.form].into_iter().chain(&options.known_forms);
        Self {
            own: with_hints(&options.form).into_iter().collect(),
            all: forms.flat_map(with_hints).collect(),
        }
    }
}

/// Returns the hint for the tree from which a published image was made.
fn hint_of(before: &PublishedState, image: &PublishedImage) -> Option<ObjectName> {
    before.head.as_ref()?.head.fields().trees.get(&image.root.name).copied()
}

/// Returns the number of listed images that are not encrypted, though a given disk of their name
/// is.
fn unencrypted_count(fields: &EditionFields, disks: &[ImageToPublish], form: &BlockForm) -> usize {
    if form.cipher() == ImageCipher::None {
        return 0;
    }
    let is_open = |image: &&PublishedImage| image.cipher == ImageCipher::None;
    let has_name = |image: &&PublishedImage| disks.iter().any(|disk| disk.name == image.name);
    fields.images.iter().filter(is_open).filter(has_name).count()
}

/// Returns true unless a profile is given, and the image was published with another one.
fn has_profile(image: &PublishedImage, source: &ProfileSource, options: &PublishOptions) -> bool {
    let ProfileSource::Given(profile) = source else { return true };
    let name = ObjectName::of(&options.form.store(profile.to_text().as_bytes(), options.compression));
    image.profile.is_some_and(|part| part.name == name)
}

/// Returns true unless a description of the machine is given, and the image was published with
/// another one.
fn has_machine(image: &PublishedImage, source: MachineSource, options: &PublishOptions) -> bool {
    let MachineSource::Given(machine) = source else { return true };
    let name = ObjectName::of(&options.form.store(machine.to_text().as_bytes(), options.compression));
    image.machine.is_some_and(|part| part.name == name)
}

/// Returns the fields of the next head, still without new images.
fn next_fields(before: &PublishedState, options: &PublishOptions, keys: Vec<EditionKey>) -> EditionFields {
    let expires = Timestamp(options.now.0.saturating_add(options.lifetime));
    let old = before.head.as_ref().map(|opened| opened.head.fields());
    let mirrors = match old {
        Some(old) if options.mirrors.is_empty() => old.mirrors.clone(),
        _ => options.mirrors.clone(),
    };
    EditionFields {
        id: old.map_or(options.new_id, |old| old.id),
        serial: old.map_or(1, |old| old.serial.saturating_add(1)),
        time: options.now,
        expires,
        mirrors,
        keys,
        images: old.map(|old| old.images.clone()).unwrap_or_default(),
        trees: old.map(|old| old.trees.clone()).unwrap_or_default(),
    }
}

/// Finds a published disk with the same block size and form whose tree is in the archive: the
/// newest one of the same name, or else the newest one.
fn earlier_map<'a>(
    before: &'a PublishedState,
    disk: &ImageToPublish,
    shape: &DiskShape,
    trees: &ArchivedTrees,
    form: &BlockForm,
) -> Option<EarlierMap<'a>> {
    let candidates = before.images().iter().filter(|image| form.fits(image.cipher)).filter_map(|image| {
        let entry = *trees.own.get(&hint_of(before, image)?)?;
        let is_alike = image.shape.block_bytes == shape.block_bytes && image.shape.size == entry.size();
        is_alike.then_some(EarlierMap { image, entry })
    });
    candidates.max_by_key(|earlier| (earlier.image.name == disk.name, earlier.image.time))
}

/// Drops all but the newest images of each name, and returns the dropped ones.
fn keep_newest(fields: &mut EditionFields, keep: Option<usize>) -> Vec<PublishedImage> {
    let mut dropped = Vec::new();
    if let Some(keep) = keep {
        let mut times: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
        for image in &fields.images {
            times.entry(image.name.clone()).or_default().push(image.time);
        }
        times.values_mut().for_each(|times| times.sort_by_key(|time| std::cmp::Reverse(*time)));
        let (kept, rest) = fields.images.drain(..).partition(|image| {
            times
                .get(&image.name)
                .is_some_and(|times| times.iter().take(keep).any(|time| *time == image.time))
        });
        (fields.images, dropped) = (kept, rest);
    }
    let listed: Vec<ObjectName> = fields.images.iter().map(|image| image.root.name).collect();
    fields.trees.retain(|root, _| listed.contains(root));
    dropped
}
