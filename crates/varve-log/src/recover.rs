//! What is good in an arena that has no seal: the open one, or one whose end a crash has cut off.
//!
//! Everything up to the last page counts; what follows it was never acknowledged. A page tells up to where its arena was
//! durable when it was written. Beyond that, a power cut may have kept any sector and lost any other: a writer reads the clumps
//! that pages name there before it believes the pages, and the first one that fails, or follows something broken, ends the arena.
//! What is broken before the mark was durable once, so it is damage: it is reported, and nothing is cut.
//!
//! What the disk does not give is neither: it may be good, and may come back. Nothing is concluded from it, and the arena is left as it
//! is.
//!
//! What can be read need not be on the disk: when a sync has failed, Linux keeps what it could not write and calls it clean. So
//! what no mark covers is written anew, to a file that takes the arena's place, before anything is built on it.

use std::ops::RangeInclusive;

use varve_world::{FileName, Storage};

use crate::arena::{ArenaId, Granule};
use crate::footer::{FOOTER_BYTES, Footer, PageRow, is_torn_seal, seal_bytes};
use crate::header::ARENA_HEADER_BYTES;
use crate::page::DirectoryPage;
use crate::read::{ArenaState, Log, OpenedArena, ReadLogError, is_unreadable};
use crate::record::{RECORD_HEADER_BYTES, RecordKind};
use crate::sectors::{SECTOR_GRANULES, in_sectors, may_be_lost};
use crate::window::Window;

/// How much is read at a time.
const AHEAD_BYTES: usize = 1 << 20;
/// How many arenas a crash may have left without a seal: the open one and those that waited.
pub const UNSEALED_MAX: usize = 4;

/// The good part of an arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Its pages, with the places of their records.
    pub pages: Vec<(PageRow, DirectoryPage)>,
    /// Where the good part ends, in bytes.
    pub log_bytes: u64,
    /// How many bytes follow it.
    pub cut_bytes: u64,
    /// Up to where it is known to survive power loss, in bytes.
    pub durable_bytes: u64,
    /// Whether a mark of durability follows the good part, which no sync has made durable: before anything is written
    /// here, it has to be cut off.
    pub has_stray_mark: bool,
    /// Where, in bytes, something is broken that good pages follow. After a recovery only what is damaged before a mark of
    /// durability: no crash leaves that behind, so nothing may be cut off, and nothing more may be written here.
    pub gap: Option<u64>,
    /// The first and the last place, in bytes, where the disk does not give something that may be a page: what that names is not known.
    pub hidden: Option<RangeInclusive<u64>>,
}

/// What can be told of an arena without a seal by somebody who cannot read its clumps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proven {
    /// Pages whose clumps were all known to be durable when a later page was written.
    pub proven: Recovered,
    /// Pages of which that is not known: a power cut may have taken some of their clumps.
    pub unproven: Vec<(PageRow, DirectoryPage)>,
}

impl Proven {
    /// Of what a [`scan`](Log::scan) has found, tells what is surely good, without reading its clumps. If that is all that there is,
    /// the marks at its end do not count: they are not durable themselves, and who goes on from here cuts them off.
    #[must_use]
    pub fn of(mut found: Recovered) -> Self {
        let durable = found.durable();
        let (pages, unproven) =
            std::mem::take(&mut found.pages).into_iter().partition(|(_, page)| is_before(page, durable));
        found.pages = pages;
        let mut proven = Self { proven: found, unproven };
        if proven.is_whole() {
            proven.proven.has_stray_mark = proven.proven.drop_mark();
        }
        proven
    }

    /// Whether all that the arena holds is proven: nothing is left to recover, and it can be sealed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let Recovered { cut_bytes, durable_bytes, gap, .. } = self.proven;
        self.unproven.is_empty() && gap.is_none() && cut_bytes == 0 && durable_bytes > 0
    }
}

