//! Shows plans of restores, and asks for consent to removals.

use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use varve_content::Tree;
use varve_content::folder::{
    PlanCounts, PlannedEntry, RestoreAction, RestoreOptions, RestoreReason, plan_restore,
};
use varve_session::WithHint;

use super::hints;
use crate::arguments::RestoreArgs;
use crate::invocation::Invocation;
use crate::{say, show};

/// The maximum number of entries that a refusal lists.
const LISTED_MAX: usize = 20;

/// The error for a restore that would change the destination without permission.
#[derive(Debug)]
pub struct WouldChange {
    path: PathBuf,
    count: u64,
    skipped_count: u64,
    listed: Vec<String>,
}

impl std::fmt::Display for WouldChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = show::name(self.path.as_os_str().as_bytes());
        match self.count {
            0 if self.skipped_count > 0 => write!(f, "{path} exists, and nothing in it would change:"),
            0 => write!(f, "{path} exists, and has all that would be restored"),
            1 => write!(f, "{path} exists, and 1 entry in it would change:"),
            several => write!(f, "{path} exists, and {several} entries in it would change:"),
        }?;
        for line in &self.listed {
            write!(f, "\n{line}")?;
        }
        match (self.count + self.skipped_count).saturating_sub(self.listed.len() as u64) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for WouldChange {}

/// Lists the changes that a restore into a folder would make if they were allowed, and the entries
/// that it would have to leave unchanged.
pub(super) fn would_change(
    tree: Tree<'_>,
    destination: &Path,
    options: RestoreOptions<'_>,
) -> Result<WouldChange> {
    let mut listed = Vec::new();
    let mut show = |entry: &PlannedEntry| {
        if entry.action != RestoreAction::Keep && listed.len() < LISTED_MAX {
            listed.push(line(Path::new(""), entry));
        }
    };
    let counts =
        plan_restore(tree.files, tree.root, destination, options, &mut show).with_hint(hints::of_folder)?;
    Ok(WouldChange {
        path: destination.to_path_buf(),
        count: counts.changes(),
        skipped_count: counts.skip,
        listed,
    })
}

/// Prints the whole plan.
pub(super) fn show_plan(
    invocation: &Invocation,
    tree: Tree<'_>,
    destination: &Path,
    options: RestoreOptions<'_>,
) -> Result<()> {
    let mut show = |entry: &PlannedEntry| print(invocation, destination, entry);
    let counts =
        plan_restore(tree.files, tree.root, destination, options, &mut show).with_hint(hints::of_folder)?;
    print_counts(invocation, destination, &counts);
    Ok(())
}

/// Prints the plan of a single file outside any folder.
pub(super) fn show_one(
    invocation: &Invocation,
    destination: &Path,
    bytes: u64,
    decision: (RestoreAction, RestoreReason),
) {
    let (action, reason) = decision;
    let is_written = matches!(action, RestoreAction::Create | RestoreAction::Replace);
    let bytes = if is_written { bytes } else { 0 };
    let mut counts = PlanCounts { bytes, ..PlanCounts::default() };
    match action {
        RestoreAction::Create => counts.create = 1,
        RestoreAction::Replace => counts.replace = 1,
        RestoreAction::Skip => counts.skip = 1,
        _ => counts.keep = 1,
    }
    print(invocation, destination, &PlannedEntry { path: PathBuf::new(), kind: None, bytes, action, reason });
    print_counts(invocation, destination, &counts);
}

fn print(invocation: &Invocation, destination: &Path, entry: &PlannedEntry) {
    if invocation.json {
        let mut value = json!({
            "action": entry.action.to_string(),
            "kind": entry.kind.map(|kind| kind.to_string()),
            "bytes": entry.bytes,
            "reason": entry.reason.to_string(),
        });
        put_path(&mut value, "path", &entry.path);
        put_path(&mut value, "destination", destination);
        say::item("restore_plan", value);
    } else {
        list!("{}", line(destination, entry));
    }
}

