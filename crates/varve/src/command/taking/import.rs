//! `varve import`: snapshots of other programs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use varve_archive::{Archive, Snapshot, TakeError};
use varve_content::Problem;
use varve_content::folder::{ArchiveFolderError, Watch};
use varve_import::borg::{BorgArchive, BorgError, BorgFilter, BorgProgram, OpenBorgError};
use varve_import::restic::{OpenResticError, ResticArchive, ResticFilter, ResticFolder};
use varve_import::tar::TarArchive;
use varve_import::zip::{OpenZipError, ZipFile};
use varve_import::{
    BorgRestore, ForeignArchive, ForeignSnapshot, ForeignSource, ImportError, Importer, LinkTrees,
    OpenDatedFileError, OpenLinkTreesError, OwnRestore, ResticProgram, TarProgram, TimeSource, UnzipProgram,
    series_names,
};
use varve_session::{Hinted, Interrupted, UsageError};
use varve_world::Timestamp;
use zeroize::Zeroizing;

use super::import_check::ImportCheck;
use super::import_images;
use super::import_lines::{print_planned, say_known};
use super::report::as_line;
use super::venti_arenas;
use crate::arguments::{
    ImportArgs, ImportBorgArgs, ImportCommand, ImportLinkTreesArgs, ImportResticArgs, ImportTarArgs,
    ImportZipArgs, ImportedArgs,
};
use crate::command::looking::snapshot_list;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{complaint, moment, say, show};

const NAME_IT: &str = "give another name with --name";
const GIVE_A_TIME: &str = "give the time with --time, or take the modification time with --by-mtime";
const INSTALL_BORG: &str = "install borg 1, such as the package borgbackup: it reads its repositories itself";
const CHANGED_CLOCKS: &str = "when clocks are set forward, an hour of the night does not exist: with TZ=UTC before the command, each name has a time of its own";
const BY_MTIME: &str = "--by-mtime takes the modification times of the folders, which rsnapshot sets";

pub fn run(invocation: &Invocation, args: &ImportArgs) -> Result<CommandOutcome> {
    match &args.from {
        None => venti_arenas::run(invocation, &args.venti_arenas),
        Some(ImportCommand::Restic(args)) => restic(invocation, "restic", args),
        Some(ImportCommand::Rustic(args)) => restic(invocation, "rustic", args),
        Some(ImportCommand::Borg(args)) => borg(invocation, args),
        Some(ImportCommand::Rsnapshot(args)) => link_trees(invocation, args),
        Some(ImportCommand::Tar(args)) => tar(invocation, args),
        Some(ImportCommand::Zip(args)) => zip(invocation, args),
        Some(ImportCommand::Qcow2(args)) => import_images::run(invocation, args),
    }
}

fn restic(invocation: &Invocation, kind: &'static str, args: &ImportResticArgs) -> Result<CommandOutcome> {
    ResticFolder::probe(&args.repository).map_err(not_of_restic)?;
    let password = restic_password(invocation, args)?;
    let filter = ResticFilter { hosts: args.host.clone(), paths: args.path.clone() };
    let opened = ResticArchive::open(kind, &args.repository, password.as_bytes(), &filter);
    let repository = opened.map_err(not_of_restic)?;
    let mut outcome = CommandOutcome::Done;
    for problem in repository.problems() {
        warning!("{}: {}", show::name(problem.path.as_os_str().as_encoded_bytes()), problem.reason);
        outcome = CommandOutcome::Gaps;
    }
    let own = ResticProgram { archive: &repository, repository: args.repository.clone(), password };
    Ok(outcome.max(import(invocation, &args.imported, &repository, Some(&own))?))
}

fn not_of_restic(error: OpenResticError) -> anyhow::Error {
    match error {
        error @ OpenResticError::NotARepository { .. } => {
            Hinted::new(error, "a repository on a server is mounted first, or copied").into()
        }
        error => anyhow::Error::from(error),
    }
}

