//! `varve init`

use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_block::to_hex;
use varve_store::{CompareMode, Encryption, ScoreAlgorithm, Store, StoreConfig};
use varve_world::World;

use super::{Outcome, key, reindex};
use crate::arguments::{Arguments, CompareChoice, Init, ScoreChoice, WrongWords};
use crate::secret::{self, Asked};
use crate::{home, say, session, show};

pub(super) fn run(arguments: &Arguments, words: &Init) -> Result<Outcome> {
    let path = home::new_store_folder(arguments)?;
    let world = World::real(&path);
    let mut config = session::new_config(&world)?;
    apply(words, &mut config)?;
    if let (Encryption::None, Some(given)) = (config.encryption, secret::what_is_given(arguments)) {
        let way_out = match given {
            secret::PASSPHRASE => "unset the variable",
            _ => "name no key file (--key-file, VARVE_KEY_FILE)",
        };
        bail!(WrongWords(format!(
            "--plaintext makes a store without a key, but {given} was given, and with it every other command refuses such a store: leave out \
             --plaintext, or {way_out}"
        )));
    }
    let secret = match config.encryption {
        Encryption::Aes256Gcm => Some(secret::given(arguments, Asked::Twice)?),
        Encryption::None => None,
    };
    let cost = secret::cost(&words.cost)?;
    secret.iter().for_each(|secret| key::remark_short(arguments, secret));
    Store::create(&world, &config, secret.as_ref(), cost)
        .with_context(|| format!("cannot make a store in {}", path.display()))?;
    if !words.disk_index.index_path.is_empty() {
        reindex::choose_places(&world, &words.disk_index, &session::holder())?;
    }
    let id = to_hex(&config.id);
    if arguments.json {
        let mut made = json!({ "id": id });
        show::put_name(&mut made, "path", path.as_os_str().as_bytes());
        say::record("store", made);
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
    config.compare = match words.compare {
        CompareChoice::Hash => CompareMode::Hash,
        CompareChoice::Value => CompareMode::Value,
    };
    config.score = match words.score {
        Some(_) if config.compare == CompareMode::Value => bail!(WrongWords(
            "--score says which hash blocks are named by, and with --compare value they are not named by a hash: leave it out".into()
        )),
        Some(ScoreChoice::Sha1) => ScoreAlgorithm::Sha1,
        Some(ScoreChoice::Blake3) | None => ScoreAlgorithm::Blake3,
    };
    config.block_bytes = words.block_size;
    config.arena_map = words.arena_size;
    config.clump_bytes = words.clump_size;
    config.compression_level = words.compression;
    config.parity_percent = words.parity.0;
    reindex::choose(config, words.index, &words.disk_index)
}
