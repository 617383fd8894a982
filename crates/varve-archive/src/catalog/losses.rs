//! The list of losses: blocks and places of the log that were stored once and are now unreadable.
//! The root of the catalog leads to it, so that no loss is forgotten.
//!
//! An entry leaves the list when its bytes are readable again. An accepted loss stays in the list,
//! with the time of its acceptance.
//!
//! | number | field              | value                                                                                |
//! |-------:|--------------------|--------------------------------------------------------------------------------------|
//! |      1 | score              | of a lost block                                                                      |
//! |      2 | type               | its type                                                                             |
//! |      3 | size               | its length in bytes; absent if that is not known                                     |
//! |      4 | arena              | of a lost place, whose blocks nothing names any more: its arena                      |
//! |      5 | generation         | the arena's generation; absent if that is not known                                  |
//! |      6 | first              | the first lost byte of the arena                                                     |
//! |      7 | last               | the last one; absent if the end is unknown                                           |
//! |      8 | may_hide_snapshots | 1 if a newer catalog than any that is known may have been there                      |
//! |      9 | noticed            | signed varint: the time when it was noticed, nanoseconds since 1970-01-01 UTC        |
//! |     10 | accepted           | signed varint: the time when the loss was accepted; absent if it was not             |
//! |     11 | page               | 16 bytes: the code of the header of a page that was in or behind the place           |
//! |     12 | seal               | 32 bytes: the code of the seal that the arena had                                    |
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use varve_block::{BlockKind, BlockName, BlockStore, BlockType, GetError, PutError, Score};
use varve_content::{FieldError, FieldReader, FieldWriter, Records, frame};
use varve_log::ArenaId;
use varve_tree::{ContentWriter, Cutting, Entry};
use varve_upkeep::{LostRange, Witness};
use varve_world::Timestamp;

/// Upper bound on the lost blocks that are listed by name. Further losses are listed by place.
pub(crate) const BLOCKS_MAX: usize = 1 << 20;
/// Upper bound on the lost places that are listed.
const PLACES_MAX: usize = 1 << 16;
/// Blocks per batch when the list is checked for blocks that are readable again.
const READ_COUNT: usize = 64;

/// A block that was stored and is unreadable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostBlock {
    pub name: BlockName,
    /// The size in bytes, if it is known.
    pub size: Option<u64>,
    pub noticed: Timestamp,
    /// The time at which the loss was accepted.
    pub accepted: Option<Timestamp>,
}

/// A part of the log whose blocks are neither readable nor known by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostPlace {
    pub id: PlaceId,
    pub noticed: Timestamp,
    /// The time at which the loss was accepted.
    pub accepted: Option<Timestamp>,
}

/// Identifies a lost part of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceId {
    pub arena: ArenaId,
    /// The arena's generation, if it is known.
    pub generation: Option<u32>,
    /// The lost bytes of the arena.
    pub range: LostRange,
    /// True if the part may have held a newer catalog, whose snapshots are then lost.
    pub may_hide_snapshots: bool,
    /// Identifies a copy that had the lost part, if anything does.
    pub witness: Option<Witness>,
}

impl PlaceId {
    /// Returns whether the place is the end of the log: all of it from one byte on.
    #[must_use]
    pub fn is_end_of_log(&self) -> bool {
        self.range.last.is_none() && matches!(self.witness, Some(Witness::Page(_)))
    }
}

/// The times at which a loss was noticed and accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LossTimes {
    noticed: Timestamp,
    accepted: Option<Timestamp>,
}

impl LossTimes {
    /// Merges two notes of the same loss. If only one of them is accepted, the open one wins: a
    /// loss that happens again after its acceptance is not accepted. Times do not decide this,
    /// because clocks are set back.
    fn merge(&mut self, other: Self) {
        *self = match (self.accepted, other.accepted) {
            (Some(_), None) => other,
            (None, Some(_)) => *self,
            (accepted, others) => {
                Self { noticed: self.noticed.min(other.noticed), accepted: accepted.max(others) }
            }
        };
    }
}

