//! The head of an edition: text that names its images, and is signed.
//!
//! ```text
//! varve publication 1
//! id = 32 hexadecimal digits
//! serial = a number
//! time = 2026-05-01T21:00:00Z
//! expires = 2026-07-30T21:00:00Z
//! mirror = URL                                                                    (0 to 16 lines)
//! key = BASE64                                                                    (1 to 4 lines)
//! image = NAME TIME SIZE BLOCK_BYTES ROOT ROOT_BYTES CIPHER [PROFILE PROFILE_BYTES [MACHINE MACHINE_BYTES]]
//! tree = ROOT TREE                                                                 (any number of lines)
//! signature = BASE64(key) BASE64(signature)                                       (1 to 4 lines)
//! ```
//!
//! Lines with unknown keys are skipped. A signature covers all bytes before the first line of a
//! signature.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use varve_block::{from_hex, has_kind, to_hex};
use varve_world::Timestamp;

use crate::block_form::ImageCipher;
use crate::disk_shape::{DiskShape, PublishedBlockBytes};
use crate::edition_key::{EditionKey, EditionSigner};
use crate::first_line::later_version;
use crate::head_lines::{SIGNATURE, decode_number, decode_word, encode_word, pairs, split};
use crate::object_name::ObjectName;
use crate::time_text::{format_time, parse_time};
use crate::{HEAD_BYTES_MAX, OBJECT_BYTES_MAX};

const FIRST_LINE: &str = "varve publication 1";
const MIRROR_COUNT_MAX: usize = 16;
const KEY_COUNT_MAX: usize = 4;
const MIRROR_CHARS_MAX: usize = 2048;

/// An object that a head names, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredPart {
    pub name: ObjectName,
    pub bytes: u32,
}

/// One published disk at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedImage {
    /// The name of the snapshot without its time.
    pub name: String,
    pub time: Timestamp,
    pub shape: DiskShape,
    /// The root of its map.
    pub root: StoredPart,
    /// The cipher of all its stored blocks: those of the disk, the map, the profile and the
    /// machine.
    pub cipher: ImageCipher,
    /// The reads of a start, in order.
    pub profile: Option<StoredPart>,
    /// The description of the machine that starts from it. Only with a profile, which may be empty.
    pub machine: Option<StoredPart>,
}

/// The contents of a head, not yet checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditionFields {
    /// Drawn when the publication is made, and never changed.
    pub id: [u8; 16],
    /// Larger in each edition than in the one before.
    pub serial: u64,
    pub time: Timestamp,
    /// The time after which a reader suspects that newer heads are kept from it.
    pub expires: Timestamp,
    /// The URLs of other places with the same objects.
    pub mirrors: Vec<String>,
    /// The keys that may sign the next head.
    pub keys: Vec<EditionKey>,
    pub images: Vec<PublishedImage>,
    /// A hint for the publisher: for roots of images the tree in the archive from which the image
    /// was made, as `BlockForm::tree_hint` names it. So the publisher finds unchanged blocks
    /// without reading them.
    pub trees: BTreeMap<ObjectName, ObjectName>,
}

/// The contents of a head that keeps all rules of the format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditionHead(EditionFields);

