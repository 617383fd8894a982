//! The log of accesses to blocks, a line each.
//!
//! ```text
//! 1777669200.109 block 17 b31ded38 fetched 41202 B 44.2 ms https://disks.example/a
//! 1777669200.110 block 17 b31ded38 memory 41202 B 0.0 ms
//! 1777669200.110 block 18 zeros
//! 1777669200.150 falsified object 5c9e… from https://a.example: b31d… was published, 09af… came
//! 1777670400.000 edition 5 is published
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use varve_attach::{AccessLog, BlockAccess, BlockOrigin, FalsifiedBlock};
use varve_world::{Clock, RealClock};

/// A file of lines. After the first failed write, nothing more is written.
pub(super) struct AccessFile(Mutex<Option<BufWriter<File>>>);

impl AccessFile {
    /// Opens the file to append to it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write the log {}", path.display()))?;
        Ok(Self(Mutex::new(Some(BufWriter::new(file)))))
    }

    /// Writes the lines that are still in memory.
    pub(super) fn flush(&self) {
        self.write(|file| file.flush());
    }

    /// Notes an edition that is newer than the attached one.
    pub(super) fn newer_edition(&self, serial: u64) {
        self.write(|file| {
            writeln!(file, "{} edition {serial} is published", now())?;
            file.flush()
        });
    }

    fn write(&self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let mut file = self.0.lock();
        if let Some(open) = file.as_mut()
            && let Err(error) = write(open)
        {
            tracing::warn!(%error, "nothing more is written to the log of accesses");
            *file = None;
        }
    }
}

fn now() -> String {
    let milliseconds = RealClock.now().0 / 1_000_000;
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

impl AccessLog for AccessFile {
    fn accessed(&self, access: &BlockAccess) {
        let (origin, mirror) = match &access.origin {
            BlockOrigin::Zeros => ("zeros", None),
            BlockOrigin::Memory => ("memory", None),
            BlockOrigin::Storage => ("storage", None),
            BlockOrigin::Waited => ("waited", None),
            BlockOrigin::Fetched { mirror } => ("fetched", Some(mirror)),
            BlockOrigin::Failed => ("failed", None),
        };
        let mut line = format!("{} block {}", now(), access.block);
        match access.part {
            None => line += " zeros",
            Some(part) => {
                let (name, milliseconds) = (part.name.to_string(), access.elapsed.as_secs_f64() * 1000.0);
                let short = name.get(..8).unwrap_or(&name);
                line += &format!(" {short} {origin} {} B {milliseconds:.1} ms", part.bytes);
            }
        }
        if let Some(mirror) = mirror {
            line += &format!(" {mirror}");
        }
        let is_rare = matches!(access.origin, BlockOrigin::Fetched { .. } | BlockOrigin::Failed);
        self.write(|file| {
            writeln!(file, "{line}")?;
            if is_rare { file.flush() } else { Ok(()) }
        });
    }

    fn falsified(&self, block: &FalsifiedBlock) {
        let FalsifiedBlock { mirror, object, expected, found } = block;
        self.write(|file| {
            let now = now();
            writeln!(
                file,
                "{now} falsified object {object} from {mirror}: {expected} was published, {found} came"
            )?;
            file.flush()
        });
    }
}
