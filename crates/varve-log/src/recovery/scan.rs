//! Finds the pages of an arena that has no seal: the open one, or one whose end a crash has cut
//! off. Reads only record headers and pages; [`judge`](crate::Log::judge) reads the clumps.

use std::ops::RangeInclusive;

use crate::arenas::footer::{PageRow, seal_bytes};
use crate::arenas::header::ARENA_HEADER_BYTES;
use crate::arenas::sectors::SECTOR_GRANULES;
use crate::reading::log::{Log, OpenedArena, ReadLogError};
use crate::reading::window::ArenaWindow;
use crate::records::directory_page::DirectoryPage;
use crate::records::granule::Granule;
use crate::records::record_header::{RecordKind, record_bytes};

/// The bytes that are read at a time.
pub(crate) const AHEAD_BYTES: usize = 1 << 20;

/// The good part of an arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveredArena {
    /// The pages with the places of their records.
    pub pages: Vec<(PageRow, DirectoryPage)>,
    /// The end of the good part, in bytes.
    pub log_bytes: u64,
    /// The length of the part after it.
    pub cut_bytes: u64,
    /// The end of the durable part, in bytes.
    pub durable_bytes: u64,
    /// True if a page without blocks follows the good part. It was written for its durable mark,
    /// and no sync has made the page itself durable. It must be cut off before anything is written
    /// here.
    pub has_stray_mark: bool,
    /// The offset of a broken record that good pages follow. After a recovery, only a broken record
    /// before the durable mark counts. No crash causes that, so nothing may be cut off, and nothing
    /// more may be written here.
    pub gap: Option<u64>,
    /// The first and the last offset at which the disk does not return something that may be a
    /// page. The names in such a page are unknown.
    pub hidden: Option<RangeInclusive<u64>>,
}

/// The pages of an arena without a seal, judged by a process that cannot read its clumps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProvenPages {
    /// Pages whose clumps were all known to be durable when a later page was written.
    pub proven: RecoveredArena,
    /// The other pages. A power cut may have taken some of their clumps.
    pub unproven: Vec<(PageRow, DirectoryPage)>,
}

impl ProvenPages {
    /// Selects the part of a [`scan`](Log::scan)'s result that is proven to be good, without a read
    /// of its clumps. If everything is proven, the durable marks at the end are dropped: they are
    /// not durable themselves, and the next writer cuts them off.
    #[must_use]
    pub fn of(mut found: RecoveredArena) -> Self {
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

    /// Returns true if the whole arena is proven. Then nothing is left to recover, and it can be
    /// sealed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let RecoveredArena { cut_bytes, durable_bytes, gap, .. } = self.proven;
        self.unproven.is_empty() && gap.is_none() && cut_bytes == 0 && durable_bytes > 0
    }
}

impl Log {
    /// Finds the pages of an arena that has no seal. Reads record headers and pages only.
    ///
    /// # Errors
    /// [`ReadLogError::Storage`] when the file cannot be read. A torn or damaged record is not an
    /// error: the scan continues after it.
    pub fn scan(&self, arena: &OpenedArena) -> Result<RecoveredArena, ReadLogError> {
        match self.scan_once(arena)? {
            // A gap is confirmed by a second scan, because a writer may have replaced the mark of
            // its predecessor meanwhile.
            found if found.gap.is_some() => self.scan_once(arena),
            found => Ok(found),
        }
    }