/// The password of a repository, from the places in which restic looks for it.
fn restic_password(invocation: &Invocation, args: &ImportResticArgs) -> Result<Zeroizing<String>> {
    if let Some(file) = &args.password_file {
        let text = std::fs::read_to_string(file).map(Zeroizing::new);
        let text = text.with_context(|| format!("the password file {} cannot be read", file.display()))?;
        return Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    if let Ok(password) = std::env::var("RESTIC_PASSWORD") {
        return Ok(Zeroizing::new(password));
    }
    if !invocation.asks || !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        let text =
            "the repository has a password: give --password-file, RESTIC_PASSWORD_FILE or RESTIC_PASSWORD";
        bail!(UsageError(text.into()));
    }
    Ok(rpassword::prompt_password("Password of the repository: ").map(Zeroizing::new)?)
}

fn borg(invocation: &Invocation, args: &ImportBorgArgs) -> Result<CommandOutcome> {
    BorgArchive::probe(&args.repository).map_err(|error| {
        Hinted::new(error, "a repository at a server is user@host:path, or an ssh:// URL")
    })?;
    let passphrase = borg_passphrase(invocation)?;
    let program = BorgProgram::new(&args.repository, passphrase).map_err(|error| match error {
        error @ BorgError::NotInstalled => Hinted::new(error, INSTALL_BORG).into(),
        error => anyhow::Error::from(error),
    })?;
    let filter = BorgFilter { names: args.archives.clone(), hosts: args.host.clone() };
    let opened = BorgArchive::open(program, &filter, args.imported.name.as_deref());
    let archive = opened.map_err(|error| match error {
        error @ OpenBorgError::Borg(BorgError::Failed { .. }) => {
            Hinted::new(error, "the passphrase is BORG_PASSPHRASE, or the output of BORG_PASSCOMMAND").into()
        }
        error => anyhow::Error::from(error),
    })?;
    import(invocation, &args.imported, &archive, Some(&BorgRestore { archive: &archive }))
}

/// The passphrase of a repository; `None` if borg finds it in its environment.
fn borg_passphrase(invocation: &Invocation) -> Result<Option<Zeroizing<String>>> {
    let is_set = |variable: &str| std::env::var_os(variable).is_some();
    if is_set("BORG_PASSPHRASE") || is_set("BORG_PASSCOMMAND") {
        return Ok(None);
    }
    if !invocation.asks || !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        // borg must not ask at the terminal, once for each archive.
        return Ok(Some(Zeroizing::default()));
    }
    let prompt = "Passphrase of the repository (empty if it has none): ";
    Ok(Some(rpassword::prompt_password(prompt).map(Zeroizing::new)?))
}

fn link_trees(invocation: &Invocation, args: &ImportLinkTreesArgs) -> Result<CommandOutcome> {
    let times = if args.by_mtime { TimeSource::Mtime } else { TimeSource::Names };
    let host = varve_session::snapshot_host();
    let trees = LinkTrees::open("rsnapshot", &args.folder, times, &host).map_err(|error| match error {
        error @ OpenLinkTreesError::NoDate { .. } => Hinted::new(error, BY_MTIME).into(),
        error @ OpenLinkTreesError::SameTime { .. } if !args.by_mtime => {
            Hinted::new(error, CHANGED_CLOCKS).into()
        }
        error => anyhow::Error::from(error),
    })?;
    for skipped in trees.skipped() {
        warning!("{}: skipped: not a snapshot", show::name(skipped.as_os_str().as_encoded_bytes()));
    }
    import(invocation, &args.imported, &trees, Some(&trees))
}

