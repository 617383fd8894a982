//! The papers' experiments, repeated with the real engine: those of Foundation (Rhea, Cox and
//! Pesterev 2008) and of memventi (Lukkien 2008). `script/experiments` and `script/bench` run this
//! program; nothing depends on it. It prints JSON, one object on each line.
//!
//! `cases` runs the engine through the six cases in which Foundation compares its engines with
//! Venti's. `counted` counts the storage operations of each case. `index_shape` examines an index
//! in memory. `snapshots` runs the engine in virtual time, through 400 days of a disk's life, and
//! `replay` runs a trace. `generate` makes traces from figures. `devices` compares modelled devices
//! with published figures, and `randtest` repeats the thesis's tables on them. `predict` compares a
//! real disk with its model. `deltas` counts what deltas would save, and `caches` the hits of
//! caches of many sizes. `foundation`, `memventi`, `snapshots`, `replay`, `devices`, `randtest`,
//! `predict`, `deltas`, `caches` and `generate` are commands, and so are `defragmentation` in
//! `snapshots` and `sizes` in `caches`.
//!
//! Read first: `cases.rs` (the six cases), `foundation.rs`, `memventi.rs` and `snapshots.rs` (the
//! commands).

mod amount;
mod caches;
mod cases;
mod counted;
mod deltas;
mod devices;
mod forget;
mod foundation;
mod generate;
mod index_shape;
mod memventi;
mod predict;
mod randtest;
mod replay;
mod simulated;
mod snapshots;
mod two_devices;
mod uncached;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;

/// The papers' experiments, repeated. Prints JSON, an object a line.
#[derive(Debug, Parser)]
#[command(name = "varve-lab", version, max_term_width = 100)]
enum Lab {
    /// Measure each kind of store in the six cases of Foundation's paper: its speed and its disk
    /// operations
    ///
    /// Makes stores in a folder, and removes them. Before each case the store is opened anew, and
    /// its files are dropped from the page cache. Reads bypass the page cache, if the file system
    /// allows it.
    Foundation(foundation::Foundation),
    /// Repeat the seven measurements of memventi's thesis, and show the fill and the exactness of
    /// the index in memory
    ///
    /// Makes a store in a folder, serves it to itself by Venti's protocol, and removes it. Then an
    /// index is filled with the blocks of each --index-blocks, without a store. The output has the
    /// fill of its parts, the slots that a search examines, and the number of collisions.
    Memventi(memventi::Memventi),
    /// Simulate the 400 snapshots of Foundation's section 5.3: the real engine, in virtual time
    ///
    /// A disk of 41.7 GB changes for 400 days. The changes are generated, since the paper's traces
    /// were not published. The output has the size and the time of each snapshot, the work of the
    /// disk, and the times of restores. The engine reads and writes real bytes, so this takes some
    /// seconds for each gigabyte, divided by the scale.
    Snapshots(snapshots::Snapshots),
    /// Count what a restore of the last of these 400 disks would gain if its scattered blocks were
    /// stored again, side by side
    Defragmentation(snapshots::moved_blocks::Defragmentation),
    /// Count the space that deltas would save in a store with versions of a disk or a file
    ///
    /// The output has, for each version, the compressed bytes of its new blocks, without deltas and
    /// with them.
    Deltas(deltas::Deltas),
    /// Count the hits of caches of 64 KiB to 4 GiB, by the blocks that are loaded and evicted
    /// together
    ///
    /// The output has, for the duplicates of all snapshots, for the newest snapshot when it is put
    /// again, and for a restore of it, the misses and the loaded bytes at each size.
    Caches(caches::Caches),
    /// Compare arenas, frames, caches and batches of several sizes on an old and a new disk, an SSD
    /// and an object store
    ///
    /// The engine takes 400 snapshots in virtual time, restores the newest one, and reads single
    /// blocks of it. The output has the time, the requests and their price.
    Sizes(caches::sizes::StoreSizeStudy),
    /// Run a trace through the engine in virtual time, on a described device
    ///
    /// The output has the time of each snapshot and the work of the device. The blocks have the
    /// sizes of the trace, and compress as well as they did.
    Replay(replay::Replay),
    /// Repeat the thesis's measurements of memventi in virtual time, on its two disks
    ///
    /// The log lies on one device and the index on another. Each request takes the time that the
    /// thesis's processor and network took for a block in memory, and the time of the devices.
    Randtest(randtest::Randtest),
    /// Compare the six cases on a disk with the times that the simulator predicts for it
    ///
    /// The prediction is the time of the simulated device, and that of the processor: the same
    /// work on files in memory. All run one task at a time. A machine without other work gives
    /// better figures.
    Predict(predict::Predict),
    /// Compare the models of devices with the published figures of these devices
    ///
    /// A device is a TOML file that names its source. The output has each published figure beside
    /// the model's.
    Devices(devices::Devices),
    /// Make a trace from figures about a workload
    #[command(subcommand)]
    Generate(generate::Generate),
}

fn main() -> ExitCode {
    let mut print = |value: Value| Ok(writeln!(std::io::stdout(), "{value}")?);
    let done = match Lab::parse() {
        Lab::Foundation(args) => foundation::run(&args, &mut print),
        Lab::Memventi(args) => memventi::run(&args, &mut print),
        Lab::Snapshots(args) => snapshots::run(&args, &mut print),
        Lab::Defragmentation(args) => snapshots::moved_blocks::run(&args, &mut print),
        Lab::Deltas(args) => deltas::run(&args, &mut print),
        Lab::Caches(args) => caches::run(&args, &mut print),
        Lab::Sizes(args) => caches::sizes::run(&args, &mut print),
        Lab::Replay(args) => replay::run(&args, &mut print),
        Lab::Randtest(args) => randtest::run(&args, &mut print),
        Lab::Predict(args) => predict::run(&args, &mut print),
        Lab::Devices(args) => devices::run(&args, &mut print),
        Lab::Generate(command) => generate::run(&command, &mut print),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    // A failure to write here cannot be reported anywhere.
    drop(writeln!(std::io::stderr(), "varve-lab: {}", varve_block::with_causes(error.as_ref())));
    ExitCode::FAILURE
}

/// Makes a folder for an experiment. Dropping it removes the folder and its contents.
fn scratch(folder: &Path) -> Result<tempfile::TempDir> {
    if !folder.is_dir() {
        bail!("there is no folder {}: name a folder on the disk to be measured", folder.display());
    }
    let scratch = tempfile::Builder::new().prefix("varve-lab-").tempdir_in(folder);
    scratch.with_context(|| format!("the engine could not be measured in {}", folder.display()))
}
