//! `varve reindex`, and the choice of an index.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;
use varve_session::{UsageError, is_store_free};
use varve_store::{IndexKind, Prefetch, Store, StoreAccess, StoreConfig};
use varve_world::World;

use crate::arguments::{DiskIndexArgs, IndexChoice, PrefetchChoice, ReindexArgs};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &ReindexArgs) -> Result<CommandOutcome> {
    let path = invocation.session.store_folder()?;
    let world = World::real(&path);
    let mut config = Store::read_config(&world)?;
    let now = match config.index {
        IndexKind::Memory => IndexChoice::Memory,
        IndexKind::Disk => IndexChoice::Disk,
    };
    choose(&mut config, args.index.unwrap_or(now), &args.disk_index)?;
    let name = path.display().to_string();
    let secret = invocation.session.secret_of(&world, &name)?;
    let open = |access| invocation.session.open_store(World::real(&path), &name, secret.as_ref(), access);
    // Require the key: a user who cannot open the store must not change it.
    drop(open(StoreAccess::Read)?);
    let holder = invocation.session.holder();
    let is_free = || is_store_free(&path);
    invocation.session.until_free(Some(&is_free), || {
        if !args.disk_index.index_path.is_empty() || config.index == IndexKind::Memory {
            choose_places(&world, &args.disk_index, &holder)?;
        }
        varve_store::choose_index(&world, &config, &holder)
            .with_context(|| format!("cannot change the index of {name}"))
    })?;
    let store =
        invocation.session.until_free(Some(&is_free), || open(StoreAccess::Write { holder: &holder }))?;
    store.save_checkpoint()?;
    let (stats, is_saved) = (store.stats()?, store.is_log_given());
    store.close()?;
    let file_bytes = stats.disk_index.as_ref().map(|index| index.file_bytes);
    if invocation.json {
        let place = if file_bytes.is_some() { "disk" } else { "memory" };
        say::record(
            "reindexed",
            json!({ "index": place, "blocks": stats.block_count, "index_bytes": stats.index_bytes, "index_file_bytes": file_bytes }),
        );
    } else if !invocation.quiet {
        let on_disk = file_bytes.map(|bytes| format!(", {} on disk", show::bytes(bytes))).unwrap_or_default();
        let blocks = show::count(stats.block_count, "block");
        say!("indexed {blocks}: {} in memory{on_disk}", show::bytes(stats.index_bytes));
    }
    if !is_saved {
        warning!("the disk cannot read all of the log: the index is not saved, and each command rebuilds it");
        hint!("check the disk; `varve verify` shows the unreadable parts, and the harm");
        return Ok(CommandOutcome::Damage);
    }
    Ok(CommandOutcome::Done)
}

/// Applies the index options to a configuration.
pub(super) fn choose(config: &mut StoreConfig, index: IndexChoice, args: &DiskIndexArgs) -> Result<()> {
    let DiskIndexArgs { index_memory, index_size, index_fingerprint, index_prefetch, index_path } = args;
    let is_any = index_memory.is_some()
        || index_size.is_some()
        || index_fingerprint.is_some()
        || index_prefetch.is_some()
        || !index_path.is_empty();
    config.index = match index {
        IndexChoice::Memory if is_any => {
            return Err(UsageError(
                "--index-memory and the other options of an index on disk need --index disk".into(),
            )
            .into());
        }
        IndexChoice::Memory => IndexKind::Memory,
        IndexChoice::Disk => IndexKind::Disk,
    };
    let disk = &mut config.disk_index;
    disk.memory_bytes = index_memory.unwrap_or(disk.memory_bytes);
    disk.expected_blocks = index_size.unwrap_or(disk.expected_blocks);
    disk.fingerprint_bits = index_fingerprint.unwrap_or(disk.fingerprint_bits);
    disk.prefetch = match index_prefetch {
        Some(PrefetchChoice::Arena) => Prefetch::Arena,
        Some(PrefetchChoice::Four) => Prefetch::Four,
        Some(PrefetchChoice::None) => Prefetch::None,
        None => disk.prefetch,
    };
    Ok(())
}

/// Spreads an index on disk over the given folders.
pub(super) fn choose_places(world: &World, args: &DiskIndexArgs, holder: &str) -> Result<()> {
    let paths = if args.index_path == [Path::new("store")] { &[] } else { args.index_path.as_slice() };
    let absolute = |path: &PathBuf| -> Result<String> {
        let path = std::path::absolute(path)
            .with_context(|| format!("{} is not a path of this machine", path.display()))?;
        let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
        Ok(text.into())
    };
    let paths: Vec<_> = paths.iter().map(absolute).collect::<Result<_>>()?;
    Ok(varve_store::choose_index_places(world, &paths, holder)?)
}
