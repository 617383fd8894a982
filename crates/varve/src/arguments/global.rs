//! The options that all commands share.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueHint};

use super::value::{parse_duration, parse_size};

const EVERYWHERE: &str = "Options of every command";

#[derive(Debug, Clone, Args)]
pub struct GlobalArgs {
    /// The store's folder, a replica of it (a folder or a URL) to read from, a Venti server
    /// (venti://HOST, tcp!HOST!PORT, '$venti'), or the name of a store of the configuration
    /// [default: its only store]
    #[arg(short, long, global = true, help_heading = EVERYWHERE, env = "VARVE_STORE", value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub store: Option<PathBuf>,

    /// A key file, whose contents open the store instead of a passphrase (at least 32 random bytes)
    ///
    /// Without a key and a passphrase from a file or a command, the passphrase is taken from
    /// VARVE_PASSPHRASE, or asked for. A file of your own that other users can read is refused.
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_KEY_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key_file: Option<PathBuf>,

    /// A program that prints the contents of a key file, with its arguments
    ///
    /// The program is started without a shell. All that it prints is the key, also a line break.
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_KEY_FILE_COMMAND", value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub key_file_command: Option<String>,

    /// A file with the passphrase, in one line
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_PASSPHRASE_FILE", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub passphrase_file: Option<PathBuf>,

    /// A program that prints the passphrase, with its arguments, such as 'pass show varve'
    ///
    /// The program is started without a shell.
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_PASSPHRASE_COMMAND", value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    pub passphrase_command: Option<String>,

    /// Time to wait for another writer, such as 30s, 10m or 2h, instead of failing at once
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "DURATION", value_parser = parse_duration)]
    pub wait: Option<Duration>,

    /// The folder for data that was read from replicas and publications, and their last known state
    /// [default: ~/.cache/varve]
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_CACHE", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub cache: Option<PathBuf>,

    /// The maximum size of the cache for each store's replicas, and for attached disks
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "BYTES", default_value = "1G", value_parser = parse_size)]
    pub cache_size: u64,

    /// The file for the catalog's roots at a Venti server [default: a file for each server in
    /// ~/.local/state/varve/roots]
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_ROOTS", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub roots: Option<PathBuf>,

    /// Send at most this number of requests a second to buckets, WebDAV and web servers
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "VARVE_REQUESTS_PER_SECOND", value_name = "N")]
    pub requests_per_second: Option<NonZeroU32>,

    /// Print results as JSON, for programs to read
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,

    /// Print only results and errors
    #[arg(short, long, global = true, help_heading = EVERYWHERE)]
    pub quiet: bool,

    /// List more, such as new and changed files; twice: print the log, too; three times: print more
    /// of it
    #[arg(short, long, global = true, help_heading = EVERYWHERE, action = ArgAction::Count)]
    pub verbose: u8,
}