    fn scan_once(&self, arena: &OpenedArena) -> Result<RecoveredArena, ReadLogError> {
        let mut place = Granule::at_or_after(ARENA_HEADER_BYTES as u64).expect("the header is short");
        let mut found = RecoveredArena { log_bytes: place.byte_offset(), ..RecoveredArena::default() };
        let mut window = self.window(arena, AHEAD_BYTES);
        let mut broken = None;
        loop {
            let next = match self.next_page(arena, &mut window, place)? {
                // A broken record is confirmed by a second read, because it may be cut.
                NextPage::Broken { .. } => {
                    window.forget();
                    self.next_page(arena, &mut window, place)?
                }
                page => page,
            };
            match next {
                NextPage::Page { row, page, end } => {
                    found.gap = found.gap.or(broken.take());
                    found.pages.push((row, *page));
                    found.log_bytes = end.byte_offset();
                    place = end;
                }
                NextPage::Broken { at, is_unreadable } => {
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

    /// Returns the next page at or after `from`, or the place of a broken record before it.
    fn next_page(
        &self,
        arena: &OpenedArena,
        window: &mut ArenaWindow<'_>,
        from: Granule,
    ) -> Result<NextPage, ReadLogError> {
        let mut place = from;
        loop {
            let header = match window.record(place) {
                Ok(header) => header,
                Err(error) if error.is_damage() => return Ok(NextPage::broken(place, &error)),
                Err(error) => return Err(error),
            };
            // The gap after a record must be in the file: the next record is appended at its end.
            let file_bytes = window.file_bytes()?;
            let Some(end) = header.next().filter(|end| end.byte_offset() <= file_bytes) else {
                return Ok(NextPage::Broken { at: place, is_unreadable: false });
            };
            if header.kind == RecordKind::Page {
                let row = PageRow { granule: place, body_bytes: header.body_bytes, code: header.code };
                return match self.open_page(arena, &header, window) {
                    Ok(page) => Ok(NextPage::Page { row, page: Box::new(page), end }),
                    Err(error) if error.is_damage() => Ok(NextPage::broken(place, &error)),
                    Err(error) => Err(error),
                };
            }
            place = end;
        }
    }
}

/// Returns true if all clumps of a page are before the durable mark.
pub(crate) fn is_before(page: &DirectoryPage, durable: Granule) -> bool {
    page.clumps().iter().all(|clump| clump.granule < durable)
}

impl RecoveredArena {
    /// Returns the end of the part of the arena that was known to be durable when its pages were
    /// written.
    #[must_use]
    pub fn durable(&self) -> Granule {
        Granule::at_or_after(self.durable_bytes).unwrap_or_default()
    }

    /// Returns the first offset at which the disk does not return something that may be a page.
    #[must_use]
    pub fn first_hidden(&self) -> Option<u64> {
        self.hidden.as_ref().map(|hidden| *hidden.start())
    }

    /// Returns true if the rest after the last page is as long as the seal over these pages. Then
    /// the seal may be broken, and no page is missing before it.
    #[must_use]
    pub fn ends_at_seal(&self) -> bool {
        let seal_bytes = seal_bytes(self.pages.len()) as u64;
        self.gap.is_none() && self.hidden.is_none() && self.cut_bytes == seal_bytes
    }

    /// Ends the good part with the first `count` pages.
    pub(crate) fn keep_pages(&mut self, count: usize) {
        if count < self.pages.len() {
            self.pages.truncate(count);
            let kept_bytes = self.pages.last().map_or(ARENA_HEADER_BYTES as u64, |(row, _)| {
                row.granule.byte_offset() + record_bytes(row.body_bytes)
            });
            self.cut_bytes += self.log_bytes - kept_bytes;
            self.log_bytes = kept_bytes;
        }
    }

    /// Ends the good part before the trailing pages without blocks, which were written only for
    /// their durable mark. They are not durable themselves. Returns true if there was one.
    pub fn drop_mark(&mut self) -> bool {
        let marks = self.pages.iter().rev().take_while(|(_, page)| page.block_count() == 0);
        let Some((row, _)) = marks.last() else { return false };
        self.log_bytes = row.granule.byte_offset();
        self.pages.retain(|(row, _)| row.granule.byte_offset() < self.log_bytes);
        true
    }
}

/// The result of a step of a scan.
enum NextPage {
    Page { row: PageRow, page: Box<DirectoryPage>, end: Granule },
    Broken { at: Granule, is_unreadable: bool },
}

impl NextPage {
    fn broken(at: Granule, error: &ReadLogError) -> Self {
        Self::Broken { at, is_unreadable: error.is_unreadable() }
    }
}

/// Extends the range of unreadable places. Places are added in the order of the log.
fn extend_hidden(hidden: &mut Option<RangeInclusive<u64>>, place: Granule) {
    let first = hidden.as_ref().map_or(place.byte_offset(), |hidden| *hidden.start());
    *hidden = Some(first..=place.byte_offset());
}

/// Returns the first place after `broken` where a record begins. Adds unreadable places before it
/// to `hidden`.
fn next_record(
    window: &mut ArenaWindow<'_>,
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
