//! New and changed files of a folder: counted at the end, listed with `-v`, and counted in advance
//! for the progress display.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use varve_content::folder::{FileNews, FolderCounts, FolderOptions, NewsCounts, NoteNews, survey_folder};

use serde_json::{Value, json};

use crate::invocation::Invocation;
use crate::progress_bar::ShownProgress;
use crate::{say, show};

/// Returns a function that lists new and changed files, if a listing is requested.
pub(super) fn note(invocation: &Invocation) -> NoteNews {
    match (invocation.verbose > 0 && !invocation.quiet, invocation.json) {
        (false, _) => |_, _| {},
        (true, false) => |news, path| match news {
            FileNews::New | FileNews::NewOrChanged => say!("+ {}", show::name(path.as_os_str().as_bytes())),
            FileNews::Changed => say!("M {}", show::name(path.as_os_str().as_bytes())),
            FileNews::Unchanged => {}
        },
        (true, true) => |news, path| match news {
            FileNews::New => record("added", path),
            FileNews::Changed => record("changed", path),
            FileNews::NewOrChanged => record("added_or_changed", path),
            FileNews::Unchanged => {}
        },
    }
}

fn record(change: &str, path: &Path) {
    let mut fields = json!({ "change": change });
    show::put_name(&mut fields, "path", path.as_os_str().as_bytes());
    say::record("archived", fields);
}

/// Counts the files for the progress display while the snapshot has already begun. It reads
/// metadata and no contents.
pub(super) fn count_ahead(shown: &ShownProgress, source: &Path, options: &FolderOptions) {
    let (source, options) = (source.to_owned(), options.clone());
    shown.count_ahead(move |is_over| {
        let mut is_cut = false;
        let survey = survey_folder(&source, &options, &mut |_| {
            is_cut = is_over();
            if is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // If the count fails, the snapshot itself reports the problem.
        let survey = survey.ok().filter(|_| !is_cut)?;
        Some((survey.file_count + survey.folder_count, survey.bytes))
    });
}

/// Prints the counts for people.
pub(super) fn say_counts(counts: &FolderCounts) {
    let NewsCounts { new_count, changed_count, new_or_changed_count, unchanged_count } = counts.news;
    if new_or_changed_count > 0 {
        say!("  files: {new_or_changed_count} new or changed, {unchanged_count} unchanged");
    } else {
        say!("  files: {new_count} new, {changed_count} changed, {unchanged_count} unchanged");
    }
}

/// Adds the counts to an object for programs.
pub(super) fn put_counts(fields: &mut Value, counts: &FolderCounts) {
    fields["files"] = counts.file_count.into();
    fields["folders"] = counts.folder_count.into();
    let NewsCounts { new_count, changed_count, new_or_changed_count, unchanged_count } = counts.news;
    let is_known = new_or_changed_count == 0;
    fields["new_files"] = is_known.then_some(new_count).into();
    fields["changed_files"] = is_known.then_some(changed_count).into();
    fields["new_or_changed_files"] = (new_count + changed_count + new_or_changed_count).into();
    fields["unchanged_files"] = unchanged_count.into();
}
