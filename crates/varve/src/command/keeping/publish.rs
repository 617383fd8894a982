//! `varve publish`

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_archive::{Snapshot, SnapshotContent};
use varve_content::{NewFile, PRIVATE};
use varve_edition::{
    BlockForm, EditionContentKey, EditionKey, EditionSigner, ImageCipher, ObjectName, OpenHeadError,
    PublicationAddress,
};
use varve_publish::{
    ImageOutcome, ImageToPublish, MachineSource, ProfileSource, PruneError, PrunePlan, PublicationLayout,
    PublishError, PublishOptions, PublishReport, Publisher, ReadPublicationError, RetiredObject,
    check_publication, open_head,
};
use varve_remote::Target;
use varve_session::{NamedBy, UsageError, WithHint, target};
use varve_tree::Entry;
use varve_world::{Clock, Random, RealClock, RealRandom, RealWorkers};
use zeroize::Zeroizing;

use super::content_key::{KEY_FILE_BYTES_MAX, block_forms, read_content_key};
use super::moved_profile::ArchivedDiskMover;
use super::profile::read_profile;
use super::published_machine::{machine_of, read_machine};
use super::transfer_progress::TransferProgress;
use super::upload_pace;
use crate::arguments::{LayoutChoice, MachineChoice, ProfileChoice, PublishArgs};
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, args: &PublishArgs) -> Result<CommandOutcome> {
    let archive = invocation.session.read()?;
    let blocks = invocation.session.healing(&archive);
    let disks = chosen_disks(invocation, args, archive.snapshots())?;
    let archived: Vec<Entry> = archive.snapshots().iter().filter_map(image_entry).collect();
    let there =
        invocation.session.target(&args.target, NamedBy::User, upload_pace::of(args.limit_rate.as_ref()))?;
    let place = target::shown(&args.target);
    check_before_new_key(args, &*there)
        .with_hint(head_hint)
        .with_context(|| format!("nothing new is published at {place}"))?;
    let signers = args.keys.iter().map(|file| signer(invocation, file, args.dry_run));
    let signers = signers.collect::<Result<Vec<_>>>()?;
    let known_forms = block_forms(&args.content_keys)?;
    let form = match &args.encrypt {
        None => BlockForm::Plain,
        Some(file) => content_key(invocation, args, file, &disks, &*there, &signers)
            .with_context(|| format!("nothing new is published at {place}"))?
            .form(),
    };
    let options = options(args, form, known_forms)?;
    let damaged = damaged_objects(args, &*there, &signers, &forms(&options), &place)?;
    let options = PublishOptions { damaged, ..options };
    let progress = cancellable_progress()?;
    let shown = ShownProgress::start(&place, &progress, invocation.quiet);
    let observer = TransferProgress(progress);
    let publisher = Publisher {
        target: &*there,
        blocks: &*blocks,
        workers: &RealWorkers::one_a_core(),
        signers: &signers,
        mover: &ArchivedDiskMover(Arc::clone(&blocks) as _),
        observer: &observer,
    };
    let report = publisher.publish(&disks, &archived, &options);
    drop(shown);
    invocation.session.report_lost(&blocks);
    let report = report.with_hint(hint).with_context(|| format!("nothing new is published at {place}"))?;
    let edition = PublishedEdition {
        report: &report,
        place: &place,
        key: signers.last().map(EditionSigner::key),
        is_dry_run: args.dry_run,
        cipher: options.form.cipher(),
    };
    edition.print(invocation);
    // A dry run of the first edition leaves nothing that a plan could be made for.
    if args.prune && !(args.dry_run && report.serial == 1) {
        prune(invocation, args, &publisher, &options)?;
    }
    Ok(CommandOutcome::Done)
}

/// Returns the named disks, each with its profile and its machine.
fn chosen_disks(
    invocation: &Invocation,
    args: &PublishArgs,
    snapshots: &[Snapshot],
) -> Result<Vec<ImageToPublish>> {
    let choice = ChosenSnapshots::new(invocation, snapshots, &args.which);
    let profile = match &args.profile {
        ProfileChoice::Auto => ProfileSource::Earlier,
        ProfileChoice::None => ProfileSource::None,
        ProfileChoice::File(file) => ProfileSource::Given(read_profile(file)?),
    };
    let machine = match &args.machine {
        MachineChoice::Auto => None,
        MachineChoice::None => Some(MachineSource::None),
        MachineChoice::File(file) => Some(MachineSource::Given(read_machine(file)?)),
    };
    args.snapshots.iter().map(|name| disk(choice.named(name)?, &profile, machine)).collect()
}