fn tar(invocation: &Invocation, args: &ImportTarArgs) -> Result<CommandOutcome> {
    let host = varve_session::snapshot_host();
    let is_stream = args.file == Path::new("-");
    let archive = if is_stream {
        let (Some(time), Some(name)) = (args.time.time, &args.imported.name) else {
            bail!(UsageError("an archive on standard input needs --time and --name".into()));
        };
        TarArchive::of_stream(Box::new(std::io::stdin()), name, time, &host)
    } else {
        TarArchive::open(&args.file, args.time.time, args.time.by_mtime, &host).map_err(
            |error| match error {
                error @ OpenDatedFileError::NoTime { .. } => Hinted::new(error, GIVE_A_TIME).into(),
                error => anyhow::Error::from(error),
            },
        )?
    };
    let time = time_of(&archive);
    let own = TarProgram { file: args.file.clone(), time };
    let own = (!is_stream).then_some(&own as &dyn OwnRestore);
    let outcome = import(invocation, &args.imported, &archive, own)?;
    if is_stream {
        // The zeros behind the archive, or all of one that was imported before: the program that
        // writes them must not fail.
        std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    }
    Ok(outcome)
}

fn zip(invocation: &Invocation, args: &ImportZipArgs) -> Result<CommandOutcome> {
    let host = varve_session::snapshot_host();
    let opened = ZipFile::open(&args.file, args.time.time, args.time.by_mtime, &host);
    let archive = opened.map_err(|error| match error {
        error @ OpenZipError::File(OpenDatedFileError::NoTime { .. }) => {
            Hinted::new(error, GIVE_A_TIME).into()
        }
        error @ OpenZipError::Encrypted { .. } => {
            Hinted::new(error, "unpack it, and archive the folder").into()
        }
        error => anyhow::Error::from(error),
    })?;
    // unzip takes a name that begins with `-` for an option.
    let file = args.file.canonicalize().with_context(|| format!("{} cannot be read", args.file.display()))?;
    if let Some((count, first)) = archive.dos_names() {
        warning!(
            "{} without the mark of UTF-8 read in the code page 437 of DOS, as the format says, such as {}",
            show::count(count, "name"),
            show::name(&first)
        );
    }
    let own = UnzipProgram { file, time: time_of(&archive) };
    import(invocation, &args.imported, &archive, Some(&own))
}

/// The time of the only snapshot.
fn time_of(archive: &dyn ForeignArchive) -> Timestamp {
    archive.snapshots().first().map_or(Timestamp(0), |snapshot| snapshot.time)
}

/// Imports all snapshots that the archive does not have yet, the oldest first.
fn import(
    invocation: &Invocation,
    args: &ImportedArgs,
    foreign: &dyn ForeignArchive,
    own: Option<&dyn OwnRestore>,
) -> Result<CommandOutcome> {
    check_imported(args, foreign, own)?;
    let mut importer = Importer::new(foreign);
    if args.dry_run {
        return print_plan(invocation, args, foreign, importer);
    }
    let mut archive = invocation.session.write()?;
    let plan = importer.plan(&archive, &|_| true);
    importer.note_renamed(&mut archive);
    let names = series_names(foreign.snapshots(), &importer.known_series(&archive));
    let mut outcome = CommandOutcome::Done;
    for place in plan.places {
        let Some(snapshot) = foreign.snapshots().get(place) else { continue };
        let name = name_of(snapshot, args, &names);
        match take(invocation, args, &mut archive, &mut importer, (place, snapshot), &name)? {
            Some(taken) => {
                if taken.problem_count > 0 {
                    outcome = CommandOutcome::Gaps;
                }
                print_taken(invocation, &taken);
            }
            // Another snapshot may be whole.
            None => outcome = CommandOutcome::Gaps,
        }
    }
    say_known(invocation, plan.known_count);
    if let Some(own) = own.filter(|_| args.check)
        && !is_restored_alike(invocation, args, &archive, &importer, own)?
    {
        outcome = outcome.max(CommandOutcome::Failed);
    }
    archive.close()?;
    Ok(outcome)
}

