//! `varve import --check`: compares imported snapshots with what the other program restores.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use varve_archive::{Archive, Snapshot, SnapshotContent};
use varve_content::folder::{RestoreFilter, RestoreOptions, StoredFiles, Watch, read_back};
use varve_content::image::{ImagePart, read_back_image};
use varve_content::{Node, Problem, Progress};
use varve_import::{OwnRestore, check_attributes};

use crate::command::looking::snapshot_list;
use crate::invocation::Invocation;
use crate::{moment, say, show};

/// Checks imported snapshots, and writes a report.
pub struct ImportCheck<'a> {
    invocation: &'a Invocation,
    report: Option<BufWriter<File>>,
    /// The number of differences in all snapshots.
    pub difference_count: u64,
}

impl<'a> ImportCheck<'a> {
    pub fn new(invocation: &'a Invocation, report: Option<&Path>) -> Result<Self> {
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("the report {} cannot be written", path.display()))
        };
        let report = report.map(create).transpose()?.map(BufWriter::new);
        Ok(Self { invocation, report, difference_count: 0 })
    }

    /// Restores the foreign snapshot at this place with the other program, and compares all of it
    /// with the imported one.
    pub fn check(
        &mut self,
        archive: &Archive,
        own: &dyn OwnRestore,
        place: usize,
        imported: &Snapshot,
        progress: &Progress,
    ) -> Result<()> {
        let SnapshotContent::Folder(root) = &imported.content else { return Ok(()) };
        let scratch = tempfile::Builder::new().prefix("varve-check-").tempdir()?;
        let folder = own.restore(place, scratch.path())?;
        let blocks = archive.blocks();
        let mut lines = Vec::new();
        let restores_time = |node: &Node| own.restores_time(node);
        let attributes = check_attributes(&*blocks, root, &folder, &restores_time, &mut |path, text| {
            lines.push(format!("{}: {text}", show::name(path.as_os_str().as_encoded_bytes())));
        })
        .with_context(|| format!("{} cannot be read", folder.display()))?;
        let problems = parking_lot::Mutex::new(Vec::new());
        let report = |problem: Problem| {
            let path = show::name(problem.path.as_os_str().as_encoded_bytes());
            problems.lock().push(format!("{path}: {}", varve_block::with_causes(problem.error.as_ref())));
        };
        let watch = Watch { progress, report: &report };
        let filter = RestoreFilter::ALL;
        let options = RestoreOptions {
            overwrite: None,
            replace_types: false,
            delete: false,
            filter: &filter,
            kept: &[],
            owners: true,
            source: &[],
            note_bytes: u64::MAX,
            damaged: None,
        };
        let workers = archive.store().world().workers.clone();
        let files = StoredFiles::new(&*blocks);
        let (file_count, _) = read_back(&files, workers.as_ref(), root, &folder, options, watch)?;
        lines.extend(problems.into_inner());
        lines.sort();
        lines.dedup();
        self.difference_count += lines.len() as u64;
        let compared = show::count(attributes.entry_count, "entry");
        self.print(imported, (attributes.entry_count, file_count), &compared, &lines)
    }

    /// Compares an imported disk with the raw image that `restore` makes with the other program.
    pub fn check_disk(
        &mut self,
        archive: &Archive,
        restore: &dyn Fn(&Path) -> Result<()>,
        imported: &Snapshot,
        progress: &Progress,
    ) -> Result<()> {
        let SnapshotContent::Image(disk) = &imported.content else { return Ok(()) };
        let scratch = tempfile::Builder::new().prefix("varve-check-").tempdir()?;
        let file = scratch.path().join("disk.raw");
        restore(&file)?;
        let compared = read_back_image(&*archive.blocks(), &ImagePart::whole(disk), &file, false, progress);
        let lines: Vec<String> = compared.err().iter().map(|error| varve_block::with_causes(error)).collect();
        self.difference_count += lines.len() as u64;
        self.print(imported, (1, 1), &show::bytes(imported.size), &lines)
    }

    fn print(
        &mut self,
        imported: &Snapshot,
        (entries, files): (u64, u64),
        compared: &str,
        lines: &[String],
    ) -> Result<()> {
        let (id, name) = (snapshot_list::short_id(imported), show::name(imported.name.as_bytes()));
        let verdict = match lines.len() as u64 {
            0 => "no difference".to_owned(),
            count => show::count(count, "difference"),
        };
        let head = format!("{} {id} {name}: {compared} compared, {verdict}", moment::show(imported.time));
        if let Some(report) = &mut self.report {
            writeln!(report, "{head}")?;
            lines.iter().try_for_each(|line| writeln!(report, "  {line}"))?;
            report.flush()?;
        }
        if self.invocation.json {
            let record = json!({
                "id": imported.id.to_string(),
                "name": imported.name,
                "entries": entries,
                "files": files,
                "differences": lines,
            });
            say::record("import_checked", record);
        } else if !self.invocation.quiet {
            say!("{head}");
        }
        for line in lines {
            warning!("{id}: {line}");
        }
        Ok(())
    }
}