/// The reason why the lines of a head are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("it does not begin with {FIRST_LINE:?}: it is no head")]
    FirstLine,
    #[error("it has version {version}, which is newer than this program: use a newer one")]
    NewerVersion { version: u32 },
    #[error("line {line} is invalid: {reason}")]
    Line { line: usize, reason: &'static str },
    #[error("it has no line {key:?}")]
    Missing { key: &'static str },
    #[error("it has {count} lines {key:?}: {least} to {most} are allowed")]
    Count { key: &'static str, count: usize, least: usize, most: usize },
    #[error("it names {what} twice")]
    Twice { what: String },
    #[error("it expires before it was made")]
    Expires,
    #[error("the image {image} is invalid: {reason}")]
    Image { image: String, reason: &'static str },
    #[error("it has {bytes} bytes: at most {HEAD_BYTES_MAX} are allowed, so publish fewer images")]
    TooLong { bytes: usize },
}

has_kind!(HeadError: Self::NewerVersion { .. } => NewerVersion);

/// The reason why a head is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenHeadError {
    #[error("it is longer than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("it is a page of HTML, and no head: the page of a login, or of an error")]
    Html,
    #[error("it is compressed with gzip, though nobody has asked for that")]
    Gzip,
    #[error("it is not a text with signatures at its end")]
    NotSigned,
    #[error("its signature {number} is invalid: {reason}")]
    Signature { number: usize, reason: &'static str },
    #[error("it is signed with other keys: {}", list(signers))]
    OtherKeys { signers: Vec<EditionKey> },
    #[error("{0}")]
    Contents(#[from] HeadError),
}

fn list(keys: &[EditionKey]) -> String {
    keys.iter().map(EditionKey::to_string).collect::<Vec<_>>().join(", ")
}

/// A head with good signatures, at least one of them by a trusted key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedHead {
    pub head: EditionHead,
    /// All keys that have signed it.
    pub signers: Vec<EditionKey>,
}

impl EditionHead {
    /// Checks the contents of a new head.
    ///
    /// # Errors
    /// [`HeadError`].
    pub fn new(fields: EditionFields) -> Result<Self, HeadError> {
        count("mirror", fields.mirrors.len(), 0, MIRROR_COUNT_MAX)?;
        count("key", fields.keys.len(), 1, KEY_COUNT_MAX)?;
        if fields.expires < fields.time {
            return Err(HeadError::Expires);
        }
        let mut known = BTreeSet::new();
        for mirror in &fields.mirrors {
            check_other_place(mirror).map_err(|reason| HeadError::Image { image: mirror.clone(), reason })?;
            once(&mut known, format!("the mirror {mirror}"))?;
        }
        for key in &fields.keys {
            once(&mut known, format!("the key {key}"))?;
        }
        for image in &fields.images {
            let shown = format!("{}@{}", image.name, format_time(image.time));
            check_image(image).map_err(|reason| HeadError::Image { image: shown.clone(), reason })?;
            once(&mut known, format!("the image {shown}"))?;
        }
        let head = Self(fields);
        let bytes = head.lines().len();
        if bytes > HEAD_BYTES_MAX { Err(HeadError::TooLong { bytes }) } else { Ok(head) }
    }

    /// Returns the contents.
    #[must_use]
    pub fn fields(&self) -> &EditionFields {
        &self.0
    }

    /// Returns the contents, to make the next head from them.
    #[must_use]
    pub fn into_fields(self) -> EditionFields {
        self.0
    }

    fn lines(&self) -> String {
        let Self(fields) = self;
        let mut text = format!(
            "{FIRST_LINE}\nid = {}\nserial = {}\ntime = {}\nexpires = {}\n",
            to_hex(&fields.id),
            fields.serial,
            format_time(fields.time),
            format_time(fields.expires)
        );
        fields.mirrors.iter().for_each(|mirror| text.extend(["mirror = ", mirror, "\n"]));
        fields.keys.iter().for_each(|key| text.extend(["key = ", &key.to_base64(), "\n"]));
        for image in &fields.images {
            text.extend(["image = ", &image_line(image), "\n"]);
        }
        for (root, tree) in &fields.trees {
            text.extend(["tree = ", &root.to_string(), " ", &tree.to_string(), "\n"]);
        }
        text
    }

    /// Writes the head with the signatures of 1 to 4 keys.
    ///
    /// # Errors
    /// [`HeadError`] when there are no keys, too many, or a key is given twice, and when the head
    /// is too long.
    pub fn sign(&self, signers: &[EditionSigner]) -> Result<Vec<u8>, HeadError> {
        count("signature", signers.len(), 1, KEY_COUNT_MAX)?;
        let mut known = BTreeSet::new();
        let lines = self.lines();
        let mut text = lines.clone();
        for signer in signers {
            once(&mut known, format!("the key {}", signer.key()))?;
            let signature = STANDARD.encode(signer.sign(lines.as_bytes()));
            text.extend([SIGNATURE, &signer.key().to_base64(), " ", &signature, "\n"]);
        }
        if text.len() > HEAD_BYTES_MAX {
            return Err(HeadError::TooLong { bytes: text.len() });
        }
        Ok(text.into_bytes())
    }

    /// Reads a head from a server. Its signatures are checked before its lines are read. All of
    /// them must be good, and one must be by a key in `trusted`.
    ///
    /// # Errors
    /// [`OpenHeadError`].
    pub fn open(bytes: &[u8], trusted: &[EditionKey]) -> Result<OpenedHead, OpenHeadError> {
        let (lines, signers) = check_signatures(bytes)?;
        if !signers.iter().any(|signer| trusted.contains(signer)) {
            return Err(OpenHeadError::OtherKeys { signers });
        }
        Ok(OpenedHead { head: Self::parse(lines)?, signers })
    }

    fn parse(lines: &str) -> Result<Self, HeadError> {
        let rest = lines.strip_prefix(FIRST_LINE).and_then(|rest| rest.strip_prefix('\n'));
        let rest = rest.ok_or_else(|| match later_version(lines, FIRST_LINE) {
            Some(version) => HeadError::NewerVersion { version },
            None => HeadError::FirstLine,
        })?;
        let (mut id, mut serial, mut time, mut expires) = (None, None, None, None);
        let (mut mirrors, mut keys, mut images) = (Vec::new(), Vec::new(), Vec::new());
        let mut trees = BTreeMap::new();
        for (line, pair) in (2..).zip(pairs(rest)) {
            let wrong = |reason| HeadError::Line { line, reason };
            let (key, value) = pair.ok_or(wrong("it has no \" = \""))?;
            match key {
                "id" => {
                    let found = from_hex(value).ok().and_then(|bytes| bytes.try_into().ok());
                    let found = found.filter(|found: &[u8; 16]| to_hex(found) == value);
                    set(&mut id, found.ok_or(wrong("an id has 32 digits"))?, line)?;
                }
                "serial" => {
                    set(&mut serial, decode_number(value).ok_or(wrong("a serial is a number"))?, line)?;
                }
                "time" => set(&mut time, parse_time(value).ok_or(wrong(TIME))?, line)?,
                "expires" => set(&mut expires, parse_time(value).ok_or(wrong(TIME))?, line)?,
                "mirror" => mirrors.push(value.to_owned()),
                "key" => {
                    keys.push(EditionKey::from_base64(value).ok_or(wrong("a key has 44 letters of base64"))?);
                }
                "image" => images.push(parse_image(value).map_err(wrong)?),
                "tree" => {
                    let names = value.split_once(' ').and_then(|(root, tree)| {
                        Some((root.parse::<ObjectName>().ok()?, tree.parse::<ObjectName>().ok()?))
                    });
                    let (root, tree) = names.ok_or(wrong("a tree is a name of an object and 64 digits"))?;
                    if trees.insert(root, tree).is_some() {
                        return Err(wrong("an earlier line has this root"));
                    }
                }
                _ => {}
            }
        }
        let missing = |key| HeadError::Missing { key };
        Self::new(EditionFields {
            id: id.ok_or(missing("id"))?,
            serial: serial.ok_or(missing("serial"))?,
            time: time.ok_or(missing("time"))?,
            expires: expires.ok_or(missing("expires"))?,
            mirrors,
            keys,
            images,
            trees,
        })
    }
}

const TIME: &str = "a time has the form 2026-05-01T21:00:00Z";

fn count(key: &'static str, count: usize, least: usize, most: usize) -> Result<(), HeadError> {
    if (least..=most).contains(&count) { Ok(()) } else { Err(HeadError::Count { key, count, least, most }) }
}

fn once(known: &mut BTreeSet<String>, what: String) -> Result<(), HeadError> {
    if known.insert(what.clone()) { Ok(()) } else { Err(HeadError::Twice { what }) }
}

fn set<T>(field: &mut Option<T>, value: T, line: usize) -> Result<(), HeadError> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(HeadError::Line { line, reason: "an earlier line has this key" }),
    }
}

fn check_other_place(url: &str) -> Result<(), &'static str> {
    let is_url = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    if !is_url || url.len() > MIRROR_CHARS_MAX || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a mirror is a URL that begins with http:// or https://, without blanks");
    }
    Ok(())
}