/// What follows the last page of an arena without a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArenaEnd {
    /// Nothing, or whole records: those of a writer at work, or of one that was killed.
    Whole,
    /// A record that never reached the disk whole, as a crash leaves it: nothing was acknowledged from there on.
    Torn,
    /// A record that is all there, and has been changed: it may be the page that followed.
    Damaged,
}

/// Why an arena's good part could not be told.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// It could not be read; nothing was changed.
    #[error("cannot tell what a crash has left")]
    Read(#[from] ReadLogError),
    /// What a crash has left could not be cut off.
    #[error("arena {arena}: cannot cut what a crash has left")]
    Cut {
        /// Which arena.
        arena: ArenaId,
        /// What went wrong below.
        source: std::io::Error,
    },
    /// What may not be on the disk could not be written to a new file. It takes as much space as the arena has.
    #[error("arena {arena}: cannot write anew what may not be durable")]
    WriteAnew {
        /// Which arena.
        arena: ArenaId,
        /// What went wrong below.
        source: std::io::Error,
    },
    /// The disk does not give all of an arena that would have to be written anew. Nothing was changed.
    #[error("arena {arena}: the disk does not give all of it, so that it cannot be written anew")]
    NotGiven {
        /// Which arena.
        arena: ArenaId,
        /// What went wrong below.
        source: std::io::Error,
    },
    /// It could not be told which arenas were never begun.
    #[error("{file}: cannot tell whether it was ever begun")]
    Look {
        /// Which file, or the folder.
        file: String,
        /// What went wrong below.
        source: std::io::Error,
    },
    /// What a crash has left unfinished could not be removed.
    #[error("cannot remove {file}, which a crash has left unfinished")]
    Remove {
        /// Which file.
        file: FileName,
        /// What went wrong below.
        source: std::io::Error,
    },
}

impl RecoverError {
    /// Whether it failed because the disk does not give what is there. Nothing was changed.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::NotGiven { .. })
    }
}

impl Log {
    /// Finds the pages of an arena that has no seal. Reads record headers and pages only.
    ///
    /// # Errors
    /// [`ReadLogError::Storage`] when the file cannot be read. A torn or damaged record is no error: what can be
    /// found after it is found.
    pub fn scan(&self, arena: &OpenedArena) -> Result<Recovered, ReadLogError> {
        match self.scan_once(arena)? {
            // Believed when it is found twice: a writer may have put something in the place of the mark that the one before it has left.
            found if found.gap.is_some() => self.scan_once(arena),
            found => Ok(found),
        }
    }

    fn scan_once(&self, arena: &OpenedArena) -> Result<Recovered, ReadLogError> {
        let mut place = Granule::at_or_after(ARENA_HEADER_BYTES as u64).expect("the header is short");
        let mut found = Recovered { log_bytes: place.byte_offset(), ..Recovered::default() };
        let mut window = self.window(arena, AHEAD_BYTES);
        let mut broken = None;
        loop {
            let next = match self.next_page(arena, &mut window, place)? {
                // Believed when it is read a second time: what is broken may be cut.
                Next::Broken { .. } => {
                    window.forget();
                    self.next_page(arena, &mut window, place)?
                }
                page => page,
            };
            match next {
                Next::Page { row, page, end } => {
                    found.gap = found.gap.or(broken.take());
                    found.pages.push((row, *page));
                    found.log_bytes = end.byte_offset();
                    place = end;
                }
                Next::Broken { at, is_unreadable } => {
                    broken.get_or_insert(at.byte_offset());
                    if is_unreadable {
                        extend_hidden(&mut found.hidden, at);
                    }
                    let Some(again) = next_record(&mut window, at, &mut found.hidden)? else { break };
                    place = again;
                }
            }
        }
        found.cut_bytes = self.file_bytes(arena.id())?.saturating_sub(found.log_bytes);
        let durable = found.pages.iter().map(|(_, page)| page.durable()).max().unwrap_or_default();
        found.durable_bytes = durable.byte_offset();
        Ok(found)
    }

