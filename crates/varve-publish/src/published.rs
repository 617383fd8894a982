//! Reads a publication at a target: the list of its objects, its head, and checked stored blocks.

use std::collections::{BTreeMap, BTreeSet};

use varve_edition::{
    BlockForm, CheckedBlock, DiskProfile, DiskShape, EditionHead, EditionKey, HEAD_BYTES_MAX, HEAD_NAME,
    ImageCipher, MACHINE_DESCRIPTION_BYTES_MAX, MachineDescription, MapEntry, MapLevel, MapPage,
    MapPageError, ObjectName, ObjectPart, OpenHeadError, OpenedHead, PROFILE_BYTES_MAX, PublishedImage,
    StoredPart, UnpackError, WrongBytesError,
};
use varve_remote::{Target, TargetError};
use varve_world::FileName;

/// The name of the page that describes the format.
pub(crate) const FORMAT_PAGE: &str = "FORMAT.md";

/// That page, for readers that have nothing else.
pub(crate) const FORMAT_TEXT: &str = include_str!("../../../docs/internals/publication-format.md");

/// The reason why a publication cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadPublicationError {
    #[error("{0}")]
    Target(#[from] TargetError),
    #[error("there is no publication: no object is named head")]
    NoHead,
    #[error("the head is not believed")]
    Head { source: OpenHeadError },
}

/// Everything that is at a target: the objects with their lengths, and the head if there is one.
#[derive(Debug, Clone)]
pub struct PublishedState {
    pub(crate) objects: BTreeMap<ObjectName, u64>,
    pub(crate) head: Option<OpenedHead>,
    pub(crate) head_bytes: Option<Vec<u8>>,
    /// The lengths of the files beside the objects.
    pub(crate) files: BTreeMap<String, u64>,
}

impl PublishedState {
    /// Lists the target, and reads the head. The head must be signed by a trusted key.
    ///
    /// # Errors
    /// [`ReadPublicationError`]. A target without a head is an empty publication, and no error.
    pub fn read(target: &dyn Target, trusted: &[EditionKey]) -> Result<Self, ReadPublicationError> {
        let (mut objects, mut files) = (BTreeMap::new(), BTreeMap::new());
        for object in target.list("")? {
            match ObjectName::from_path(object.name.as_str()) {
                Some(name) => drop(objects.insert(name, object.bytes)),
                None => drop(files.insert(object.name.as_str().to_owned(), object.bytes)),
            }
        }
        let head_bytes = files.contains_key(HEAD_NAME).then(|| read_head(target)).transpose()?;
        let head = head_bytes.as_deref().map(|bytes| believe(bytes, trusted)).transpose()?;
        Ok(Self { objects, head, head_bytes, files })
    }

    /// Returns the head.
    ///
    /// # Errors
    /// [`ReadPublicationError::NoHead`].
    pub fn head(&self) -> Result<&EditionHead, ReadPublicationError> {
        self.head.as_ref().map(|opened| &opened.head).ok_or(ReadPublicationError::NoHead)
    }

    /// Returns the published images, in the order of the head.
    #[must_use]
    pub fn images(&self) -> &[PublishedImage] {
        self.head.as_ref().map_or(&[], |opened| &opened.head.fields().images)
    }

    /// Returns the state without some objects, as if they were not there.
    pub(crate) fn without(mut self, damaged: &BTreeSet<ObjectName>) -> Self {
        self.objects.retain(|name, _| !damaged.contains(name));
        self
    }

    /// Returns the newest image with this name and its profile. A profile that is missing or
    /// damaged is none: it only orders what is uploaded.
    ///
    /// # Errors
    /// [`ReadPartError::NoKey`] if none of `keys` opens it.
    pub(crate) fn newest_profile(
        &self,
        target: &dyn Target,
        keys: &[BlockForm],
        name: &str,
    ) -> Result<Option<(&PublishedImage, DiskProfile)>, ReadPartError> {
        let of_name = self.images().iter().filter(|image| image.name == name);
        let Some(newest) = of_name.max_by_key(|image| image.time) else { return Ok(None) };
        let Some(part) = newest.profile else { return Ok(None) };
        let text = read_text(target, newest, keys, part, PROFILE_BYTES_MAX)?;
        let profile = text.and_then(|text| DiskProfile::parse(&text).ok());
        // An empty one stands beside the description of a machine.
        Ok(profile.filter(|profile| !profile.reads().is_empty()).map(|profile| (newest, profile)))
    }

    /// Returns the description of the machine that the newest image with this name has. One that is
    /// missing or damaged is none.
    ///
    /// # Errors
    /// [`ReadPartError::NoKey`] if none of `keys` opens it.
    pub(crate) fn newest_machine(
        &self,
        target: &dyn Target,
        keys: &[BlockForm],
        name: &str,
    ) -> Result<Option<MachineDescription>, ReadPartError> {
        let of_name = self.images().iter().filter(|image| image.name == name);
        let Some(newest) = of_name.max_by_key(|image| image.time) else { return Ok(None) };
        let Some(part) = newest.machine else { return Ok(None) };
        let text = read_text(target, newest, keys, part, MACHINE_DESCRIPTION_BYTES_MAX)?;
        Ok(text.and_then(|text| MachineDescription::parse(&text).ok()))
    }

    /// Returns the length of an object that is listed.
    pub(crate) fn object_bytes(&self, object: &ObjectName) -> Option<u64> {
        self.objects.get(object).copied()
    }
}

/// Reads the head alone. It must be signed by a trusted key. Works at a server that lists nothing.
///
/// # Errors
/// [`ReadPublicationError`].
pub fn open_head(target: &dyn Target, trusted: &[EditionKey]) -> Result<OpenedHead, ReadPublicationError> {
    believe(&read_head(target)?, trusted)
}