fn check_image(image: &PublishedImage) -> Result<(), &'static str> {
    let parts = [Some(image.root), image.profile, image.machine];
    if image.name.is_empty() {
        return Err("it has no name");
    }
    if image.machine.is_some() && image.profile.is_none() {
        return Err("it has a machine without a profile");
    }
    if parts.into_iter().flatten().any(|part| part.bytes == 0 || part.bytes as usize > OBJECT_BYTES_MAX) {
        return Err("an object of it has an impossible length");
    }
    Ok(())
}

fn image_line(image: &PublishedImage) -> String {
    let mut words = vec![
        encode_word(&image.name),
        format_time(image.time),
        image.shape.size.to_string(),
        image.shape.block_bytes.to_string(),
        image.root.name.to_string(),
        image.root.bytes.to_string(),
        image.cipher.to_string(),
    ];
    for part in [image.profile, image.machine].into_iter().flatten() {
        words.extend([part.name.to_string(), part.bytes.to_string()]);
    }
    words.join(" ")
}

fn parse_image(line: &str) -> Result<PublishedImage, &'static str> {
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or("an image has at least seven words");
    let name = decode_word(word()?).ok_or("the name of an image is no percent-encoded word")?;
    let time = parse_time(word()?).ok_or(TIME)?;
    let size = decode_number(word()?).ok_or("the size of an image is no number")?;
    let block_bytes = decode_number(word()?).and_then(PublishedBlockBytes::new);
    let block_bytes = block_bytes.ok_or("a block size is a power of two from 65536 to 1048576")?;
    let root = parse_part(word()?, word()?)?;
    let cipher = word()?.parse()?;
    let mut part = || match (words.next(), words.next()) {
        (None, _) => Ok(None),
        (Some(name), Some(bytes)) => parse_part(name, bytes).map(Some),
        (Some(_), None) => Err("an object of an image has no length"),
    };
    let (profile, machine) = (part()?, part()?);
    // Words that a later version appends are not skipped: they could change the meaning of these.
    if words.next().is_some() {
        return Err("an image has at most eleven words");
    }
    let shape = DiskShape { size, block_bytes };
    Ok(PublishedImage { name, time, shape, root, cipher, profile, machine })
}