/// Returns the choices of the arguments, still without the objects to be repaired.
fn options(args: &PublishArgs, form: BlockForm, known_forms: Vec<BlockForm>) -> Result<PublishOptions> {
    let mut new_id = [0; 16];
    RealRandom.fill(&mut new_id)?;
    Ok(PublishOptions {
        block_bytes: args.block_size,
        compression: args.compression,
        form,
        known_forms,
        changes_encryption: args.change_encryption,
        layout: match args.layout {
            LayoutChoice::Packs => PublicationLayout::Packs,
            LayoutChoice::Files => PublicationLayout::Files,
        },
        keep: args.keep.map(|keep| keep as usize),
        lifetime: nanoseconds(args.expires),
        mirrors: args.mirrors.clone(),
        damaged: BTreeSet::new(),
        is_dry_run: args.dry_run,
        now: RealClock.now(),
        new_id,
    })
}

/// Reads everything at the target if it is to be repaired, and returns the damaged objects.
fn damaged_objects(
    args: &PublishArgs,
    there: &dyn Target,
    signers: &[EditionSigner],
    forms: &[BlockForm],
    place: &str,
) -> Result<BTreeSet<ObjectName>> {
    if !args.repair {
        return Ok(BTreeSet::new());
    }
    let keys: Vec<_> = signers.iter().map(EditionSigner::key).collect();
    match check_publication(there, &keys, forms, &RealWorkers::one_a_core()) {
        Ok(checked) => Ok(checked.findings.into_iter().map(|finding| finding.object).collect()),
        Err(ReadPublicationError::NoHead) => Ok(BTreeSet::new()),
        Err(error) => Err(error)
            .with_hint(head_hint)
            .with_context(|| format!("cannot check the publication at {place}")),
    }
}

/// Returns the forms of all images whose content keys are given.
fn forms(options: &PublishOptions) -> Vec<BlockForm> {
    [&options.form].into_iter().chain(&options.known_forms).cloned().collect()
}

fn nanoseconds(age: Duration) -> i64 {
    i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)
}

fn image_entry(snapshot: &Snapshot) -> Option<Entry> {
    match &snapshot.content {
        SnapshotContent::Image(entry) => Some(*entry),
        SnapshotContent::Folder(_) => None,
    }
}

/// Returns a disk with the given machine, or the one that the snapshot knows.
fn disk(
    snapshot: &Snapshot,
    profile: &ProfileSource,
    machine: Option<MachineSource>,
) -> Result<ImageToPublish> {
    let Some(entry) = image_entry(snapshot) else {
        let name = show::name(snapshot.name.as_bytes());
        bail!(UsageError(format!("{name} is a folder: only images of disks can be published")));
    };
    let machine = machine.unwrap_or_else(|| {
        let machine = snapshot.machine.as_ref();
        machine.map_or(MachineSource::Earlier, |machine| {
            MachineSource::Given(machine_of(machine, snapshot.id, entry.size()))
        })
    });
    let (name, time) = (snapshot.name.clone(), snapshot.time);
    Ok(ImageToPublish { name, time, entry, profile: profile.clone(), machine })
}

/// Reads a key file, and makes it if it is missing.
fn signer(invocation: &Invocation, file: &Path, is_dry_run: bool) -> Result<EditionSigner> {
    let context = || format!("cannot read the key file {}", file.display());
    match fs::metadata(file) {
        Ok(there) if there.len() > KEY_FILE_BYTES_MAX => {
            bail!("{}: it is too long for the key of a publication", file.display())
        }
        Ok(_) => {
            let text = Zeroizing::new(fs::read_to_string(file).with_context(context)?);
            EditionSigner::from_text(&text).with_context(context)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut seed = Zeroizing::new([0; 32]);
            RealRandom.fill(&mut *seed)?;
            let signer = EditionSigner::from_seed(*seed);
            if !is_dry_run {
                make_key_file(file, &signer.to_text())
                    .with_context(|| format!("cannot make the key file {}", file.display()))?;
                if !invocation.quiet {
                    warning!(
                        "{} is new: it has the secret key of this publication. Keep a copy elsewhere: without it there are no new editions",
                        file.display()
                    );
                }
            }
            Ok(signer)
        }
        Err(error) => Err(error).with_context(context),
    }
}