    /// The next page at or after `from`, or where something comes before it that is no record.
    fn next_page(
        &self,
        arena: &OpenedArena,
        window: &mut Window<'_>,
        from: Granule,
    ) -> Result<Next, ReadLogError> {
        let mut place = from;
        loop {
            let header = match window.record(place) {
                Ok(header) => header,
                Err(error) if error.is_damage() => return Ok(Next::broken(place, &error)),
                Err(error) => return Err(error),
            };
            // The gap after a record counts: the next record is appended where it ends.
            let file_bytes = window.file_bytes()?;
            let Some(end) = header.next().filter(|end| end.byte_offset() <= file_bytes) else {
                return Ok(Next::Broken { at: place, is_unreadable: false });
            };
            if header.kind == RecordKind::Page {
                let row = PageRow { granule: place, body_bytes: header.body_bytes, code: header.code };
                return match self.open_page(arena, &header, window) {
                    Ok(page) => Ok(Next::Page { row, page: Box::new(page), end }),
                    Err(error) if error.is_damage() => Ok(Next::broken(place, &error)),
                    Err(error) => Err(error),
                };
            }
            place = end;
        }
    }

    /// As [`Log::state`]; but a seal that a power cut has torn, and so was never acknowledged, counts as none.
    ///
    /// # Errors
    /// [`ReadLogError`]; [`ReadLogError::Seal`] when the seal is damaged in another way.
    pub fn state_as_left(&self, arena: &OpenedArena) -> Result<ArenaState, ReadLogError> {
        match self.state(arena) {
            Err(error @ ReadLogError::Seal { .. }) => {
                let found = self.scan(arena)?;
                let is_torn = found.ends_at_seal() && self.end(arena, &found)? == ArenaEnd::Torn;
                if is_torn { Ok(ArenaState::Unsealed) } else { Err(error) }
            }
            other => other,
        }
    }

    /// What follows the last page of an arena without a seal.
    ///
    /// # Errors
    /// [`ReadLogError`] when it could not be read for a reason that is no damage.
    pub fn end(&self, arena: &OpenedArena, found: &Recovered) -> Result<ArenaEnd, ReadLogError> {
        let mut window = self.window(arena, AHEAD_BYTES);
        let file_bytes = window.file_bytes()?;
        let mut place = Granule::at_or_after(found.log_bytes);
        while let Some(granule) = place.filter(|granule| granule.byte_offset() < file_bytes) {
            place = match window.authenticate(granule) {
                Ok(header) => header.next(),
                Err(error) if error.is_damage() => {
                    let is_after_page = granule.byte_offset() == found.log_bytes;
                    let is_torn = is_torn(&mut window, granule)?
                        || (is_after_page && ends_in_torn_seal(&mut window, found)?);
                    return Ok(if is_torn { ArenaEnd::Torn } else { ArenaEnd::Damaged });
                }
                Err(error) => return Err(error),
            };
        }
        Ok(ArenaEnd::Whole)
    }

    /// Of what a [`scan`](Self::scan) has found, keeps what a writer may go on from: reads the clumps that were not known to be
    /// durable, and ends the arena before what a crash has torn. What else is wrong is a [`gap`](Recovered::gap). Changes
    /// nothing on the disk.
    ///
    /// # Errors
    /// [`ReadLogError`] when it could not be read for a reason that is no damage.
    pub fn judge(&self, arena: &OpenedArena, mut found: Recovered) -> Result<Recovered, ReadLogError> {
        let durable = found.durable();
        let mut window = self.window(arena, AHEAD_BYTES);
        let (mut broken, mut unreadable) = (Vec::new(), found.first_hidden());
        for (number, (row, page)) in found.pages.iter().enumerate() {
            if let Some(clump) = broken_clump(&mut window, page, durable, &mut unreadable)? {
                tracing::warn!(arena = %arena.id(), offset = row.granule.byte_offset(), "a page outlived its clumps");
                broken.push((number, clump.byte_offset()));
            }
        }
        if let Some(place) = unreadable {
            // Nothing of the arena is cut off. But pages behind something that never reached the disk do not count.
            let first = broken.iter().map(|(_, clump)| *clump).min();
            match first {
                Some(first) if self.was_lost(&mut window, first, durable)? => {
                    found.pages.retain(|(row, _)| row.granule.byte_offset() < first);
                }
                _ => {
                    for (number, _) in broken.into_iter().rev() {
                        found.pages.remove(number);
                    }
                }
            }
            found.gap = found.gap.into_iter().chain(first).chain([place]).min();
            return Ok(found);
        }
        let Some(first) = broken.iter().map(|(_, clump)| *clump).chain(found.gap).min() else {
            return Ok(found);
        };
        if self.was_lost(&mut window, first, durable)? {
            let kept = found.pages.partition_point(|(row, _)| row.granule.byte_offset() < first);
            found.keep_pages(kept);
            found.gap = None;
            return Ok(found);
        }
        for (number, _) in broken.into_iter().rev() {
            let (row, _) = found.pages.remove(number);
            found.gap =
                Some(found.gap.map_or(row.granule.byte_offset(), |gap| gap.min(row.granule.byte_offset())));
        }
        Ok(found)
    }