/// All known losses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    blocks: BTreeMap<BlockName, (Option<u64>, LossTimes)>,
    places: BTreeMap<PlaceId, LossTimes>,
    /// Set if there are losses beyond this list: it was damaged, or it was full.
    more: Option<LossTimes>,
    /// True if the list was not readable to its end just now. An earlier list may have the rest.
    is_cut: bool,
}

/// The contents of one record.
enum Loss {
    Block(LostBlock),
    Place(LostPlace),
    /// A record without names: there are losses beyond the list.
    More(LossTimes),
}

impl Losses {
    /// Reads the list that `entry` leads to. Unreadable entries are omitted, and
    /// [`is_incomplete`](Self::is_incomplete) then returns true.
    pub(crate) fn read(blocks: &dyn BlockStore, entry: Option<&Entry>) -> Self {
        let mut losses = Self::default();
        let Some(entry) = entry else { return losses };
        let (mut records, mut is_whole) = (Records::new(blocks, entry), true);
        while let Some(record) = records.next() {
            let loss = match record {
                Ok(record) => decode(record, blocks.score_bytes()),
                Err(error) => {
                    tracing::error!(%error, "the list of losses cannot be read to its end");
                    is_whole = false;
                    break;
                }
            };
            match loss {
                Ok(Loss::Block(block)) => losses.add_block(block),
                Ok(Loss::Place(place)) => losses.add_place(place),
                Ok(Loss::More(noted)) => losses.add_more(noted),
                Err(error) => {
                    tracing::error!(%error, "an entry of the list of losses cannot be read");
                    is_whole = false;
                }
            }
        }
        if !is_whole {
            // Earlier acceptances do not cover this new damage.
            losses.more = Some(LossTimes { noticed: Timestamp(0), accepted: None });
            losses.is_cut = true;
        }
        losses
    }