/// Reads the content key, and makes its file if it is missing. A new key is refused if readers have
/// another one for these disks.
fn content_key(
    invocation: &Invocation,
    args: &PublishArgs,
    file: &Path,
    disks: &[ImageToPublish],
    there: &dyn Target,
    signers: &[EditionSigner],
) -> Result<EditionContentKey> {
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        // Everything else is reported when the file is opened.
        _ => return read_content_key(file),
    }
    let keys: Vec<_> = signers.iter().map(EditionSigner::key).collect();
    let images = match open_head(there, &keys) {
        Ok(opened) => opened.head.into_fields().images,
        Err(ReadPublicationError::NoHead) => Vec::new(),
        Err(error) => return Err(error).with_hint(head_hint),
    };
    for disk in disks.iter().filter(|_| !args.change_encryption) {
        if images.iter().any(|image| image.name == disk.name && image.cipher != ImageCipher::None) {
            let error = PublishError::OtherContentKey { name: disk.name.clone() };
            return Err(error).with_hint(hint).with_context(|| {
                format!("{} does not exist, and no new content key is made", file.display())
            });
        }
    }
    let mut secret = Zeroizing::new([0; 32]);
    RealRandom.fill(&mut *secret)?;
    let key = EditionContentKey::from_bytes(*secret);
    if !args.dry_run {
        make_key_file(file, &key.to_text())
            .with_context(|| format!("cannot make the content key {}", file.display()))?;
        if !invocation.quiet {
            warning!(
                "{} is new: it has the content key that readers need beside the address. Keep a copy elsewhere, and not with the publication",
                file.display()
            );
        }
    }
    Ok(key)
}

/// Refuses a target with an edition of another key, before a missing key file is made.
fn check_before_new_key(args: &PublishArgs, there: &dyn Target) -> Result<(), ReadPublicationError> {
    if args.keys.iter().all(|file| file.exists()) {
        return Ok(());
    }
    let texts = args.keys.iter().filter_map(|file| fs::read_to_string(file).ok()).map(Zeroizing::new);
    let known: Vec<_> =
        texts.filter_map(|text| EditionSigner::from_text(&text).ok()).map(|signer| signer.key()).collect();
    match open_head(there, &known) {
        Ok(_) | Err(ReadPublicationError::NoHead) => Ok(()),
        Err(error) => Err(error),
    }
}

fn make_key_file(file: &Path, text: &str) -> std::io::Result<()> {
    NewFile::write(file, PRIVATE, false, text.as_bytes())
}

fn hint(error: &PublishError) -> Option<&'static str> {
    match error {
        PublishError::Read(error) => head_hint(error),
        PublishError::Raced | PublishError::Missing { .. } => Some("run the same command again"),
        PublishError::Unencrypted { .. } => Some(
            "give its content key with --encrypt; if everybody with the address shall read it from now on, --change-encryption",
        ),
        PublishError::OtherContentKey { .. } => Some(
            "give its content key with --encrypt; if readers shall need another one from now on, --change-encryption",
        ),
        PublishError::EarlierProfile { .. } => Some(
            "give that key with --content-key, or other ones with --profile FILE|none and --machine FILE|none",
        ),
        _ => None,
    }
}

fn prune_hint(error: &PruneError) -> Option<&'static str> {
    matches!(error, PruneError::NoKey { .. }).then_some(
        "give its content key with --content-key FILE: an object that only it needs could be removed otherwise",
    )
}

/// The hint depends on the reason why the present head is not believed.
fn head_hint(error: &ReadPublicationError) -> Option<&'static str> {
    let ReadPublicationError::Head { source } = error else { return None };
    Some(match source {
        OpenHeadError::OtherKeys { .. } => {
            "sign with the key of the edition that is there, or with --key OLD --key NEW, or choose another target"
        }
        OpenHeadError::Contents(_) => "a newer program may have published it: publish with that one",
        OpenHeadError::TooLong
        | OpenHeadError::Html
        | OpenHeadError::Gzip
        | OpenHeadError::NotSigned
        | OpenHeadError::Signature { .. } => {
            "the file `head` at the target is damaged: put back a good copy, such as a mirror's, or choose another target"
        }
    })
}

/// A new edition, to be printed.
struct PublishedEdition<'a> {
    report: &'a PublishReport,
    /// The target, as it is shown.
    place: &'a str,
    /// The key for the address.
    key: Option<EditionKey>,
    is_dry_run: bool,
    /// The encryption of the given disks.
    cipher: ImageCipher,
}