    /// Whether a broken record never reached the disk: then nothing after it was ever acknowledged, since a sync that covered
    /// any of that would have covered this record, too.
    fn was_lost(&self, window: &mut Window<'_>, place: u64, durable: Granule) -> Result<bool, ReadLogError> {
        match Granule::at_or_after(place) {
            Some(granule) if granule >= durable => is_torn(window, granule),
            _ => Ok(false),
        }
    }

    /// Of what a [`scan`](Self::scan) has found in an arena that a writer is to go on with, tells the good part, and cuts off
    /// what a crash has left after it. An arena with a [`gap`](Recovered::gap) is left as it is.
    ///
    /// # Errors
    /// [`RecoverError`]; the arena is then as it was.
    pub fn recover(&self, arena: &OpenedArena, found: Recovered) -> Result<Recovered, RecoverError> {
        let durable = found.durable();
        let mut found = self.judge(arena, found)?;
        if found.gap.is_some() {
            tracing::error!(arena = %arena.id(), "an arena is damaged before its end; it is left as it is");
            return Ok(found);
        }
        let has_mark = found.drop_mark();
        let id = arena.id();
        if !is_durable(&found, durable) {
            tracing::info!(arena = %id, log_bytes = found.log_bytes, "writing anew what may not be durable");
            match self.write_anew(id, Some(found.log_bytes)) {
                Err(error) if error.is_unreadable() => {
                    tracing::error!(arena = %id, %error, "the disk does not give all of an arena; it is left as it is");
                    let is_clump =
                        |(_, page): &(_, DirectoryPage)| page.clumps().first().map(|clump| clump.granule);
                    let first = found.pages.iter().find_map(is_clump).unwrap_or_default();
                    found.gap = Some(first.byte_offset());
                    return Ok(found);
                }
                other => other?,
            }
            found.durable_bytes = found.log_bytes;
        } else if found.cut_bytes > 0 {
            tracing::info!(arena = %id, cut_bytes = found.cut_bytes, "cut what a crash has left");
            cut(self.storage().as_ref(), id, found.log_bytes)?;
        } else {
            found.has_stray_mark = has_mark;
        }
        Ok(found)
    }

