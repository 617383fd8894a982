//! `varve init`

use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_block::to_hex;
use varve_session::{PASSPHRASE_VARIABLE, UsageError, WithHint};
use varve_store::{CompareMode, CreateError, Encryption, ScoreAlgorithm, Store, StoreConfig};
use varve_world::World;

use super::EMPTY_FOLDER;
use super::key;
use super::reindex;
use crate::arguments::{CompareChoice, InitArgs, ScoreChoice};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &InitArgs) -> Result<CommandOutcome> {
    let path = invocation.session.new_store_folder()?;
    let world = World::real(&path);
    let mut config = new_config(&world)?;
    apply(args, &mut config)?;
    if let (Encryption::None, Some(given)) = (config.encryption, invocation.session.what_is_given()) {
        let way_out = match given {
            PASSPHRASE_VARIABLE => "unset the variable",
            _ => "name no key file (--key-file, VARVE_KEY_FILE)",
        };
        bail!(UsageError(format!(
            "--plaintext makes a store without a key, but {given} was given: leave out --plaintext, or {way_out}"
        )));
    }
    let secret = match config.encryption {
        Encryption::Aes256Gcm => Some(invocation.session.secret_of_new_store()?),
        Encryption::None => None,
    };
    let cost = varve_session::cost(args.cost.memory, args.cost.passes)?;
    secret.iter().for_each(|secret| key::remark_short(invocation, secret));
    Store::create(&world, &config, secret.as_ref(), cost)
        .with_hint(|error| matches!(error, CreateError::NotEmpty { .. }).then_some(EMPTY_FOLDER))
        .with_context(|| format!("cannot make a store in {}", path.display()))?;
    if !args.disk_index.index_path.is_empty() {
        reindex::choose_places(&world, &args.disk_index, &invocation.session.holder())?;
    }
    let id = to_hex(&config.id);
    if invocation.json {
        let mut made = json!({ "id": id });
        show::put_name(&mut made, "path", path.as_os_str().as_bytes());
        say::record("store", made);
    } else if !invocation.quiet {
        say!("made store {id} in {}", path.display());
        if config.encryption == Encryption::Aes256Gcm {
            say!(
                "Nobody can read it without its passphrase or key file: keep that in a second place.\n`varve key export` prints a paper key, `varve key add` makes another key."
            );
        }
    }
    Ok(CommandOutcome::Done)
}

/// Returns the configuration of a new store.
fn new_config(world: &World) -> Result<StoreConfig> {
    let mut id = [0; 16];
    world.random.fill(&mut id).context("the system provides no random bytes")?;
    Ok(StoreConfig::new(id))
}

fn apply(args: &InitArgs, config: &mut StoreConfig) -> Result<()> {
    if args.plaintext {
        config.encryption = Encryption::None;
    }
    config.compare = match args.compare {
        CompareChoice::Hash => CompareMode::Hash,
        CompareChoice::Value => CompareMode::Value,
    };
    config.score = match args.score {
        Some(_) if config.compare == CompareMode::Value => bail!(UsageError(
            "--score cannot be used with --compare value, which does not name blocks by a hash: leave it out"
                .into()
        )),
        Some(ScoreChoice::Sha1) => ScoreAlgorithm::Sha1,
        Some(ScoreChoice::Blake3) | None => ScoreAlgorithm::Blake3,
    };
    config.block_bytes = args.block_size;
    config.arena_map = args.arena_size;
    config.clump_bytes = args.clump_size;
    config.compression_level = args.compression;
    config.parity_percent = args.parity.0;
    if args.deltas && config.compare == CompareMode::Value {
        bail!(UsageError("--deltas cannot be used with --compare value: leave one of them out".into()));
    }
    config.deltas = args.deltas;
    reindex::choose(config, args.index, &args.disk_index)
}