impl PublishedEdition<'_> {
    fn print(&self, invocation: &Invocation) {
        if invocation.json {
            for image in &self.report.images {
                say::record("published_image", self.image_json(image));
            }
            say::record("published", self.to_json());
        } else if !invocation.quiet {
            self.report.images.iter().for_each(say_image);
            self.say_uploads();
            if !self.is_dry_run {
                self.say_addresses();
            }
        }
    }

    fn address(&self, place: &str) -> String {
        PublicationAddress { place: place.trim_end_matches('/').to_owned(), key: self.key }.to_string()
    }

    fn other_addresses(&self) -> Vec<String> {
        self.report.mirrors.iter().map(|mirror| self.address(mirror)).collect()
    }

    fn image_json(&self, image: &ImageOutcome) -> Value {
        json!({
            "name": image.name,
            "time": moment::rfc3339(image.time),
            "size": image.size,
            "cipher": self.cipher.to_string(),
            "published_before": image.was_there,
            "read_blocks": image.read_count,
            "kept_blocks": image.kept_count,
            "profile_blocks": image.packed_count,
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "target": self.place,
            "dry_run": self.is_dry_run,
            "serial": self.report.serial,
            "images": self.report.listed_count,
            "dropped_images": self.report.dropped.len(),
            "unencrypted_images": self.report.unencrypted_count,
            "objects": self.report.object_count,
            "bytes": self.report.object_bytes,
            "expires": moment::rfc3339(self.report.expires),
            "key": self.key.map(|key| key.to_string()),
            "address": self.address(self.place),
            "mirrors": self.other_addresses(),
        })
    }

    fn say_uploads(&self) {
        let (report, place) = (self.report, self.place);
        let would = if self.is_dry_run { "would be " } else { "" };
        say!(
            "{} of {} {would}uploaded to {place}",
            show::count(report.object_count as u64, "object"),
            show::bytes(report.object_bytes)
        );
        if !report.dropped.is_empty() {
            say!("{} {would}no longer listed", show::count(report.dropped.len() as u64, "image"));
        }
    }

    fn say_addresses(&self) {
        let report = self.report;
        if report.unencrypted_count > 0 {
            warning!(
                "{} of the same name can still be read without the content key: --keep drops older images, and --prune removes their objects",
                show::count(report.unencrypted_count as u64, "image")
            );
        }
        let images = show::count(report.listed_count as u64, "image");
        say!("edition {}: {images}, until {}", report.serial, moment::show(report.expires));
        if report.mirrors.is_empty() {
            say!("address: {}", self.address("https://HOST/PATH"));
        }
        for mirror in self.other_addresses() {
            say!("address: {mirror}");
        }
    }
}

fn say_image(image: &ImageOutcome) {
    let shown = format!("{}@{}", show::name(image.name.as_bytes()), moment::show(image.time));
    let size = show::bytes(image.size);
    if image.was_there {
        say!("{shown}: {size}, published before");
        return;
    }
    let read = show::count(image.read_count, "block");
    let packed = image.packed_count.map(|count| format!(", {count} in the profile")).unwrap_or_default();
    say!("{shown}: {size}, {read} read, {} as before{packed}", image.kept_count);
}

/// Prints the plan of a prune, and carries it out.
fn prune(
    invocation: &Invocation,
    args: &PublishArgs,
    publisher: &Publisher<'_>,
    options: &PublishOptions,
) -> Result<()> {
    let there: &dyn Target = publisher.target;
    let grace = nanoseconds(args.grace);
    let plan = PrunePlan::new(there, &publisher.keys(), &forms(options), options.now, grace)
        .with_hint(prune_hint)
        .context("nothing is removed")?;
    let bytes = |objects: &[RetiredObject]| objects.iter().map(|object| object.bytes).sum::<u64>();
    if invocation.json {
        let fields = json!({
            "dry_run": args.dry_run,
            "needed_objects": plan.live_count,
            "retired_objects": plan.waiting.len(),
            "retired_bytes": bytes(&plan.waiting),
            "removed_objects": plan.removed.len(),
            "removed_bytes": bytes(&plan.removed),
        });
        say::record("publication_pruned", fields);
    } else if !invocation.quiet {
        let count = |objects: &[RetiredObject]| show::count(objects.len() as u64, "object");
        let (waiting, removed) = (count(&plan.waiting), count(&plan.removed));
        say!("{waiting} of {} retired: removed after the grace period", show::bytes(bytes(&plan.waiting)));
        let would = if args.dry_run { "would be removed" } else { "to be removed now" };
        say!("{removed} of {} {would}", show::bytes(bytes(&plan.removed)));
    }
    if !args.dry_run {
        plan.apply(there).context("not all retired objects are removed: the next --prune continues")?;
    }
    Ok(())
}