    /// Writes an arena's file, or its first bytes, to a new one, durable under the same name when this returns.
    ///
    /// For an arena whose last sync failed, or was never asked for: what is built on it must not be lost with it.
    ///
    /// # Errors
    /// [`RecoverError`]; the arena is then as it was.
    pub fn write_anew(&self, id: ArenaId, log_bytes: Option<u64>) -> Result<(), RecoverError> {
        let (storage, file) = (self.storage().as_ref(), id.file_name());
        let failed = |source| RecoverError::WriteAnew { arena: id, source };
        let log_bytes = match log_bytes {
            Some(log_bytes) => log_bytes,
            None => storage.length(&file).map_err(failed)?,
        };
        let mut is_given = true;
        let mut read = |offset, into: &mut [u8]| {
            let read = storage.read_at(&file, offset, into);
            let read = read.or_else(|error| {
                if is_unreadable(&error) { storage.read_at(&file, offset, into) } else { Err(error) }
            });
            is_given &= !read.as_ref().is_err_and(is_unreadable);
            read
        };
        let copied = storage.replace_with(&file, |append| {
            let (mut piece, mut again) = (Vec::new(), Vec::new());
            let mut offset = 0;
            while offset < log_bytes {
                let piece_bytes = usize::try_from(log_bytes - offset).unwrap_or(AHEAD_BYTES).min(AHEAD_BYTES);
                piece.resize(piece_bytes, 0);
                again.resize(piece_bytes, 0);
                read(offset, &mut piece)?;
                read(offset, &mut again)?;
                // The copy replaces what it was read from: a disk that lies must not lie into it.
                if piece != again {
                    return Err(std::io::Error::other(format!(
                        "{file} reads differently from one time to the next"
                    )));
                }
                append(&piece)?;
                offset += piece_bytes as u64;
            }
            Ok(())
        });
        match copied {
            Err(source) if !is_given => Err(RecoverError::NotGiven { arena: id, source }),
            copied => copied.map_err(failed),
        }
    }

    /// Writes a sealed arena anew without its seal, durable when this returns, and hands back what is needed to seal it again:
    /// its pages' places.
    ///
    /// # Errors
    /// [`RecoverError`]; the arena is then as it was.
    pub fn take_off_seal(&self, arena: &OpenedArena) -> Result<Recovered, RecoverError> {
        let ArenaState::Sealed { footer, pages } = self.state(arena)? else {
            let source = std::io::Error::other("its seal reads differently from one time to the next");
            return Err(RecoverError::WriteAnew { arena: arena.id(), source });
        };
        tracing::info!(arena = %arena.id(), "taking off a seal that came before that of an arena before");
        self.write_anew(arena.id(), Some(footer.log_bytes))?;
        let empty = DirectoryPage::new(self.config().score_bytes);
        Ok(Recovered {
            pages: pages.into_iter().map(|row| (row, empty.clone())).collect(),
            log_bytes: footer.log_bytes,
            durable_bytes: footer.log_bytes,
            ..Recovered::default()
        })
    }

    /// Removes what a crash has left that holds nothing: unfinished copies of arenas, and those of the last arenas whose header was
    /// never written. Nothing was ever acknowledged in them: a sync makes every arena before it durable.
    ///
    /// # Errors
    /// [`RecoverError`] when it could not be read or removed.
    pub fn remove_never_begun(&self) -> Result<(), RecoverError> {
        let remove = |file: FileName| {
            tracing::info!(%file, "removed what a crash has left unfinished");
            self.storage().remove(&file).map_err(|source| RecoverError::Remove { file, source })
        };
        let files = self.storage().list(ArenaId::FOLDER).map_err(cannot_look(ArenaId::FOLDER))?;
        files.into_iter().filter(|file| file.as_str().ends_with(".arena.new")).try_for_each(remove)?;
        // Others are among the last ones without these: whoever looks afterwards must find none.
        loop {
            let never_begun = self.never_begun()?;
            if never_begun.is_empty() {
                return Ok(());
            }
            never_begun.into_iter().map(ArenaId::file_name).try_for_each(remove)?;
        }
    }

    /// Which of the last arenas have no header: a crash has lost it, or a writer is about to write it.
    ///
    /// # Errors
    /// [`RecoverError`] when they could not be listed or read.
    pub fn never_begun(&self) -> Result<Vec<ArenaId>, RecoverError> {
        let ids = self.arenas().map_err(|error| cannot_look(ArenaId::FOLDER)(error.source))?;
        let mut never_begun = Vec::new();
        for id in ids.into_iter().rev().take(UNSEALED_MAX) {
            let file = id.file_name();
            if !self.is_begun(&file).map_err(cannot_look(file.as_str()))? {
                never_begun.push(id);
            }
        }
        Ok(never_begun)
    }

