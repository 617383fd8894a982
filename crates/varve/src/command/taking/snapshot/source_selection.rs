//! The selection of the contents of folder snapshots: patterns, lists, and the messages about them.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_content::folder::{
    ExcludeRule, ExcludeRules, FolderOptions, LeftOutEntry, LeftOutOfFolder, LeftOutReason, ListedPaths,
    RuleOrigin,
};
use varve_session::UsageError;

use crate::arguments::TakeSnapshotArgs;
use crate::show;

/// The maximum number of unmatched patterns that are named for each file; all of them are counted.
const UNMATCHED_LINES_MAX: usize = 3;

/// The patterns and lists for all sources of a call.
pub(super) struct SourceSelection {
    rules: ExcludeRules,
    /// The absolute paths of each source: as given, and with links resolved.
    known_paths: Vec<Vec<PathBuf>>,
    listed: Option<Arc<ListedPaths>>,
}

impl SourceSelection {
    pub(super) fn new(args: &TakeSnapshotArgs) -> Result<Self> {
        let given = &args.what_goes_in;
        let mut rules = ExcludeRules::default();
        given.exclude_files.iter().try_for_each(|file| rules.add_file(file))?;
        given.excludes.iter().try_for_each(|pattern| rules.add_pattern(pattern, false))?;
        given.iexcludes.iter().try_for_each(|pattern| rules.add_pattern(pattern, true))?;
        let known_paths: Vec<_> = args.sources.iter().map(|source| known_paths(source)).collect();
        let listed = listed(args, &known_paths)?.map(Arc::new);
        Ok(Self { rules, known_paths, listed })
    }

    /// Returns the options for the source at this position in the call.
    pub(super) fn options(&self, args: &TakeSnapshotArgs, place: usize) -> Result<FolderOptions> {
        let given = &args.what_goes_in;
        let own = self.known_paths.get(place).map_or(&[][..], Vec::as_slice);
        let others = self.known_paths.iter().enumerate().filter(|(other, _)| *other != place);
        let others: Vec<_> = others.flat_map(|(_, paths)| paths.iter().cloned()).collect();
        Ok(FolderOptions {
            excludes: self.rules.bind(own, &others)?,
            larger_than: given.exclude_larger_than,
            if_present: given.exclude_if_present.iter().map(|name| name.clone().into_bytes()).collect(),
            listed: self.listed.clone(),
            exclude_caches: given.exclude_caches,
            one_file_system: given.one_file_system,
            virtual_file_systems: given.include_virtual,
            ..FolderOptions::default()
        })
    }

    /// Warns about patterns that have matched nothing in any source.
    pub(super) fn warn_of_unmatched(&self) {
        for warning in unmatched_warnings(self.rules.unmatched()) {
            warning!("{warning}");
        }
    }
}

/// Returns the given path, made absolute, and the path with links resolved.
fn known_paths(source: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        [std::path::absolute(source), source.canonicalize()].into_iter().flatten().collect();
    paths.dedup();
    paths
}

/// Returns a line for each unmatched pattern from an argument, and only a few for each file of
/// patterns: one file often serves many sources.
fn unmatched_warnings<'a>(rules: impl Iterator<Item = &'a ExcludeRule>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut files: Vec<(&Path, Vec<String>)> = Vec::new();
    for rule in rules {
        match rule.origin() {
            RuleOrigin::Argument => warnings.push(format!(
                "the pattern {:?} matched nothing: patterns are relative to the source, or begin with its absolute path",
                rule.text()
            )),
            RuleOrigin::Line { path, number } => {
                let line = format!("line {number} ({:?})", rule.text());
                match files.last_mut().filter(|(file, _)| file == path) {
                    Some((_, lines)) => lines.push(line),
                    None => files.push((path, vec![line])),
                }
            }
        }
    }
    for (file, lines) in files {
        let more = lines.len().saturating_sub(UNMATCHED_LINES_MAX);
        let shown = lines[..lines.len() - more].join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        warnings.push(format!("patterns in {} matched nothing: {shown}{more}", file.display()));
    }
    warnings
}

