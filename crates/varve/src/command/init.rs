//! `varve init`

use anyhow::{Context, Result};
use serde_json::json;
use varve_block::to_hex;
use varve_store::{Encryption, ScoreAlgorithm, Store, StoreConfig};

use super::{Outcome, reindex};
use crate::arguments::{Arguments, Init, ScoreChoice};
use crate::session;

pub(super) fn run(arguments: &Arguments, words: &Init) -> Result<Outcome> {
    let path = session::store_folder(arguments)?;
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
    config.block_bytes = words.block_size;
    config.arena_map = words.arena_size;
    config.clump_bytes = words.clump_size;
    config.compression_level = words.compression;
    config.parity_percent = words.parity.0;
    reindex::choose(config, words.index, &words.disk_index)
}