    /// Whether an arena's file has a header, or had one when it was sealed.
    fn is_begun(&self, file: &FileName) -> std::io::Result<bool> {
        let storage = self.storage();
        let file_bytes = storage.length(file)?;
        let mut header = [0; ARENA_HEADER_BYTES];
        if file_bytes < header.len() as u64 {
            return Ok(false);
        }
        // Looked at twice: what reads as nothing once may be a whole arena.
        for _ in 0..2 {
            match storage.read_at(file, 0, &mut header) {
                // What the disk does not give was written once.
                Err(error) if is_unreadable(&error) => return Ok(true),
                read => read?,
            }
            if header.iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
        }
        let mut footer = [0; FOOTER_BYTES];
        match storage.read_at(file, file_bytes - footer.len() as u64, &mut footer) {
            Err(error) if is_unreadable(&error) => Ok(true),
            read => read.map(|()| Footer::decode(&footer, file_bytes, self.config().map).is_ok()),
        }
    }
}

fn cannot_look(file: &str) -> impl FnOnce(std::io::Error) -> RecoverError + use<> {
    let file = file.to_owned();
    |source| RecoverError::Look { file, source }
}

/// Whether all clumps of a page are before a mark of durability.
fn is_before(page: &DirectoryPage, durable: Granule) -> bool {
    page.clumps().iter().all(|clump| clump.granule < durable)
}

/// The first clump of a page, from `durable` on, that is not as the page names it. One that the disk does not give is not taken for
/// broken, but noted.
fn broken_clump(
    window: &mut Window<'_>,
    page: &DirectoryPage,
    durable: Granule,
    unreadable: &mut Option<u64>,
) -> Result<Option<Granule>, ReadLogError> {
    for clump in page.clumps().iter().filter(|clump| clump.granule >= durable) {
        match window.authenticate(clump.granule) {
            Ok(header) if header.code == clump.code => {}
            Err(error) if error.is_unreadable() => {
                unreadable.get_or_insert(clump.granule.byte_offset());
            }
            Err(error) if !error.is_damage() => return Err(error),
            _ => return Ok(Some(clump.granule)),
        }
    }
    Ok(None)
}

impl Recovered {
    /// Up to where the arena was known to be durable when its pages were written.
    #[must_use]
    pub fn durable(&self) -> Granule {
        Granule::at_or_after(self.durable_bytes).unwrap_or_default()
    }

    /// The first place, in bytes, where the disk does not give something that may be a page.
    #[must_use]
    pub fn first_hidden(&self) -> Option<u64> {
        self.hidden.as_ref().map(|hidden| *hidden.start())
    }

    /// Whether what follows the last page is as long as the seal over these pages: then that seal may be broken, and no page is missing
    /// before it.
    #[must_use]
    pub fn ends_at_seal(&self) -> bool {
        let seal_bytes = seal_bytes(self.pages.len()) as u64;
        self.gap.is_none() && self.hidden.is_none() && self.cut_bytes == seal_bytes
    }

    /// Ends the good part with the first `count` pages.
    fn keep_pages(&mut self, count: usize) {
        if count < self.pages.len() {
            self.pages.truncate(count);
            let kept_bytes = self
                .pages
                .last()
                .map_or(ARENA_HEADER_BYTES as u64, |(row, _)| row.granule.byte_offset() + record_bytes(row));
            self.cut_bytes += self.log_bytes - kept_bytes;
            self.log_bytes = kept_bytes;
        }
    }

    /// Ends the good part before the pages at its end that name nothing and only say that all before them is durable. They
    /// are not durable themselves. Says whether there was one.
    pub fn drop_mark(&mut self) -> bool {
        let marks = self.pages.iter().rev().take_while(|(_, page)| page.block_count() == 0);
        let Some((row, _)) = marks.last() else { return false };
        self.log_bytes = row.granule.byte_offset();
        self.pages.retain(|(row, _)| row.granule.byte_offset() < self.log_bytes);
        true
    }
}