fn read_head(target: &dyn Target) -> Result<Vec<u8>, ReadPublicationError> {
    match target.get_whole(&file_name(HEAD_NAME), HEAD_BYTES_MAX as u64, None) {
        Ok(Some(head)) => Ok(head.bytes.to_vec()),
        Ok(None) | Err(TargetError::NotFound { .. }) => Err(ReadPublicationError::NoHead),
        Err(error) => Err(error.into()),
    }
}

fn believe(head: &[u8], trusted: &[EditionKey]) -> Result<OpenedHead, ReadPublicationError> {
    EditionHead::open(head, trusted).map_err(|source| ReadPublicationError::Head { source })
}

/// The name of a file of a publication.
pub(crate) fn file_name(name: &str) -> FileName {
    FileName::new(name).expect("the names of a publication are valid")
}

/// The reason why a stored block is not usable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadPartError {
    #[error("{0}")]
    Target(#[from] TargetError),
    #[error("{0}")]
    WrongBytes(#[from] WrongBytesError),
    #[error("{0}")]
    Unpack(#[from] UnpackError),
    #[error("{0}")]
    Page(#[from] MapPageError),
    #[error("the block has {actual} bytes, but the disk has {expected} there")]
    Length { expected: u64, actual: usize },
    #[error("it is encrypted, and no given content key opens it")]
    NoKey,
}

impl ReadPartError {
    /// Returns true if the target has answered, and the object is missing or damaged. Otherwise the
    /// answer is unknown.
    pub(crate) fn is_damage(&self) -> bool {
        !matches!(self, Self::NoKey | Self::Target(TargetError::Refused { .. } | TargetError::Failed { .. }))
    }

    fn is_other_key(&self) -> bool {
        matches!(
            self,
            Self::Unpack(UnpackError::Decrypt) | Self::Page(MapPageError::Unpack(UnpackError::Decrypt))
        )
    }
}

/// Opens the first thing of an image with the form that the image has, among those of `keys` if it
/// is encrypted. Returns the form as well.
fn open_with<T>(
    image: &PublishedImage,
    keys: &[BlockForm],
    open: impl Fn(&BlockForm) -> Result<T, ReadPartError>,
) -> Result<(BlockForm, T), ReadPartError> {
    let plain = [BlockForm::Plain];
    let forms = if image.cipher == ImageCipher::None { &plain[..] } else { keys };
    for form in forms.iter().filter(|form| form.fits(image.cipher)) {
        match open(form) {
            Err(error) if error.is_other_key() => {}
            opened => return Ok((form.clone(), opened?)),
        }
    }
    Err(ReadPartError::NoKey)
}

/// Reads a text of an image; `None` if it is missing or damaged.
fn read_text(
    target: &dyn Target,
    image: &PublishedImage,
    keys: &[BlockForm],
    part: StoredPart,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, ReadPartError> {
    let read = read_part(target, &ObjectPart::alone(part.name, part.bytes), |block| {
        open_with(image, keys, |form| Ok(block.unpack(form, bytes_max)?))
    });
    match read {
        Ok((_, text)) => Ok(Some(text)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the root of an image's map. Returns the form of the image as well.
///
/// # Errors
/// [`ReadPartError::NoKey`] if none of `keys` opens it. Its name was checked all the same.
pub(crate) fn read_root(
    target: &dyn Target,
    image: &PublishedImage,
    keys: &[BlockForm],
) -> Result<(BlockForm, MapPage), ReadPartError> {
    read_part(target, &root_part(image), |block| {
        open_with(image, keys, |form| Ok(MapPage::open(block, form, &image.shape, MapLevel::Root)?))
    })
}

/// Reads a stored block, and compares it with its name.
pub(crate) fn read_part<T>(
    target: &dyn Target,
    part: &ObjectPart,
    open: impl FnOnce(CheckedBlock<'_>) -> Result<T, ReadPartError>,
) -> Result<T, ReadPartError> {
    let start = u64::from(part.offset);
    let range = start..start + u64::from(part.bytes);
    let stored = target.get(&file_name(&part.object.path()), range)?;
    open(CheckedBlock::check(&stored, &part.name)?)
}

/// Reads a page of a disk's map.
pub(crate) fn read_page(
    target: &dyn Target,
    part: &ObjectPart,
    form: &BlockForm,
    shape: &DiskShape,
    level: MapLevel,
) -> Result<MapPage, ReadPartError> {
    read_part(target, part, |block| Ok(MapPage::open(block, form, shape, level)?))
}

/// Returns the place of the root of an image.
pub(crate) fn root_part(image: &PublishedImage) -> ObjectPart {
    ObjectPart::alone(image.root.name, image.root.bytes)
}

/// Reads the pages of an image one after the other, and passes each with its number and its place.
/// A page that is zeros has no place. Returns the form of the image.
///
/// # Errors
/// [`ReadPartError`] if the root cannot be read: [`ReadPartError::NoKey`] if none of `keys` opens
/// it.
pub(crate) fn visit_pages(
    target: &dyn Target,
    image: &PublishedImage,
    keys: &[BlockForm],
    mut visit: impl FnMut(
        u64,
        &ObjectPart,
        &BlockForm,
        Result<MapPage, ReadPartError>,
    ) -> Result<(), ReadPartError>,
) -> Result<BlockForm, ReadPartError> {
    let (form, root) = read_root(target, image, keys)?;
    for (page, entry) in (0..).zip(root.entries()) {
        if let MapEntry::Stored(part) = entry {
            let level = MapLevel::Blocks { page };
            visit(page, part, &form, read_page(target, part, &form, &image.shape, level))?;
        }
    }
    Ok(form)
}