fn line(destination: &Path, entry: &PlannedEntry) -> String {
    let path = match entry.path.as_os_str().is_empty() {
        true if destination.as_os_str().is_empty() => PathBuf::from("."),
        true => destination.to_path_buf(),
        false => destination.join(&entry.path),
    };
    let path = show::name(path.as_os_str().as_bytes());
    format!("{:<10}  {path}  ({})", entry.action.to_string(), entry.reason)
}

fn print_counts(invocation: &Invocation, destination: &Path, counts: &PlanCounts) {
    if invocation.json {
        let mut value = json!({
            "create": counts.create,
            "replace": counts.replace,
            "attributes": counts.attributes,
            "keep": counts.keep,
            "delete": counts.delete,
            "skip": counts.skip,
            "bytes": counts.bytes,
        });
        put_path(&mut value, "destination", destination);
        say::item("restore_plan_summary", value);
        return;
    }
    let part = |count: u64, what: &str| (count > 0).then(|| format!("{count} to {what}"));
    let parts: Vec<String> = [
        part(counts.create, "create"),
        part(counts.replace, "replace"),
        part(counts.attributes, "change attributes"),
        part(counts.delete, "delete"),
        (counts.keep > 0).then(|| format!("{} kept", counts.keep)),
        (counts.skip > 0).then(|| format!("{} skipped", counts.skip)),
    ]
    .into_iter()
    .flatten()
    .collect();
    list!("{}; {} to write; nothing was changed", parts.join(", "), show::bytes(counts.bytes));
}

fn put_path(value: &mut Value, field: &str, path: &Path) {
    show::put_name(value, field, path.as_os_str().as_bytes());
}

/// Lists the planned removals, or all changes of a restore in place, and asks for consent. Reports
/// false if there is nothing to do.
pub(super) fn has_consent(
    invocation: &Invocation,
    restore: &RestoreArgs,
    tree: Tree<'_>,
    destination: &Path,
    options: RestoreOptions<'_>,
) -> Result<bool> {
    let mut listed = 0_usize;
    let mut show = |entry: &PlannedEntry| {
        let is_change = entry.action != RestoreAction::Keep && restore.in_place;
        if invocation.quiet || !(is_change || entry.action == RestoreAction::Delete) {
            return;
        }
        listed += 1;
        match () {
            () if invocation.json => print(invocation, destination, entry),
            // Each removal is listed.
            () if listed <= LISTED_MAX || invocation.verbose > 0 || entry.action == RestoreAction::Delete => {
                notice!("{}", line(destination, entry));
            }
            () => {}
        }
    };
    let counts =
        plan_restore(tree.files, tree.root, destination, options, &mut show).with_hint(hints::of_folder)?;
    if restore.in_place && listed > LISTED_MAX && invocation.verbose == 0 && !invocation.json {
        notice!("these are the first; -v lists all");
    }
    let entries = |count| match count {
        1 => "1 file or folder".to_owned(),
        several => format!("{several} files and folders"),
    };
    let question = match (restore.in_place, counts.changes(), counts.delete) {
        (true, 0, _) => {
            if !invocation.quiet && !invocation.json {
                let destination = show::name(destination.as_os_str().as_bytes());
                say!("{destination} is as the snapshot has it: nothing was changed");
            }
            return Ok(false);
        }
        (false, _, 0) => return Ok(true),
        (true, changes, 0) => format!("Restore {} in place?", entries(changes)),
        (true, changes, deleted) => {
            format!("Restore {} in place, {} of them by removal?", entries(changes), deleted)
        }
        (false, _, deleted) => format!("Restore, and remove {}?", entries(deleted)),
    };
    if restore.yes {
        return Ok(true);
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        let (count, what) = match restore.in_place {
            true => (counts.changes(), "changed in place"),
            false => (counts.delete, "removed"),
        };
        bail!(
            "{} would be {what}, but there is no terminal to ask: nothing was changed; --yes gives the consent",
            entries(count)
        );
    }
    let mut answer = String::new();
    write!(std::io::stderr(), "{question} [y/N] ")?;
    stdin.lock().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        _ => bail!("nothing was changed"),
    }
}