/// Reads the paths of `--files-from`.
fn listed(args: &TakeSnapshotArgs, known_paths: &[Vec<PathBuf>]) -> Result<Option<ListedPaths>> {
    let given = &args.what_goes_in;
    let (file, separator, option) = match (&given.files_from, &given.files_from0) {
        (Some(file), _) => (file, b'\n', "--files-from"),
        (None, Some(file)) => (file, 0, "--files-from0"),
        (None, None) => return Ok(None),
    };
    let ([source], [known]) = (args.sources.as_slice(), known_paths) else {
        bail!(UsageError(format!(
            "{option} lists paths of one source, but there are {}",
            args.sources.len()
        )));
    };
    if !source.is_dir() {
        bail!(UsageError(format!("{option} is for a folder: {} is not a folder", source.display())));
    }
    let bytes = read_list(file).with_context(|| format!("the list {} cannot be read", file.display()))?;
    let mut listed = ListedPaths::default();
    let mut count = 0_u64;
    for path in bytes.split(|byte| *byte == separator).filter(|path| !path.is_empty()) {
        let path = Path::new(OsStr::from_bytes(path));
        let below = known.iter().find_map(|root| path.strip_prefix(root).ok()).unwrap_or(path);
        if listed.add(below).is_err() {
            let (path, source) = (path.display(), source.display());
            bail!(UsageError(format!("{option}: {path} is not below {source}")));
        }
        count += 1;
    }
    if count == 0 {
        bail!(UsageError(format!("{option}: the list {} is empty", file.display())));
    }
    Ok(Some(listed))
}

fn read_list(file: &Path) -> io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return fs::read(file);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Prints for people what a snapshot of a folder lacks. The entries that rules exclude are counted,
/// and listed if `is_listed`. The entries that are left out for other reasons are always listed. A
/// long list ends with the number of the remaining entries.
pub(super) fn say_left_out(left_out: &LeftOutOfFolder, is_listed: bool) {
    for entry in &left_out.notices {
        say!("  left out: {}", as_line(entry));
    }
    let more = left_out.notice_count.saturating_sub(left_out.notices.len() as u64);
    if more > 0 {
        say!("  left out: {more} more of this kind");
    }
    if let Some(total) = total_by_rules(left_out) {
        say!("  left out by rules: {total}");
    }
    if is_listed {
        left_out.asked.iter().for_each(|entry| say!("  - {}", as_line(entry)));
        let count = left_out.file_count + left_out.folder_count;
        let more = count.saturating_sub(left_out.asked.len() as u64);
        if more > 0 {
            say!("  and {more} more");
        }
    }
}

/// Summarises the entries that rules exclude; `None` if there are none.
pub(super) fn total_by_rules(left_out: &LeftOutOfFolder) -> Option<String> {
    let files = (left_out.file_count > 0)
        .then(|| format!("{} of {}", show::count(left_out.file_count, "file"), show::bytes(left_out.bytes)));
    let folders = match left_out.folder_count {
        0 => None,
        1 => Some("1 folder with its contents".into()),
        several => Some(format!("{several} folders with their contents")),
    };
    let parts: Vec<_> = files.into_iter().chain(folders).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Formats a left-out entry for people.
pub(super) fn as_line(entry: &LeftOutEntry) -> String {
    let path = show::name(entry.path.as_os_str().as_bytes());
    let bytes = if entry.bytes > 0 { format!(" of {}", show::bytes(entry.bytes)) } else { String::new() };
    let reason = entry.reason.to_string();
    match entry.reason {
        LeftOutReason::Virtual(_) | LeftOutReason::MountedArchive => {
            format!("the contents of {path} ({reason})")
        }
        LeftOutReason::Marked { .. } => format!("the other contents of {path} ({reason})"),
        _ => format!("{path}{bytes} ({reason})"),
    }
}

/// Formats a left-out entry for programs.
pub(super) fn as_json(entry: &LeftOutEntry, source: &[u8]) -> Value {
    let (reason, detail) = match &entry.reason {
        LeftOutReason::Pattern { text, origin } => {
            let (file, line) = match origin {
                RuleOrigin::Argument => (Value::Null, Value::Null),
                RuleOrigin::Line { path, number } => (path.to_string_lossy().into(), (*number).into()),
            };
            ("pattern", json!({"pattern": text, "file": file, "line": line}))
        }
        LeftOutReason::LargerThan(bytes) => ("larger_than", json!({"limit": bytes})),
        LeftOutReason::Marked { by } => ("marked", json!({"mark": String::from_utf8_lossy(by)})),
        LeftOutReason::OtherFileSystem => ("other_file_system", json!({})),
        LeftOutReason::Virtual(name) => ("virtual_file_system", json!({"file_system": name})),
        LeftOutReason::MountedArchive => ("mounted_archive", json!({})),
        LeftOutReason::OwnStore => ("own_store", json!({})),
    };
    let mut line = json!({
        "kind": entry.kind.to_string(),
        "bytes": entry.bytes,
        "reason": reason,
        "rule": detail,
    });
    show::put_name(&mut line, "source", source);
    show::put_name(&mut line, "path", entry.path.as_os_str().as_bytes());
    line
}

/// Formats the totals of left-out entries for programs.
pub(super) fn counts_as_json(left_out: &LeftOutOfFolder) -> Value {
    json!({
        "files": left_out.file_count,
        "folders": left_out.folder_count,
        "bytes": left_out.bytes,
        "unasked": left_out.notice_count,
    })
}
