//! `varve snapshot --dry-run`: reports what would be archived and what would be left out, as the
//! sources are walked. It writes nothing and opens no store.

use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_archive::{LeftOutRecord, SnapshotRequest};
use varve_content::folder::{FolderOptions, FolderSurvey, SurveyEvent, survey_folder};
use varve_content::{NodeKind, Problem, Progress};
use varve_session::Interrupted;

use super::super::snapshot_names::PlannedSnapshot;
use super::super::source_form::{self, ChosenForm, SourceForm};
use super::source_selection::{self, SourceSelection};
use super::{CommandOutcome, folder_options, image, left_out, warn_if_mounted};
use crate::arguments::{AsChoice, TakeSnapshotArgs};
use crate::command::looking::left_out::{left_out_json, left_out_lines};
use crate::invocation::Invocation;
use crate::signals::cancellable_progress;
use crate::{complaint, say, show};

pub fn run(
    invocation: &Invocation,
    args: &TakeSnapshotArgs,
    planned: Vec<PlannedSnapshot>,
    what_goes_in: &SourceSelection,
) -> Result<CommandOutcome> {
    let progress = cancellable_progress()?;
    let mut outcome = CommandOutcome::Done;
    for (place, (source, PlannedSnapshot { request, .. })) in args.sources.iter().zip(planned).enumerate() {
        let context = || format!("{} cannot be examined", source.display());
        // Without the store, no earlier snapshots are known.
        let chosen = source_form::choose(args, source, &request, &[]).with_context(context)?;
        match chosen.form {
            SourceForm::Folder => {
                let options = folder_options(invocation, args, source, what_goes_in.options(args, place)?)?;
                let survey =
                    folder(invocation, source, &request, &options, &progress).with_context(context)?;
                if survey.problem_count > 0 {
                    outcome = CommandOutcome::Gaps;
                }
            }
            SourceForm::File => file(invocation, source, &request, &chosen).with_context(context)?,
            SourceForm::Stream(form) => stream(invocation, args, source, &request, form),
            SourceForm::Image => {
                image_source(invocation, args, source, &request, &chosen).with_context(context)?
            }
        }
    }
    what_goes_in.warn_of_unmatched();
    Ok(outcome)
}

fn folder(
    invocation: &Invocation,
    source: &Path,
    request: &SnapshotRequest,
    options: &FolderOptions,
    progress: &Progress,
) -> Result<FolderSurvey> {
    let name = show::name(request.name.as_bytes());
    if !invocation.json {
        list!("{name}: {}", source.display());
    }
    let survey = survey_folder(source, options, &mut |surveyed| {
        print(invocation, &request.source, surveyed);
        if progress.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if progress.is_cancelled() {
        return Err(Interrupted("interrupted").into());
    }
    if invocation.json {
        let mut line = json!({
            "name": request.name,
            "kind": "folder",
            "files": survey.file_count,
            "folders": survey.folder_count,
            "bytes": survey.bytes,
            "problems": survey.problem_count,
            "excluded": source_selection::counts_as_json(&survey.left_out),
        });
        show::put_name(&mut line, "source", &request.source);
        say::item("dry_run", line);
        return Ok(survey);
    }
    let (files, folders) =
        (show::count(survey.file_count, "file"), show::count(survey.folder_count, "folder"));
    list!("{name}: would archive {files} and {folders}, {}", show::bytes(survey.bytes));
    if let Some(total) = source_selection::total_by_rules(&survey.left_out) {
        list!("{name}: would leave out by rules {total}");
    }
    if survey.left_out.notice_count > 0 {
        list!(
            "{name}: would leave out {} of the kinds that are never archived by default",
            survey.left_out.notice_count
        );
    }
    Ok(survey)
}

fn print(invocation: &Invocation, source: &[u8], surveyed: SurveyEvent<'_>) {
    match surveyed {
        SurveyEvent::GoesIn { path, kind, size } => {
            let path = path.as_os_str().as_bytes();
            if invocation.json {
                let mut line = json!({ "kind": kind.to_string(), "size": size });
                show::put_name(&mut line, "source", source);
                show::put_name(&mut line, "path", path);
                say::item("would_archive", line);
            } else if !path.is_empty() {
                let slash = if kind == NodeKind::Folder { "/" } else { "" };
                list!("+ {}{slash}", show::name(path));
            }
        }
        SurveyEvent::LeftOut(entry) if invocation.json => {
            say::item("left_out", source_selection::as_json(entry, source));
        }
        SurveyEvent::LeftOut(entry) => list!("- {}", source_selection::as_line(entry)),
        SurveyEvent::Unreadable { path, error } => {
            complaint::report_problem(&Problem { path: path.to_path_buf(), error: error.into() });
        }
    }
}

/// Prints the line or the object of a source that is not a folder. `what` describes the source in
/// the line.
fn tell(invocation: &Invocation, request: &SnapshotRequest, mut fields: Value, what: fmt::Arguments<'_>) {
    if invocation.json {
        fields["name"] = request.name.clone().into();
        show::put_name(&mut fields, "source", &request.source);
        say::item("dry_run", fields);
    } else {
        list!("{}: would archive {what}", show::name(request.name.as_bytes()));
    }
}

/// Reports a single file.
fn file(
    invocation: &Invocation,
    source: &Path,
    request: &SnapshotRequest,
    chosen: &ChosenForm,
) -> Result<()> {
    let bytes = source.metadata()?.len();
    let fields = json!({ "kind": "file", "bytes": bytes, "kind_because": chosen.because });
    let because = because(chosen);
    let size = show::bytes(bytes);
    tell(invocation, request, fields, format_args!("{} as a file of {size}{because}", source.display()));
    Ok(())
}

/// Reports a stream: standard input or the output of a program. It is not read, and the program is
/// not started.
fn stream(
    invocation: &Invocation,
    args: &TakeSnapshotArgs,
    source: &Path,
    request: &SnapshotRequest,
    form: AsChoice,
) {
    let (kind, called) = match form {
        AsChoice::File => ("file", "a file"),
        AsChoice::Image => ("image", "a disk image"),
    };
    let from = match args.command {
        Some(_) => format!("the output of {}, which is not started", source.display()),
        None => "standard input, which is not read".into(),
    };
    let fields = json!({ "kind": kind, "bytes": null });
    tell(invocation, request, fields, format_args!("{from}, as {called}"));
}

/// Reports the size of an image, and the parts that would be left out.
fn image_source(
    invocation: &Invocation,
    args: &TakeSnapshotArgs,
    source: &Path,
    request: &SnapshotRequest,
    chosen: &ChosenForm,
) -> Result<()> {
    let (image, beside) = image(invocation, args, source)?;
    warn_if_mounted(source);
    let left_out = left_out(args, &image)?;
    let records = [beside, LeftOutRecord::list(&left_out)].concat();
    let bytes = image.size();
    let fields = json!({
        "kind": "image",
        "bytes": bytes,
        "kind_because": chosen.because,
        "left_out_bytes": left_out.ranges().total(),
        "left_out": left_out_json(&records),
    });
    let size = bytes.map_or_else(|| "unknown size".into(), show::bytes);
    let because = because(chosen);
    let what = format_args!("{} as a disk image of {size}{because}", source.display());
    tell(invocation, request, fields, what);
    if !invocation.json {
        left_out_lines(&records, true).iter().for_each(|line| list!("{line}"));
    }
    Ok(())
}

fn because(chosen: &ChosenForm) -> String {
    chosen.because.as_ref().map_or_else(String::new, |because| format!(": {because}"))
}
