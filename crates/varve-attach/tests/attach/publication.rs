//! A publication in memory, and a server for it that can fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use varve_attach::{BlockSupply, FetchSettings, PublicationServer, PublishedDisk, StoredCache};
use varve_edition::{
    BlockForm, DiskShape, EditionFields, EditionHead, EditionSigner, MapEntry, MapLevel, MapPage, ObjectName,
    ObjectPart, PublishedBlockBytes, PublishedImage, StoredCompression, StoredPart,
};
use varve_remote::{
    Capabilities, MemoryTarget, Object, PutMode, TakePiece, Target, TargetError, WholeObject,
};
use varve_world::{FileName, Timestamp};

pub const BLOCK: usize = 64 << 10;

/// The faults of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerFaults {
    /// It answers nothing.
    pub is_down: bool,
    /// It answers after this time.
    pub delay: Duration,
    /// These objects come with a flipped bit.
    pub falsified: BTreeSet<ObjectName>,
    /// These objects are not there.
    pub missing: BTreeSet<ObjectName>,
    pub lacks_ranges: bool,
}

/// A server with the objects of a publication. Clones share the objects and not the faults.
pub struct TestServer {
    pub objects: MemoryTarget,
    pub faults: Mutex<ServerFaults>,
    /// The objects of all requests, in order.
    pub requested: Mutex<Vec<FileName>>,
}

impl TestServer {
    pub fn with(objects: &MemoryTarget) -> Arc<Self> {
        let (objects, faults) = (objects.clone(), Mutex::default());
        Arc::new(Self { objects, faults, requested: Mutex::default() })
    }

    pub fn set(&self, change: impl FnOnce(&mut ServerFaults)) {
        change(&mut self.faults.lock());
    }

    pub fn requests(&self) -> u64 {
        self.requested.lock().len() as u64
    }

    fn answer(&self, name: &FileName, bytes: Bytes) -> Result<Bytes, TargetError> {
        self.requested.lock().push(name.clone());
        let faults = self.faults.lock().clone();
        std::thread::sleep(faults.delay);
        if faults.is_down {
            let source = std::io::Error::other("nobody answers");
            return Err(TargetError::Failed { what: name.to_string(), source });
        }
        let object = ObjectName::from_path(name.as_str());
        if object.is_some_and(|object| faults.missing.contains(&object)) {
            return Err(TargetError::NotFound { name: name.clone() });
        }
        if object.is_some_and(|object| faults.falsified.contains(&object)) {
            let mut bad = bytes.to_vec();
            let middle = bad.len() / 2;
            bad[middle] ^= 1;
            return Ok(bad.into());
        }
        Ok(bytes)
    }
}

impl fmt::Display for TestServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("server")
    }
}

impl Target for TestServer {
    fn capabilities(&self) -> Capabilities {
        self.objects.capabilities()
    }

    fn knows_ranges(&self) -> bool {
        !self.faults.lock().lacks_ranges
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        self.objects.put(name, contents, mode)
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        self.answer(name, self.objects.get(name, range)?)
    }

    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        _place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), TargetError> {
        let bytes = self.get(name, range)?;
        for piece in bytes.chunks(10_000) {
            if take(Bytes::copy_from_slice(piece)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn get_whole(
        &self,
        name: &FileName,
        bytes_max: u64,
        known: Option<&str>,
    ) -> Result<Option<WholeObject>, TargetError> {
        let Some(whole) = self.objects.get_whole(name, bytes_max, known)? else { return Ok(None) };
        let bytes = self.answer(name, whole.bytes)?;
        let mark = ObjectName::of(&bytes).to_string();
        Ok((known != Some(&mark)).then_some(WholeObject { bytes, mark: Some(mark) }))
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        self.objects.list(folder)
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        self.objects.remove(name)
    }
}

/// The form of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Each block is an object.
    Alone,
    /// Blocks lie in packs of this number of blocks.
    Packed(usize),
}

pub struct Publication {
    pub objects: MemoryTarget,
    pub disk: Vec<u8>,
    pub image: PublishedImage,
    /// The entries of the map, in the order of the disk.
    pub entries: Vec<MapEntry>,
}

/// Numbers that look random and depend on `seed` alone.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(length).collect()
}

/// A disk of noise, text and zeros, which does not end with a block.
pub fn disk_of(block_count: usize) -> Vec<u8> {
    let mut disk = Vec::new();
    for number in 0..block_count {
        match number % 4 {
            0 => disk.extend(noise(number as u64, BLOCK)),
            1 => disk.extend(format!("line {number}\n").bytes().cycle().take(BLOCK)),
            2 => disk.extend(vec![0; BLOCK]),
            _ => disk.extend(noise(7, BLOCK)),
        }
    }
    disk.truncate(disk.len().saturating_sub(1234));
    disk
}

fn put(objects: &MemoryTarget, stored: &[u8]) -> ObjectName {
    let name = ObjectName::of(stored);
    objects.set(&FileName::new(&name.path()).unwrap(), Some(Bytes::copy_from_slice(stored)));
    name
}

