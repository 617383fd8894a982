//! `varve init`

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_block::to_hex;
use varve_log::{ArenaMap, ClumpBytes, CompressionLevel};
use varve_store::{Encryption, ScoreAlgorithm, Store, StoreConfig};

use super::Outcome;
use crate::arguments::{Arguments, Init, ScoreChoice};
use crate::session;

pub(super) fn run(arguments: &Arguments, words: &Init) -> Result<Outcome> {
    let path = session::store_path(arguments)?;
    let world = session::world(&path);
    let mut config = session::new_config(&world)?;
    apply(words, &mut config)?;
    let secret = match config.encryption {
        Encryption::Aes256Gcm => Some(session::secret(arguments, session::Asked::Twice)?),
        Encryption::None => None,
    };
    let cost = session::cost(&words.cost)?;
    Store::create(&world, &config, secret.as_ref(), cost)
        .with_context(|| format!("cannot make a store in {}", path.display()))?;
    let id = to_hex(&config.id);
    if arguments.json {
        say!("{}", json!({ "path": path.to_string_lossy(), "id": id }));
    } else if !arguments.quiet {
        say!("made store {id} in {}", path.display());
        if config.encryption == Encryption::Aes256Gcm {
            say!(
                "Without its passphrase or key file nothing in it can be read, by anybody: keep it in a second place.\n`varve key export` prints a key for paper, `varve key add` makes another one."
            );
        }
    }
    Ok(Outcome::Done)
}

fn apply(words: &Init, config: &mut StoreConfig) -> Result<()> {
    if words.plaintext {
        config.encryption = Encryption::None;
    }
    config.score = match words.score {
        ScoreChoice::Blake3 => ScoreAlgorithm::Blake3,
        ScoreChoice::Sha1 => ScoreAlgorithm::Sha1,
    };
    config.block_bytes = match u32::try_from(words.block_size) {
        Ok(bytes) if StoreConfig::block_bytes_is_good(bytes) => bytes,
        _ => bail!("--block-size {}: a power of two from 512 to 64K", words.block_size),
    };
    config.arena_map = ArenaMap::new(words.arena_size)
        .with_context(|| format!("--arena-size {}: a multiple of 128 from 1M to 16G", words.arena_size))?;
    config.clump_bytes = u32::try_from(words.clump_size)
        .ok()
        .and_then(ClumpBytes::new)
        .with_context(|| format!("--clump-size {}: from 4K to 2M", words.clump_size))?;
    config.compression_level = CompressionLevel::new(words.compression)
        .with_context(|| format!("--compression {}: a level from 1 to 19", words.compression))?;
    Ok(())
}
