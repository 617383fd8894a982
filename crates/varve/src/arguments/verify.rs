//! The arguments of `varve verify` and `varve repair`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use varve_edition::PublicationAddress;
use varve_upkeep::AuditShare;
use varve_world::Timestamp;

use super::value::{parse_age, parse_sample, parse_share};

#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    /// Check these archives of vac or vbackup instead, completely: vac:SCORE, ext2:SCORE and the
    /// like, or .vac files
    ///
    /// Every block below the root is read; missing and damaged files are named by their path. Works
    /// in a store, in a replica and at a Venti server. The archive before it is not checked.
    #[arg(value_name = "ARCHIVE", value_hint = ValueHint::AnyPath, conflicts_with_all = ["share", "since", "replica", "sample"])]
    pub archives: Vec<OsString>,

    /// Read and check every byte, past the page cache where the file system allows it
    #[arg(long)]
    pub data: bool,

    /// Read at most this share of the data, such as 3%, and begin with the data that was read
    /// longest ago
    ///
    /// In this way a full check is spread over several days.
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    pub share: Option<f64>,

    /// Read only data that was not read and found undamaged within this time, such as 30d
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub since: Option<Duration>,

    /// Audit a replica, object by object, without trusting it
    ///
    /// With --store the replica is also compared with that store.
    #[arg(long, value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub replica: Option<String>,

    /// Check every object of a publication, with the key in its address: PLACE/#varve1-KEY
    ///
    /// No store is needed. PLACE is a folder or a URL, as for `publish`.
    #[arg(long, value_name = "ADDRESS", value_hint = ValueHint::AnyPath, conflicts_with_all = ["archives", "data", "share", "since", "replica", "sample"])]
    pub publication: Option<PublicationAddress>,

    /// The content key of encrypted images of the publication; may be given several times
    ///
    /// Without it, the objects of such images are compared with their names where the target lists
    /// them, but a missing one is not noticed.
    #[arg(long = "content-key", value_name = "FILE", value_hint = ValueHint::FilePath, requires = "publication")]
    pub content_keys: Vec<PathBuf>,

    /// Read and check this share of the replica's data, drawn at random, such as 5%
    #[arg(long, value_name = "PERCENT", requires = "replica", conflicts_with = "data", value_parser = parse_sample)]
    pub sample: Option<varve_replica::ClumpShare>,
}

impl VerifyArgs {
    /// The part of the data that is read, if any.
    pub fn data_share(&self, now: Timestamp) -> Option<AuditShare> {
        if !self.data && self.share.is_none() && self.since.is_none() {
            return None;
        }
        let not_since = self.since.map(|age| now.minus(age));
        Some(AuditShare { not_since, share: self.share.unwrap_or(1.0) })
    }
}

#[derive(Debug, Clone, Args)]
pub struct RepairArgs {
    /// Fetch lost blocks from this store, a copy with the same key; may be given several times
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub from: Vec<PathBuf>,

    /// Read every byte first, even if damage is known already
    #[arg(long)]
    pub data: bool,

    /// Only print what would be done
    ///
    /// Names the ways to repair each damaged arena, in the order of the attempts, and reads from
    /// the copies given with --from the blocks that would be fetched. Nothing is changed.
    #[arg(long)]
    pub plan: bool,

    /// List the losses; with the name of that plan: do not report them any more
    ///
    /// Without PLAN, this prints the losses and the name of the plan to accept them. With that
    /// name, `verify` and `repair` no longer report them; the log keeps a record of them with the
    /// time. Snapshots that need the lost data stay harmed, and are reported.
    #[arg(long, value_name = "PLAN", num_args = 0..=1, conflicts_with_all = ["from", "data", "plan"])]
    pub accept_loss: Option<Option<String>>,
}