/// Refuses arguments that do not fit what is imported.
fn check_imported(
    args: &ImportedArgs,
    foreign: &dyn ForeignArchive,
    own: Option<&dyn OwnRestore>,
) -> Result<()> {
    if args.check && own.is_none() {
        bail!(UsageError(
            "--check needs the other program's own restore of a file: neither zip files nor streams have one"
                .into()
        ));
    }
    let source_count = series_names(foreign.snapshots(), &BTreeMap::new()).len();
    if args.name.is_some() && source_count > 1 {
        let text =
            format!("--name names one source, but there are {source_count}: choose one, or leave --name out");
        bail!(UsageError(text));
    }
    Ok(())
}

/// Prints the snapshots that would be imported.
fn print_plan(
    invocation: &Invocation,
    args: &ImportedArgs,
    foreign: &dyn ForeignArchive,
    mut importer: Importer<'_>,
) -> Result<CommandOutcome> {
    let archive = invocation.session.check()?;
    let plan = importer.plan(&archive, &|_| true);
    let names = series_names(foreign.snapshots(), &importer.known_series(&archive));
    for snapshot in plan.places.iter().filter_map(|place| foreign.snapshots().get(*place)) {
        print_planned(invocation, snapshot, &name_of(snapshot, args, &names));
    }
    say_known(invocation, plan.known_count);
    Ok(CommandOutcome::Done)
}

/// Returns the name of a snapshot in the archive: the given one, or that of its source.
fn name_of(
    snapshot: &ForeignSnapshot,
    args: &ImportedArgs,
    names: &BTreeMap<ForeignSource, String>,
) -> String {
    let made = names.get(&(snapshot.host.clone(), snapshot.source.clone()));
    args.name.clone().or_else(|| made.cloned()).unwrap_or_else(|| "files".into())
}

/// Imports one snapshot, with its place among the foreign ones. Returns `None` after a warning if
/// its tree cannot be read.
fn take(
    invocation: &Invocation,
    args: &ImportedArgs,
    archive: &mut Archive,
    importer: &mut Importer<'_>,
    (place, snapshot): (usize, &ForeignSnapshot),
    name: &str,
) -> Result<Option<Snapshot>> {
    let progress = cancellable_progress()?;
    let report = |problem: Problem| complaint::report_problem(&problem);
    let title = format!("{name} {}", moment::show(snapshot.time));
    let shown = ShownProgress::start(&title, &progress, invocation.quiet || invocation.json);
    let watch = Watch { progress: &progress, report: &report };
    let taken = importer.take(archive, place, name, args.name.is_some(), watch);
    drop(shown);
    match taken {
        Ok(taken) => Ok(Some(taken.snapshot)),
        Err(ImportError::Take(TakeError::Folder(ArchiveFolderError::Cancelled))) => {
            bail!(Interrupted("interrupted; the same command continues with this snapshot"));
        }
        Err(error @ ImportError::Tree { .. }) => {
            warning!("{}", varve_block::with_causes(&error));
            Ok(None)
        }
        Err(error @ ImportError::Name(_)) => bail!(Hinted::new(error, NAME_IT)),
        Err(error) => bail!(error),
    }
}

fn print_taken(invocation: &Invocation, snapshot: &Snapshot) {
    if invocation.json {
        say::record("snapshot", snapshot_list::as_json(snapshot));
    } else if !invocation.quiet {
        say!("{} {}", moment::show(snapshot.time), as_line(snapshot));
    }
}

/// Compares all imported snapshots with the other program's own restore of them.
fn is_restored_alike(
    invocation: &Invocation,
    args: &ImportedArgs,
    archive: &Archive,
    importer: &Importer<'_>,
    own: &dyn OwnRestore,
) -> Result<bool> {
    let mut check = ImportCheck::new(invocation, args.report.as_deref())?;
    for (place, imported) in importer.known(archive) {
        let progress = cancellable_progress()?;
        check.check(archive, own, place, &imported, &progress)?;
    }
    Ok(check.difference_count == 0)
}