    /// Stores the list. Returns `None` if it is empty.
    pub(crate) fn write(&self, blocks: &dyn BlockStore) -> Result<Option<Entry>, PutError> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut list = ContentWriter::new(blocks, BlockKind::Data, Cutting::DIRECTORY);
        let mut record = Vec::new();
        let more = self.more.iter().map(|noted| noted.encode(FieldWriter::new()).finish());
        let places = self.places().map(|place| encode_place(&place));
        for fields in more.chain(places).chain(self.blocks().map(|block| encode_block(&block))) {
            record.clear();
            frame(&fields, &mut record);
            list.write(&record)?;
        }
        list.finish().map(Some)
    }

    /// The lost blocks, in the order of their names.
    pub fn blocks(&self) -> impl Iterator<Item = LostBlock> + '_ {
        self.blocks.iter().map(|(name, (size, LossTimes { noticed, accepted }))| LostBlock {
            name: *name,
            size: *size,
            noticed: *noticed,
            accepted: *accepted,
        })
    }

    /// The lost places, in the order of the log.
    pub fn places(&self) -> impl Iterator<Item = LostPlace> + '_ {
        self.places.iter().map(|(id, LossTimes { noticed, accepted })| LostPlace {
            id: *id,
            noticed: *noticed,
            accepted: *accepted,
        })
    }

    /// The number of lost blocks that are listed by name.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Returns whether no loss is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.places.is_empty() && self.more.is_none()
    }

    /// Returns whether there are losses beyond the list: it was damaged, or it was full.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.more.is_some()
    }

    /// Returns whether the list was not readable to its end, so that an earlier list may have the
    /// rest.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The losses that are not accepted.
    pub(crate) fn unaccepted(&self) -> Self {
        let mut open = self.clone();
        open.blocks.retain(|_, (_, noted)| noted.accepted.is_none());
        open.places.retain(|_, noted| noted.accepted.is_none());
        open.more = open.more.filter(|noted| noted.accepted.is_none());
        open
    }

    /// Adds a block. If the list is full, it is marked as incomplete instead.
    pub(crate) fn add_block(&mut self, block: LostBlock) {
        if self.blocks.len() >= BLOCKS_MAX && !self.blocks.contains_key(&block.name) {
            return self.add_more(LossTimes { noticed: block.noticed, accepted: block.accepted });
        }
        let noted = LossTimes { noticed: block.noticed, accepted: block.accepted };
        let (size, known) = self.blocks.entry(block.name).or_insert((block.size, noted));
        *size = size.or(block.size);
        known.merge(noted);
    }

    /// Adds a place. If the list is full, it is marked as incomplete instead.
    pub(crate) fn add_place(&mut self, place: LostPlace) {
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(&place.id) {
            return self.add_more(LossTimes { noticed: place.noticed, accepted: place.accepted });
        }
        let noted = LossTimes { noticed: place.noticed, accepted: place.accepted };
        self.places.entry(place.id).or_insert(noted).merge(noted);
    }

    fn add_more(&mut self, noted: LossTimes) {
        self.more.get_or_insert(noted).merge(noted);
    }

    /// Adds the losses that only an earlier, replaced list has. For losses in both lists, this list
    /// counts.
    pub(crate) fn absorb_earlier(&mut self, earlier: &Self) {
        let known = self.clone();
        earlier
            .blocks()
            .filter(|block| !known.blocks.contains_key(&block.name))
            .for_each(|block| self.add_block(block));
        earlier
            .places()
            .filter(|place| !known.places.contains_key(&place.id))
            .for_each(|place| self.add_place(place));
        self.more = known.more.or(self.more).or(earlier.more);
    }

    fn notes(&mut self) -> impl Iterator<Item = &mut LossTimes> {
        let notes = self.blocks.values_mut().map(|(_, noted)| noted).chain(self.places.values_mut());
        notes.chain(&mut self.more)
    }

    /// Removes the places for which `is_settled` returns true.
    pub(crate) fn settle_places(&mut self, mut is_settled: impl FnMut(&PlaceId) -> bool) {
        self.places.retain(|id, _| !is_settled(id));
    }

    /// Removes these blocks.
    pub(crate) fn drop_blocks<'n>(&mut self, names: impl Iterator<Item = &'n BlockName>) {
        for name in names {
            self.blocks.remove(name);
        }
    }

    /// Removes the blocks that are readable again.
    ///
    /// # Errors
    /// [`GetError::Failed`] if the store does not answer: the state of the blocks is then unknown.
    pub(crate) fn drop_readable(&mut self, blocks: &dyn BlockStore) -> Result<(), GetError> {
        let names: Vec<_> = self.blocks.keys().copied().collect();
        for names in names.chunks(READ_COUNT) {
            for (name, found) in names.iter().zip(blocks.get_batch(names)) {
                match found {
                    Ok(_) => drop(self.blocks.remove(name)),
                    Err(error @ GetError::Failed { .. }) => return Err(error),
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Accepts all open losses.
    pub(crate) fn accept(&mut self, now: Timestamp) {
        self.notes().for_each(|noted| noted.accepted = noted.accepted.or(Some(now)));
    }
}

impl LossTimes {
    fn encode(self, fields: FieldWriter) -> FieldWriter {
        fields.signed(9, self.noticed.0).optional_signed(10, self.accepted.map(|time| time.0))
    }
}

fn encode_block(block: &LostBlock) -> Vec<u8> {
    let fields = FieldWriter::new()
        .bytes(1, block.name.score.as_bytes())
        .number(2, block.name.block_type.to_byte().into())
        .optional_number(3, block.size);
    LossTimes { noticed: block.noticed, accepted: block.accepted }.encode(fields).finish()
}

fn encode_place(place: &LostPlace) -> Vec<u8> {
    let PlaceId { arena, generation, range, may_hide_snapshots, witness } = place.id;
    let fields = FieldWriter::new()
        .number(4, arena.0)
        .optional_number(5, generation.map(u64::from))
        .number(6, range.first)
        .optional_number(7, range.last)
        .optional_number(8, may_hide_snapshots.then_some(1));
    let noted = LossTimes { noticed: place.noticed, accepted: place.accepted };
    let fields = noted.encode(fields);
    match &witness {
        None => fields,
        Some(Witness::Page(code)) => fields.bytes(11, code),
        Some(Witness::Seal(code)) => fields.bytes(12, code),
    }
    .finish()
}

fn decode(fields: &[u8], score_bytes: usize) -> Result<Loss, FieldError> {
    let (mut score, mut block_type, mut size) = (None, None, None);
    let (mut arena, mut generation, mut may_hide_snapshots) = (None, None, false);
    let mut range = LostRange { first: 0, last: None };
    let (mut noticed, mut accepted, mut witness) = (Timestamp(0), None, None);
    for field in FieldReader::new(fields) {
        let field = field?;
        match field.number {
            1 if field.bytes.len() == score_bytes => {
                score = Some(Score::try_from(field.bytes).map_err(|_| field.unexpected())?);
            }
            1 => return Err(field.unexpected()),
            2 => block_type = Some(BlockType::from_byte(field.value()?).ok_or_else(|| field.unexpected())?),
            3 => size = Some(field.value()?),
            4 => arena = Some(ArenaId(field.value()?)),
            5 => generation = Some(field.value()?),
            6 => range.first = field.value()?,
            7 => range.last = Some(field.value()?),
            8 => may_hide_snapshots = field.value::<u64>()? != 0,
            9 => noticed = Timestamp(field.signed()?),
            10 => accepted = Some(Timestamp(field.signed()?)),
            11 => witness = Some(Witness::Page(field.bytes.try_into().map_err(|_| field.unexpected())?)),
            12 => witness = Some(Witness::Seal(field.bytes.try_into().map_err(|_| field.unexpected())?)),
            _ => {}
        }
    }
    Ok(match (score, block_type, arena) {
        (Some(score), Some(block_type), _) => {
            Loss::Block(LostBlock { name: BlockName { score, block_type }, size, noticed, accepted })
        }
        (_, _, Some(arena)) => {
            let id = PlaceId { arena, generation, range, may_hide_snapshots, witness };
            Loss::Place(LostPlace { id, noticed, accepted })
        }
        _ => Loss::More(LossTimes { noticed, accepted }),
    })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use varve_block::{Block, MemoryBlockStore};

    use super::*;

    const NOTED: LossTimes = LossTimes { noticed: Timestamp(-5), accepted: None };

    fn block(number: u8) -> LostBlock {
        let score = Score::try_from([number; 32].as_slice()).unwrap();
        LostBlock {
            name: BlockName { score, block_type: BlockType::DATA },
            size: Some(u64::from(number)),
            noticed: Timestamp(-5),
            accepted: None,
        }
    }

    fn place(first: u64) -> LostPlace {
        LostPlace {
            id: PlaceId {
                arena: ArenaId(3),
                generation: Some(1),
                range: LostRange { first, last: first.checked_add(9) },
                may_hide_snapshots: first == 0,
                witness: match first {
                    0 => Some(Witness::Page([8; 16])),
                    5000 => Some(Witness::Seal([7; 32])),
                    _ => None,
                },
            },
            noticed: Timestamp(7),
            accepted: Some(Timestamp(8)),
        }
    }

    #[test]
    fn what_is_lost_survives_the_round_trip() {
        let store = MemoryBlockStore::new();
        let mut losses = Losses::default();
        assert_eq!(losses.write(&store).unwrap(), None);
        (0..200).for_each(|number| losses.add_block(block(number)));
        losses.add_block(LostBlock { size: None, ..block(201) });
        [0, 5000, u64::MAX].into_iter().for_each(|first| losses.add_place(place(first)));
        let entry = losses.write(&store).unwrap();
        assert_eq!(Losses::read(&store, entry.as_ref()), losses);
        losses.add_more(LossTimes { noticed: Timestamp(3), accepted: None });
        let entry = losses.write(&store).unwrap();
        assert_eq!(Losses::read(&store, entry.as_ref()), losses);
        assert!(losses.is_incomplete());
    }

    #[test]
    fn a_list_that_is_damaged_itself_says_so() {
        let store = MemoryBlockStore::new();
        let mut losses = Losses::default();
        (0..=255).for_each(|number| losses.add_block(block(number)));
        let entry = losses.write(&store).unwrap().unwrap();
        let name = BlockName {
            score: entry.root(),
            block_type: BlockType::at_depth(BlockKind::Data, entry.depth()).unwrap(),
        };
        assert!(store.lose(&name));
        let left = Losses::read(&store, Some(&entry));
        assert!(left.is_incomplete() && !left.is_empty() && left.block_count() < 256);
    }

    #[test]
    fn what_can_be_read_again_is_no_loss_and_what_is_accepted_stays_so() {
        let store = MemoryBlockStore::new();
        let there = Block { block_type: BlockType::DATA, bytes: b"back again" };
        let name = BlockName { score: store.put(there).unwrap(), block_type: BlockType::DATA };
        let mut losses = Losses::default();
        losses.add_block(LostBlock { name, ..block(1) });
        losses.add_block(block(2));
        losses.drop_readable(&store).unwrap();
        assert_eq!(losses.blocks().collect::<Vec<_>>(), [block(2)]);
        losses.accept(Timestamp(11));
        let mut earlier = Losses::default();
        earlier.add_block(block(2));
        losses.absorb_earlier(&earlier);
        let accepted = LostBlock { accepted: Some(Timestamp(11)), ..block(2) };
        assert_eq!(losses.blocks().collect::<Vec<_>>(), [accepted]);
        assert!(losses.unaccepted().is_empty());
        // A block that is lost again is a new loss, even if the clock shows an earlier time.
        let again = LostBlock { noticed: Timestamp(4), ..block(2) };
        losses.add_block(again);
        assert_eq!(losses.unaccepted().blocks().collect::<Vec<_>>(), [again]);
        losses.add_block(accepted);
        assert_eq!(losses.unaccepted().block_count(), 1);
    }

    #[test]
    fn an_earlier_list_tells_what_this_one_lacks_and_changes_nothing_else() {
        let mut earlier =
            Losses { more: Some(LossTimes { accepted: Some(Timestamp(9)), ..NOTED }), ..Losses::default() };
        [1, 2].into_iter().for_each(|number| earlier.add_block(block(number)));
        earlier.add_place(LostPlace { accepted: None, ..place(300) });
        let mut losses = Losses { more: Some(NOTED), is_cut: true, ..Losses::default() };
        losses.add_block(LostBlock { accepted: Some(Timestamp(8)), ..block(1) });
        losses.absorb_earlier(&earlier);
        let open = losses.unaccepted();
        assert_eq!(open.blocks().collect::<Vec<_>>(), [block(2)]);
        assert!(
            open.places().count() == 1 && open.is_incomplete(),
            "that this list was lost, nobody has accepted"
        );
    }

    #[test]
    fn no_record_panics() {
        for good in [encode_block(&block(7)), encode_place(&place(300)), encode_place(&place(5000))] {
            for at in 0..good.len() {
                for bit in 0..8 {
                    let mut bad = good.clone();
                    bad[at] ^= 1 << bit;
                    drop(decode(&bad, 32));
                    drop(decode(&bad[..at], 32));
                }
            }
        }
        assert!(matches!(decode(&[], 32), Ok(Loss::More(_))));
        assert!(decode(&encode_block(&block(7)), 20).is_err(), "a score of another length");
    }
}
