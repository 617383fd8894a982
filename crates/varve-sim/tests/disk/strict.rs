//! The model is strict enough. A small engine that does everything right survives every seed. Each
//! engine that omits one of the steps that a disk requires is caught.

use std::io;

use varve_sim::{SeededDraw, SimDisk};
use varve_world::{FileName, Storage};

/// The step that an engine omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sin {
    None,
    /// A record is acknowledged before it was synced.
    ForgetsSync,
    /// A new log is acknowledged before its folder was synced.
    ForgetsFolderSync,
    /// The successor is renamed before its bytes are durable.
    RenamesTooEarly,
    /// The old log is removed before the rename of its successor is durable.
    RemovesFirst,
    /// A record is accepted without its checksum.
    TrustsLengths,
    /// After a failed sync it syncs again, and trusts the second result.
    SyncsAgain,
    /// A torn record is left at the end, and the next record is put behind it.
    LeavesTheTear,
}

const SINS: [Sin; 7] = [
    Sin::ForgetsSync,
    Sin::ForgetsFolderSync,
    Sin::RenamesTooEarly,
    Sin::RemovesFirst,
    Sin::TrustsLengths,
    Sin::SyncsAgain,
    Sin::LeavesTheTear,
];

/// A log of records: length, checksum, bytes. From time to time it is rewritten under another name.
struct Engine<'a> {
    disk: &'a SimDisk,
    sin: Sin,
}

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

fn log() -> FileName {
    name("folder/log")
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn frame(record: &[u8]) -> Vec<u8> {
    let length = u32::try_from(record.len()).unwrap();
    [&length.to_le_bytes()[..], &sum(record).to_le_bytes(), record].concat()
}

impl Engine<'_> {
    fn create(&self) -> io::Result<()> {
        self.disk.create(&log())?;
        self.disk.sync(&log())?;
        if self.sin == Sin::ForgetsFolderSync { Ok(()) } else { self.disk.sync_folder("folder") }
    }

    /// Reads the records, and cuts a torn end.
    fn open(&self) -> io::Result<Vec<Vec<u8>>> {
        let bytes = (self.disk as &dyn Storage).read_whole(&log(), 1 << 20)?;
        let (mut records, mut rest) = (Vec::new(), &bytes[..]);
        while let Some((head, tail)) = rest.split_at_checked(8) {
            let length = u32::from_le_bytes(*head.first_chunk().unwrap()) as usize;
            let Some((record, tail)) = tail.split_at_checked(length) else { break };
            let is_good = head[4..] == sum(record).to_le_bytes() && length > 0;
            if !is_good && self.sin != Sin::TrustsLengths || length == 0 {
                break;
            }
            records.push(record.to_vec());
            rest = tail;
        }
        if !rest.is_empty() && self.sin != Sin::LeavesTheTear {
            self.disk.truncate(&log(), (bytes.len() - rest.len()) as u64)?;
            self.disk.sync(&log())?;
        }
        Ok(records)
    }

    fn add(&self, record: &[u8]) -> io::Result<()> {
        self.disk.append(&log(), &frame(record))?;
        match self.sin {
            Sin::ForgetsSync => Ok(()),
            Sin::SyncsAgain => self.disk.sync(&log()).or_else(|_| self.disk.sync(&log())),
            _ => self.disk.sync(&log()),
        }
    }

    fn rewrite(&self, records: &[Vec<u8>]) -> io::Result<()> {
        let successor = name("folder/log.new");
        if self.disk.length(&successor).is_ok() {
            self.disk.remove(&successor)?;
        }
        self.disk.create(&successor)?;
        for record in records {
            self.disk.append(&successor, &frame(record))?;
        }
        if self.sin != Sin::RenamesTooEarly {
            self.disk.sync(&successor)?;
        }
        if self.sin == Sin::RemovesFirst {
            self.disk.remove(&log())?;
        }
        self.disk.rename(&successor, &log())?;
        self.disk.sync_folder("folder")
    }
}

/// Runs an engine on a disk on which a sync fails, or power is lost, at some call. Returns true if
/// afterwards the disk had every acknowledged record, and no other than the attempted one.
fn survives(sin: Sin, seed: u64) -> bool {
    let disk = SimDisk::new(seed);
    let mut draw = SeededDraw::new(seed ^ 0xabcd);
    let engine = Engine { disk: &disk, sin };
    engine.create().unwrap();
    let mut acknowledged: Vec<Vec<u8>> = Vec::new();
    for session in 0..4 {
        let fault = if draw.once_in(2) { varve_sim::Fault::SyncError } else { varve_sim::Fault::PowerCut };
        disk.arm(&[varve_sim::Strike { after: draw.below(20), fault }]);
        let mut attempted = None;
        for step in 0..8 {
            let bytes = vec![b'a' + session; 1 + draw.index(3000)];
            let outcome = if step == 5 { engine.rewrite(&acknowledged) } else { engine.add(&bytes) };
            if step != 5 {
                attempted = Some(bytes.clone());
            }
            match outcome {
                Ok(()) if step != 5 => acknowledged.push(bytes),
                Ok(()) => {}
                Err(_) => break,
            }
            attempted = None;
        }
        disk.behave();
        if !disk.is_down() {
            disk.cut_power();
        }
        disk.restart();
        let Ok(found) = engine.open() else { return false };
        let (known, more) = found.split_at(found.len().min(acknowledged.len()));
        if known != acknowledged || more.iter().any(|record| Some(record) != attempted.as_ref()) {
            return false;
        }
        // An attempted record that is there counts from now on, because the next records build on
        // it.
        acknowledged = found;
    }
    true
}

#[test]
fn an_engine_without_sin_survives() {
    let lost: Vec<_> = (0..2000).filter(|seed| !survives(Sin::None, *seed)).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn every_sin_is_caught() {
    for sin in SINS {
        let caught = (0..200).filter(|seed| !survives(sin, *seed)).count();
        assert!(caught > 0, "{sin:?} was never caught");
    }
}
