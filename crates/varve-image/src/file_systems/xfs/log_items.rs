//! The transactions in the log, put together from the operations of its records. A transaction is a
//! list of items, and an item a list of regions: the first of them says what the others are. These
//! numbers are in the byte order of the machine.

use std::collections::BTreeMap;

use super::damaged;
use super::log::{XfsLog, XfsLogOperation, XfsLogSpan};
use crate::bytes::fields::{u16_at, u32_at};
use crate::file_systems::file_system::FileSystemError;

const MAGIC: u32 = 0x5452_414e;
/// The bytes before the items.
const HEAD_BYTES: usize = 16;
const REGIONS_MAX: usize = 1 << 16;
/// The limit on transactions that are not complete, because they are kept in memory.
const PENDING_BYTES_MAX: usize = 512 << 20;
/// An allowance for each region.
const REGION_BYTES: usize = 64;

mod flag {
    pub(super) const START: u8 = 0x01;
    pub(super) const COMMIT: u8 = 0x02;
    pub(super) const CONTINUE: u8 = 0x04;
    /// The rest of a region that an earlier record began.
    pub(super) const WAS_CONTINUED: u8 = 0x08;
    pub(super) const END: u8 = 0x10;
    pub(super) const UNMOUNT: u8 = 0x20;
}

/// One change.
#[derive(Default)]
pub(super) struct XfsLogItem {
    region_count: usize,
    pub(super) regions: Vec<Vec<u8>>,
}

impl XfsLogItem {
    /// Returns the number of its kind.
    pub(super) fn kind(&self) -> u16 {
        self.regions.first().map_or(0, |region| u16_at(region, 0))
    }

    pub(super) fn region(&self, number: usize) -> &[u8] {
        self.regions.get(number).map_or(&[], Vec::as_slice)
    }
}

/// The changes that are made together.
pub(super) struct XfsTransaction {
    /// The position in the log of the record in which it began.
    pub(super) position: u64,
    head_bytes: usize,
    is_of_items: bool,
    pub(super) items: Vec<XfsLogItem>,
    bytes: usize,
}

impl XfsTransaction {
    fn add(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(bytes.len()).saturating_add(REGION_BYTES);
        if !self.is_of_items {
            if u32_at(bytes, 0) != MAGIC || bytes.len() > HEAD_BYTES {
                return Err("a transaction has no head");
            }
            self.head_bytes = bytes.len();
            self.is_of_items = self.head_bytes == HEAD_BYTES;
            return Ok(());
        }
        let is_complete = |item: &XfsLogItem| item.regions.len() >= item.region_count;
        if self.items.last().is_none_or(is_complete) {
            let region_count = usize::from(u16_at(bytes, 2));
            if !(1..REGIONS_MAX).contains(&region_count) {
                return Err("an item has no regions");
            }
            self.items.push(XfsLogItem { region_count, regions: Vec::new() });
        }
        if let Some(item) = self.items.last_mut() {
            item.regions.push(bytes.to_vec());
        }
        Ok(())
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if !self.is_of_items {
            self.head_bytes = self.head_bytes.saturating_add(bytes.len());
            if self.head_bytes > HEAD_BYTES {
                return Err("a transaction has no head");
            }
            self.is_of_items = self.head_bytes == HEAD_BYTES;
            return Ok(());
        }
        let region = self.items.last_mut().and_then(|item| item.regions.last_mut());
        region.ok_or("the beginning of a region is missing")?.extend_from_slice(bytes);
        Ok(())
    }
}

/// The transactions that are not complete.
#[derive(Default)]
struct XfsPending {
    transactions: BTreeMap<u32, XfsTransaction>,
    bytes: usize,
}

impl XfsPending {
    /// Adds an operation. Returns the transaction that it completes.
    fn add(
        &mut self,
        operation: &XfsLogOperation<'_>,
        position: u64,
    ) -> Result<Option<XfsTransaction>, &'static str> {
        let number = operation.transaction;
        let Some(transaction) = self.transactions.get_mut(&number) else {
            // The rest of a transaction whose beginning is no longer needed has no start.
            if operation.flags & flag::START != 0 {
                let new = XfsTransaction {
                    position,
                    head_bytes: 0,
                    is_of_items: false,
                    items: Vec::new(),
                    bytes: 0,
                };
                self.transactions.insert(number, new);
            }
            return Ok(None);
        };
        let mut flags = operation.flags & !flag::END;
        if flags & flag::WAS_CONTINUED != 0 {
            flags &= !flag::CONTINUE;
        }
        let before = transaction.bytes;
        match flags {
            0 | flag::CONTINUE => transaction.add(operation.bytes)?,
            flag::WAS_CONTINUED => transaction.extend(operation.bytes)?,
            flag::COMMIT | flag::UNMOUNT => {
                let done = self.transactions.remove(&number);
                self.bytes = self.bytes.saturating_sub(before);
                return Ok(done.filter(|_| flags == flag::COMMIT));
            }
            _ => return Err("an operation is of an unknown kind"),
        }
        self.bytes = self.bytes.saturating_add(transaction.bytes).saturating_sub(before);
        if self.bytes > PENDING_BYTES_MAX {
            return Err("its transactions are too long");
        }
        Ok(None)
    }
}

/// Passes all complete transactions, in the order in which they were completed.
pub(super) fn for_each_transaction(
    log: &XfsLog<'_>,
    span: &XfsLogSpan,
    mut visit: impl FnMut(XfsTransaction) -> Result<(), FileSystemError>,
) -> Result<(), FileSystemError> {
    let wrong = |problem: &str| damaged("log", problem);
    let mut pending = XfsPending::default();
    let torn = log.for_each_record(span, |record| {
        for operation in record.operations() {
            let operation = operation.map_err(wrong)?;
            let complete = pending.add(&operation, record.position()).map_err(wrong)?;
            complete.map_or(Ok(()), &mut visit)?;
        }
        Ok(())
    })?;
    match torn {
        Some(block) => Err(wrong(&format!("the record at its block {block} is damaged"))),
        None => Ok(()),
    }
}