impl Publication {
    pub fn new(disk: Vec<u8>, layout: Layout) -> Self {
        Self::in_form(disk, layout, BlockForm::Plain)
    }

    pub fn in_form(disk: Vec<u8>, layout: Layout, form: BlockForm) -> Self {
        let objects = MemoryTarget::new();
        let block_bytes = PublishedBlockBytes::new(BLOCK as u64).unwrap();
        let shape = DiskShape { size: disk.len() as u64, block_bytes };
        let stored: Vec<Option<Vec<u8>>> = disk
            .chunks(BLOCK)
            .map(|block| block.iter().any(|byte| *byte != 0).then_some(block))
            .map(|block| block.map(|block| form.store(block, StoredCompression::Zstd(1))))
            .collect();
        let mut parts: BTreeMap<ObjectName, ObjectPart> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let distinct: Vec<&Vec<u8>> = stored.iter().flatten().filter(|block| seen.insert(*block)).collect();
        match layout {
            Layout::Alone => {
                for block in distinct {
                    let name = put(&objects, block);
                    parts.insert(name, ObjectPart::alone(name, u32::try_from(block.len()).unwrap()));
                }
            }
            Layout::Packed(count) => {
                for blocks in distinct.chunks(count) {
                    let pack: Vec<u8> = blocks.iter().flat_map(|block| (*block).clone()).collect();
                    let object = put(&objects, &pack);
                    let mut offset = 0;
                    for block in blocks {
                        let (name, bytes) = (ObjectName::of(block), u32::try_from(block.len()).unwrap());
                        parts.entry(name).or_insert(ObjectPart { object, offset, bytes, name });
                        offset += bytes;
                    }
                }
            }
        }
        let entry = |block: &Option<Vec<u8>>| match block {
            None => MapEntry::Zeros,
            Some(block) => MapEntry::Stored(parts[&ObjectName::of(block)]),
        };
        let entries: Vec<_> = stored.iter().map(entry).collect();
        let mut pages = Vec::new();
        for (page, entries) in (0..).zip(entries.chunks(1024)) {
            let level = MapLevel::Blocks { page };
            let page = MapPage::new(entries.to_vec(), &shape, level).unwrap().encode(level);
            let page = form.store(&page, StoredCompression::default());
            let bytes = u32::try_from(page.len()).unwrap();
            pages.push(MapEntry::Stored(ObjectPart::alone(put(&objects, &page), bytes)));
        }
        let root = MapPage::new(pages, &shape, MapLevel::Root).unwrap().encode(MapLevel::Root);
        let root = form.store(&root, StoredCompression::default());
        let bytes = u32::try_from(root.len()).unwrap();
        let image = PublishedImage {
            name: "disk".into(),
            time: Timestamp(1),
            shape,
            root: StoredPart { name: put(&objects, &root), bytes },
            cipher: form.cipher(),
            profile: None,
            machine: None,
        };
        Self { objects, disk, image, entries }
    }

    pub fn open(&self, source: &Arc<BlockSupply>) -> PublishedDisk {
        PublishedDisk::open(self.image.clone(), Arc::clone(source)).unwrap()
    }

    /// The part of a block.
    pub fn part(&self, block: usize) -> ObjectPart {
        match self.entries[block] {
            MapEntry::Stored(part) => part,
            MapEntry::Zeros => panic!("block {block} is zeros"),
        }
    }

    /// Puts a signed head.
    pub fn put_head(&self, serial: u64, signer: &EditionSigner) {
        let head = EditionHead::new(EditionFields {
            id: [1; 16],
            serial,
            time: Timestamp(0),
            expires: Timestamp(1000),
            mirrors: Vec::new(),
            keys: vec![signer.key()],
            images: vec![self.image.clone()],
            trees: BTreeMap::new(),
        });
        let signer = EditionSigner::from_text(&signer.to_text()).unwrap();
        let head = head.unwrap().sign(&[signer]).unwrap();
        self.objects.set(&FileName::new("head").unwrap(), Some(head.into()));
    }
}

pub fn mirrors(servers: &[&Arc<TestServer>]) -> Vec<PublicationServer> {
    let mirror = |(number, server): (usize, &&Arc<TestServer>)| PublicationServer {
        name: format!("server {number}"),
        target: Arc::clone(*server) as _,
    };
    servers.iter().enumerate().map(mirror).collect()
}

pub fn source(servers: &[&Arc<TestServer>], stored: Option<StoredCache>) -> Arc<BlockSupply> {
    source_in_form(servers, stored, BlockForm::Plain)
}

pub fn source_in_form(
    servers: &[&Arc<TestServer>],
    stored: Option<StoredCache>,
    form: BlockForm,
) -> Arc<BlockSupply> {
    let settings = FetchSettings { patience: Some(Duration::from_millis(300)), ..FetchSettings::default() };
    Arc::new(BlockSupply::open(mirrors(servers), settings, form, stored, 32 << 20, None).unwrap())
}