/// Whether the header, and all blocks that the pages name, are before a mark of durability.
fn is_durable(found: &Recovered, durable: Granule) -> bool {
    if durable == Granule::default() {
        return false;
    }
    found.pages.iter().all(|(_, page)| is_before(page, durable))
}

/// What a step of a scan comes to.
enum Next {
    Page { row: PageRow, page: Box<DirectoryPage>, end: Granule },
    Broken { at: Granule, is_unreadable: bool },
}

impl Next {
    fn broken(at: Granule, error: &ReadLogError) -> Self {
        Self::Broken { at, is_unreadable: error.is_unreadable() }
    }
}

/// Of what the disk does not give, in the order of the log, takes in one place more.
fn extend_hidden(hidden: &mut Option<RangeInclusive<u64>>, place: Granule) {
    let first = hidden.as_ref().map_or(place.byte_offset(), |hidden| *hidden.start());
    *hidden = Some(first..=place.byte_offset());
}

/// The first place after `broken` where a record begins. Notes the places before it that the disk does not give.
fn next_record(
    window: &mut Window<'_>,
    broken: Granule,
    hidden: &mut Option<RangeInclusive<u64>>,
) -> Result<Option<Granule>, ReadLogError> {
    let file_bytes = window.file_bytes()?;
    let mut granule = Granule(broken.0.saturating_add(1));
    while granule.0 < u32::MAX && granule.byte_offset() < file_bytes {
        let step = match window.record(granule) {
            Ok(_) => return Ok(Some(granule)),
            Err(error) if error.is_unreadable() => {
                extend_hidden(hidden, granule);
                SECTOR_GRANULES - granule.0 % SECTOR_GRANULES
            }
            Err(error) if error.is_damage() => 1,
            Err(error) => return Err(error),
        };
        granule = Granule(granule.0.saturating_add(step));
    }
    Ok(None)
}

/// Whether a record that does not read is broken as a crash breaks it: its file ends before it does, or the part of it that
/// lies in one sector never reached the disk, and reads as zeros. A crash changes no bits within what it leaves.
fn is_torn(window: &mut Window<'_>, granule: Granule) -> Result<bool, ReadLogError> {
    let file_bytes = window.file_bytes()?;
    let start = granule.byte_offset();
    let body_bytes = match window.record(granule) {
        Ok(header) => header.body_bytes as usize,
        Err(error) if error.is_unreadable() => return Ok(false),
        Err(error) if error.is_damage() => 0,
        Err(error) => return Err(error),
    };
    let length = RECORD_HEADER_BYTES + body_bytes;
    if start.saturating_add(length as u64) > file_bytes {
        return Ok(true);
    }
    let record = match window.bytes(start, length) {
        // What is not known may be good.
        Err(error) if error.is_unreadable() => return Ok(false),
        other => other?,
    };
    Ok(in_sectors(start, record).any(may_be_lost))
}

/// Whether what follows the last page is what a crash has left of the seal over the pages.
fn ends_in_torn_seal(window: &mut Window<'_>, found: &Recovered) -> Result<bool, ReadLogError> {
    let rows: Vec<_> = found.pages.iter().map(|(row, _)| *row).collect();
    let left_bytes = window.file_bytes()?.saturating_sub(found.log_bytes);
    let left_bytes = match usize::try_from(left_bytes) {
        Ok(left_bytes) if left_bytes <= seal_bytes(rows.len()) => left_bytes,
        _ => return Ok(false),
    };
    match window.bytes(found.log_bytes, left_bytes) {
        // What is not known may be good.
        Err(error) if error.is_unreadable() => Ok(false),
        left => Ok(is_torn_seal(&rows, found.log_bytes, left?)),
    }
}

fn record_bytes(row: &PageRow) -> u64 {
    crate::record::record_bytes(row.body_bytes)
}

fn cut(storage: &dyn Storage, arena: ArenaId, log_bytes: u64) -> Result<(), RecoverError> {
    let file = arena.file_name();
    storage
        .truncate(&file, log_bytes)
        .and_then(|()| storage.sync(&file))
        .map_err(|source| RecoverError::Cut { arena, source })
}