fn parse_part(name: &str, bytes: &str) -> Result<StoredPart, &'static str> {
    let name = name.parse().map_err(|_| "the name of an object has 64 digits in lower case")?;
    let bytes = decode_number(bytes).ok_or("the length of an object is no number")?;
    Ok(StoredPart { name, bytes })
}

/// Names the usual answers that servers and networks send instead of a file.
fn not_signed(bytes: &[u8]) -> OpenHeadError {
    match bytes.trim_ascii_start() {
        [b'<', ..] => OpenHeadError::Html,
        [0x1f, 0x8b, ..] => OpenHeadError::Gzip,
        _ => OpenHeadError::NotSigned,
    }
}

/// Returns the signed lines, and the keys that have signed them.
fn check_signatures(bytes: &[u8]) -> Result<(&str, Vec<EditionKey>), OpenHeadError> {
    if bytes.len() > HEAD_BYTES_MAX {
        return Err(OpenHeadError::TooLong);
    }
    let (lines, signatures) = split(bytes).ok_or_else(|| not_signed(bytes))?;
    let mut signers = Vec::new();
    for (number, line) in (1..).zip(signatures.split_terminator('\n')) {
        let wrong = |reason| OpenHeadError::Signature { number, reason };
        if number > KEY_COUNT_MAX {
            return Err(wrong("at most four are allowed"));
        }
        let words = line.strip_prefix(SIGNATURE).and_then(|words| words.split_once(' '));
        let (key, signature) = words.ok_or(wrong("it is no line of a signature"))?;
        let key = EditionKey::from_base64(key).ok_or(wrong("its key has not 44 letters of base64"))?;
        let signature = STANDARD.decode(signature).map_err(|_| wrong("it is not base64"))?;
        if !key.has_signed(lines.as_bytes(), &signature) {
            return Err(wrong("its key has not signed these lines"));
        }
        if signers.contains(&key) {
            return Err(wrong("its key has signed twice"));
        }
        signers.push(key);
    }
    Ok((lines, signers))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
#[path = "head/tests.rs"]
mod tests;
