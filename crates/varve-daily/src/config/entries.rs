//! Reads each table of the configuration.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use varve_archive::retention::RetentionRule;
use varve_block::with_causes;

use super::daily_config::{
    CareConfig, ConfiguredReplica, ConfiguredSource, ConfiguredStore, DailyConfig, DrillCare, EndedSeries,
    HookConfig, HookSet, ReadingOptions, ReclaimCare, ReplicaTrigger, SourceWhat, VerifyCare,
};
use super::freeze::FreezeKind;
use super::notify::{NotifyConfig, read_notify};
use super::place::ConfigPlace;
use super::reader::{TableReader, local_path, nearest};
use super::secrets::read_store_key;
use super::tree::{Item, ItemTable, Located};
use crate::promise::PromiseLimits;
use crate::timing::Every;
use crate::timing::UploadRates;
use crate::timing::{PowerNeed, RunConditions, parse_load};

const WAIT: Duration = Duration::from_secs(2 * 3_600);
/// The id of a store, in hexadecimal.
const STORE_ID_DIGITS: usize = 32;
const HOOK_TIMEOUT: Duration = Duration::from_secs(600);
/// The time limit of a job that another program or a server can delay. A replication that was ended
/// goes on where it was.
const FOREIGN_TIMEOUT: Duration = Duration::from_secs(86_400);
/// The time limit of all other jobs. A snapshot that was ended reads its source from the beginning,
/// so a large disk needs the time for one reading.
const OWN_TIMEOUT: Duration = Duration::from_secs(3 * 86_400);
/// The keys of `keep`.
const KEEP: [&str; 7] = ["last", "hourly", "daily", "weekly", "monthly", "yearly", "within"];

/// The number of files that a drill restores, unless the configuration says otherwise.
const DRILL_FILES: u32 = 50;

/// `only-when`: the conditions of the machine.
#[derive(Clone, Copy, Default)]
struct OnlyWhen {
    power: Option<PowerNeed>,
    unmetered: Option<bool>,
    load_below: Option<u32>,
}

impl OnlyWhen {
    /// Returns these conditions, and in place of those that are not set the others.
    fn or(self, other: Self) -> Self {
        Self {
            power: self.power.or(other.power),
            unmetered: self.unmetered.or(other.unmetered),
            load_below: self.load_below.or(other.load_below),
        }
    }

    fn conditions(self, at_the_latest: Option<Duration>) -> RunConditions {
        let Self { power, unmetered, load_below } = self;
        RunConditions { power, unmetered: unmetered.unwrap_or(false), load_below, at_the_latest }
    }
}

/// The settings that sources, replicas and care share.
#[derive(Default)]
struct Defaults {
    store: Option<String>,
    every: Option<Every>,
    spread: Option<Duration>,
    only_when: OnlyWhen,
    at_the_latest: Option<Duration>,
    timeout: Option<Duration>,
    keep: Option<Vec<RetentionRule>>,
    upload: Option<UploadRates>,
    exclude_caches: Option<bool>,
    snapshot_within: Option<Duration>,
}

/// Reads the whole configuration. `first` is the name of the first file.
pub(super) fn read_config(mut reader: TableReader<'_>, folder: &Path, first: &str) -> DailyConfig {
    let zone = reader.parsed("time-zone", TimeZone::get).map(|found| found.value);
    let machine = reader.text("machine").and_then(|found| host(&found, &mut reader));
    let state = reader.path("state", folder).map(|found| found.value);
    let mut stores = BTreeMap::new();
    for (name, place, table) in reader.named_tables("store") {
        if let Some(store) = read_store(name, place, table, folder, &mut reader) {
            stores.insert(name.to_owned(), store);
        }
    }
    let defaults = match reader.table("defaults") {
        Some(table) => read_defaults(table.value, &stores, &mut reader),
        None => Defaults::default(),
    };
    let mut sources = BTreeMap::new();
    for (name, place, table) in reader.named_tables("source") {
        if let Some(source) = read_source(name, place, table, folder, (&defaults, &stores), &mut reader) {
            sources.insert(name.to_owned(), source);
        }
    }
    let mut replicas = BTreeMap::new();
    for (name, place, table) in reader.named_tables("replica") {
        if let Some(replica) = read_replica(name, place, table, (&defaults, &stores), &mut reader) {
            replicas.insert(name.to_owned(), replica);
        }
    }
    let care = match reader.table("care") {
        Some(table) => read_care(table.value, (&defaults, &sources), &mut reader),
        None => CareConfig::default(),
    };
    let promises = match reader.table("promise") {
        Some(table) => read_promises(table.value, &mut reader),
        None => PromiseLimits::default(),
    };
    let notify = match reader.table("notify") {
        Some(table) => read_notify(table.value, folder, &mut reader),
        None => NotifyConfig::default(),
    };
    if stores.is_empty() && reader.item("store").is_none() {
        let place = ConfigPlace { file: Arc::from(first), line: 1 };
        reader.faults().add(&place, "no store is named: write [store.main] and at = \"/backup/store\"");
    }
    reader.finish();
    DailyConfig { zone, machine, state, stores, sources, replicas, care, promises, notify }
}

/// Reads the name of a machine.
fn host(found: &Located<&str>, reader: &mut TableReader<'_>) -> Option<String> {
    let is_good = found.value.len() <= 255 && !found.value.contains(char::is_control);
    if !is_good {
        reader
            .faults()
            .add(&found.place, "machine is a name of at most 255 bytes, without control characters");
    }
    is_good.then(|| found.value.to_owned())
}

fn read_store(
    name: &str,
    place: &ConfigPlace,
    table: &ItemTable,
    folder: &Path,
    above: &mut TableReader<'_>,
) -> Option<ConfiguredStore> {
    let mut reader = TableReader::new(format!("store.{name}"), table, above.faults());
    let at = reader.parsed("at", |text| place_text(text, folder));
    let id = reader.parsed("id", store_id).map(|found| found.value);
    let ended = read_ended(&mut reader);
    let key = read_store_key(&mut reader, folder);
    let wait = reader.span("wait").map_or(WAIT, |found| found.value);
    if at.is_none() && !table.contains_key("at") {
        reader.faults().add(place, format!("[store.{name}] needs at = \"FOLDER\""));
    }
    reader.finish();
    Some(ConfiguredStore { place: place.clone(), at: at?.value, id, ended, key, wait })
}

/// Makes the name of a folder absolute. URLs are unchanged.
fn place_text(text: &str, folder: &Path) -> Result<String, String> {
    match text.contains("://") {
        true => Ok(text.to_owned()),
        // Both parts are text, so nothing is lost.
        false => local_path(text, folder).map(|path| path.to_string_lossy().into_owned()),
    }
}

/// Reads the id of a store.
fn store_id(text: &str) -> Result<String, String> {
    let is_id = text.len() == STORE_ID_DIGITS && text.chars().all(|c| c.is_ascii_hexdigit());
    is_id.then(|| text.to_ascii_lowercase()).ok_or_else(|| format!("{text:?} is not the id of a store"))
}

/// Reads `ended`: a list of names, or `"all"`.
fn read_ended(reader: &mut TableReader<'_>) -> EndedSeries {
    match reader.item("ended").map(|found| &found.value) {
        None => EndedSeries::default(),
        Some(Item::Text(text)) if text == "all" => EndedSeries::All,
        Some(_) => EndedSeries::Named(reader.texts("ended").map(|found| found.value).unwrap_or_default()),
    }
}

fn read_defaults(
    table: &ItemTable,
    stores: &BTreeMap<String, ConfiguredStore>,
    above: &mut TableReader<'_>,
) -> Defaults {
    let mut reader = TableReader::new("defaults", table, above.faults());
    let only_when = read_only_when(&mut reader);
    let defaults = Defaults {
        store: read_store_name(&mut reader, "store", stores),
        every: reader.parsed("every", str::parse).map(|found| found.value),
        spread: reader.span("spread").map(|found| found.value),
        only_when,
        at_the_latest: reader.span("at-the-latest").map(|found| found.value),
        timeout: reader.span("timeout").map(|found| found.value),
        keep: read_keep(&mut reader),
        upload: read_upload(&mut reader),
        exclude_caches: reader.flag("exclude-caches"),
        snapshot_within: reader.span("snapshot-within").map(|found| found.value),
    };
    reader.finish();
    defaults
}

fn read_store_name(
    reader: &mut TableReader<'_>,
    key: &'static str,
    stores: &BTreeMap<String, ConfiguredStore>,
) -> Option<String> {
    let Located { place, value } = reader.text(key)?;
    if !stores.contains_key(value) {
        let known: Vec<&str> = stores.keys().map(String::as_str).collect();
        let rest = nearest(value, &known).map(|near| format!(": did you mean {near}?")).unwrap_or_default();
        reader.faults().add(&place, format!("there is no [store.{value}]{rest}"));
        return None;
    }
    Some(value.to_owned())
}

/// Reads `only-when`.
fn read_only_when(reader: &mut TableReader<'_>) -> OnlyWhen {
    let Some(Located { value: table, .. }) = reader.table("only-when") else { return OnlyWhen::default() };
    let mut inner = TableReader::new("only-when", table, reader.faults());
    let power = inner.parsed("power", str::parse).map(|found| found.value);
    let load_below = inner.parsed("load", parse_load).map(|found| found.value);
    let unmetered = inner.parsed("network", |text| match text {
        "not metered" => Ok(true),
        "any" => Ok(false),
        _ => Err(format!("{text:?} is not a condition of the network: write \"not metered\" or \"any\"")),
    });
    inner.finish();
    OnlyWhen { power, unmetered: unmetered.map(|found| found.value), load_below }
}

fn read_keep(reader: &mut TableReader<'_>) -> Option<Vec<RetentionRule>> {
    let Located { place, value: table } = reader.table("keep")?;
    let mut inner = TableReader::new("keep", table, reader.faults());
    let mut rules = Vec::new();
    for key in KEEP {
        let Some(found) = inner.item(key) else { continue };
        let value = match &found.value {
            Item::Number(number) if *number > 0 && key != "within" => Some(number.to_string()),
            Item::Text(text) if text == "all" && key != "within" => Some("unlimited".to_owned()),
            Item::Text(text) if key == "within" => Some(text.clone()),
            _ => None,
        };
        match value {
            Some(value) => match RetentionRule::parse(&format!("keep_{key}"), &value) {
                Ok(rule) => rules.push(rule),
                Err(error) => inner.faults().add(&found.place, format!("keep: {}", with_causes(&error))),
            },
            None if key == "within" => {
                inner.faults().add(&found.place, "within is a span, such as \"1m15d\"")
            }
            None => inner.faults().add(&found.place, format!("{key} is a number of at least 1, or \"all\"")),
        }
    }
    inner.finish();
    if table.is_empty() {
        reader.faults().add(&place, "keep has no rule: leave it out to keep everything");
    }
    Some(rules)
}

/// Returns the time limit of a job. `usual` is that of its kind.
fn read_timeout(reader: &mut TableReader<'_>, defaults: &Defaults, usual: Duration) -> Duration {
    reader.span("timeout").map(|found| found.value).or(defaults.timeout).unwrap_or(usual)
}

/// Returns the rhythm, spread and conditions of a job, which override the defaults.
fn read_conditions(reader: &mut TableReader<'_>, defaults: &Defaults) -> (Duration, RunConditions) {
    let spread = reader.span("spread").map(|found| found.value).or(defaults.spread).unwrap_or_default();
    let only_when = read_only_when(reader).or(defaults.only_when);
    let at_the_latest = reader.span("at-the-latest").map(|found| found.value).or(defaults.at_the_latest);
    (spread, only_when.conditions(at_the_latest))
}

fn read_source(
    name: &str,
    place: &ConfigPlace,
    table: &ItemTable,
    folder: &Path,
    (defaults, stores): (&Defaults, &BTreeMap<String, ConfiguredStore>),
    above: &mut TableReader<'_>,
) -> Option<ConfiguredSource> {
    let mut reader = TableReader::new(format!("source.{name}"), table, above.faults());
    let what = read_what(name, place, folder, &mut reader);
    let options = read_options(what.as_ref(), folder, defaults, &mut reader);
    let freeze = read_freeze(what.as_ref(), &mut reader);
    let store = match read_store_name(&mut reader, "store", stores).or(defaults.store.clone()) {
        Some(store) => Some(store),
        // A single store needs no name.
        None if stores.len() == 1 => stores.keys().next().cloned(),
        None => {
            if !table.contains_key("store") {
                reader.faults().add(place, format!("[source.{name}] needs store = \"NAME\""));
            }
            None
        }
    };
    let every = read_every(place, &format!("source.{name}"), table, defaults, &mut reader);
    let (spread, conditions) = read_conditions(&mut reader, defaults);
    let is_foreign = matches!(what, Some(SourceWhat::Command { .. }));
    let timeout = read_timeout(&mut reader, defaults, if is_foreign { FOREIGN_TIMEOUT } else { OWN_TIMEOUT });
    if let Some(every) = &every {
        check_spread(every, spread, place, &mut reader);
    }
    let keep = read_keep(&mut reader).or(defaults.keep.clone()).unwrap_or_default();
    let hooks = match reader.table("hooks") {
        Some(table) => read_hooks(table.value, &mut reader),
        None => HookSet::default(),
    };
    let snapshot_within =
        reader.span("snapshot-within").map(|found| found.value).or(defaults.snapshot_within);
    reader.finish();
    Some(ConfiguredSource {
        place: place.clone(),
        store: store?,
        what: what?,
        options,
        freeze,
        every: every?,
        spread,
        conditions,
        timeout,
        keep,
        hooks,
        snapshot_within,
    })
}

/// Reads `freeze`.
fn read_freeze(what: Option<&SourceWhat>, reader: &mut TableReader<'_>) -> Option<FreezeKind> {
    let Located { place, value } = reader.parsed("freeze", str::parse::<FreezeKind>)?;
    match (value, what?) {
        (_, SourceWhat::Folder(_) | SourceWhat::File(_)) | (FreezeKind::Lvm, SourceWhat::Disk(_)) => {}
        (FreezeKind::Btrfs, _) => {
            reader.faults().add(&place, "freeze = \"btrfs\" is only for folders and files");
        }
        (FreezeKind::Lvm, _) => {
            reader.faults().add(&place, "freeze = \"lvm\" is only for folders, files and disks");
        }
    }
    Some(value)
}

fn read_every(
    place: &ConfigPlace,
    name: &str,
    table: &ItemTable,
    defaults: &Defaults,
    reader: &mut TableReader<'_>,
) -> Option<Every> {
    let every = reader.parsed("every", str::parse).map(|found| found.value).or(defaults.every.clone());
    if every.is_none() && !table.contains_key("every") {
        reader.faults().add(place, format!("[{name}] needs every = \"day at 02:00\", here or in [defaults]"));
    }
    every
}

/// Requires a spread that ends before the next boundary.
fn check_spread(every: &Every, spread: Duration, place: &ConfigPlace, reader: &mut TableReader<'_>) {
    if spread >= every.shortest() {
        reader
            .faults()
            .add(place, format!("spread must be shorter than the time between two runs ({every})"));
    }
}

fn read_what(
    name: &str,
    place: &ConfigPlace,
    folder: &Path,
    reader: &mut TableReader<'_>,
) -> Option<SourceWhat> {
    let (mut found, mut is_there) = (Vec::new(), false);
    for key in ["folder", "file", "disk", "qmp"] {
        is_there |= reader.item(key).is_some();
        let Some(Located { place, value: path }) = reader.path(key, folder) else { continue };
        let what = match key {
            "folder" => SourceWhat::Folder(path),
            "file" => SourceWhat::File(path),
            "disk" => SourceWhat::Disk(path),
            _ => SourceWhat::Machine(path),
        };
        found.push((place, what));
    }
    let file_name = reader.text("as").map(|text| text.value.to_owned());
    if let Some(program) = reader.program("command") {
        let name = file_name.clone().unwrap_or_else(|| name.to_owned());
        found.push((program.place, SourceWhat::Command { program: program.value, name }));
    }
    match found.len() {
        0 if is_there => {}
        0 => {
            let kinds = "folder, file, disk, command or qmp";
            reader.faults().add(place, format!("[source.{name}] has nothing to archive: it needs {kinds}"));
        }
        1 => {}
        _ => {
            let message = format!("[source.{name}] has two things to archive: write one source for each");
            reader.faults().add(place, message);
        }
    }
    let (_, what) = found.into_iter().next()?;
    if file_name.is_some() && !matches!(what, SourceWhat::Command { .. }) {
        reader.faults().add(place, "as is for the output of a command");
    }
    Some(what)
}

/// Reads the settings of how a source is read. Each is only for some kinds of sources.
fn read_options(
    what: Option<&SourceWhat>,
    folder: &Path,
    defaults: &Defaults,
    reader: &mut TableReader<'_>,
) -> ReadingOptions {
    let is_folder = matches!(what, None | Some(SourceWhat::Folder(_)));
    let is_disk = matches!(what, None | Some(SourceWhat::Disk(_)));
    let is_machine = matches!(what, None | Some(SourceWhat::Machine(_)));
    let is_command = matches!(what, None | Some(SourceWhat::Command { .. }));
    let kinds: [(&'static str, bool, &'static str); 10] = [
        ("exclude", is_folder, "folders"),
        ("exclude-file", is_folder, "folders"),
        ("exclude-if-present", is_folder, "folders"),
        ("one-file-system", is_folder, "folders"),
        ("allow-empty", is_folder || is_command, "folders and commands"),
        ("skip-free", is_disk, "disks"),
        ("cut", is_disk || is_machine, "disks and machines"),
        ("keep-swap", is_disk || is_machine, "disks and machines"),
        ("agent", is_machine, "machines"),
        ("drives", is_machine, "machines"),
    ];
    for (key, is_right, only) in kinds {
        if let Some(place) = reader.item(key).map(|item| item.place.clone()).filter(|_| !is_right) {
            reader.faults().add(&place, format!("{key} is only for {only}"));
        }
    }
    let mut texts = |key| reader.texts(key).map(|found| found.value).unwrap_or_default();
    let (exclude, exclude_if_present, drives) =
        (texts("exclude"), texts("exclude-if-present"), texts("drives"));
    let exclude_caches = reader.flag("exclude-caches").or(defaults.exclude_caches);
    let mut path = |key| reader.path(key, folder).map(|found| found.value);
    let (exclude_file, agent) = (path("exclude-file"), path("agent"));
    let cut = reader.parsed("cut", |text| match text {
        "fixed" => Ok(false),
        "files" => Ok(true),
        _ => Err(format!("{text:?} is not \"fixed\" or \"files\"")),
    });
    let mut flag = |key| reader.flag(key) == Some(true);
    ReadingOptions {
        exclude,
        exclude_file,
        exclude_if_present,
        exclude_caches: exclude_caches == Some(true) && is_folder,
        one_file_system: flag("one-file-system"),
        allow_empty: flag("allow-empty"),
        skip_free: flag("skip-free"),
        cut_at_files: cut.is_some_and(|cut| cut.value),
        keep_swap: flag("keep-swap"),
        agent,
        drives,
    }
}

fn read_hooks(table: &ItemTable, above: &mut TableReader<'_>) -> HookSet {
    let mut reader = TableReader::new("hooks", table, above.faults());
    let hooks = HookSet {
        before: read_hook(&mut reader, "before"),
        after: read_hook(&mut reader, "after"),
        always: read_hook(&mut reader, "always"),
    };
    reader.finish();
    hooks
}

fn read_hook(above: &mut TableReader<'_>, key: &'static str) -> Option<HookConfig> {
    let Located { place, value: table } = above.table(key)?;
    let mut reader = TableReader::new(format!("hooks.{key}"), table, above.faults());
    let run = reader.program("run");
    let timeout = reader.span("timeout").map_or(HOOK_TIMEOUT, |found| found.value);
    if run.is_none() && !table.contains_key("run") {
        reader.faults().add(&place, format!("{key} needs run = [\"PROGRAM\", \"ARGUMENT\"]"));
    }
    reader.finish();
    Some(HookConfig { run: run?.value, timeout })
}

fn read_replica(
    name: &str,
    place: &ConfigPlace,
    table: &ItemTable,
    (defaults, stores): (&Defaults, &BTreeMap<String, ConfiguredStore>),
    above: &mut TableReader<'_>,
) -> Option<ConfiguredReplica> {
    let mut reader = TableReader::new(format!("replica.{name}"), table, above.faults());
    let of = read_store_name(&mut reader, "of", stores).or(defaults.store.clone());
    let of = of.or_else(|| (stores.len() == 1).then(|| stores.keys().next().cloned()).flatten());
    if of.is_none() && !table.contains_key("of") {
        reader.faults().add(place, format!("[replica.{name}] needs of = \"STORE\""));
    }
    let at = reader.text("at");
    if at.is_none() && !table.contains_key("at") {
        reader.faults().add(place, format!("[replica.{name}] needs at = \"FOLDER OR URL\""));
    }
    let at = at.and_then(|at| match at.value.contains("://") || at.value.starts_with('/') {
        true => Some(at.value.to_owned()),
        false => {
            reader.faults().add(&at.place, "at must be an absolute path or a URL");
            None
        }
    });
    let when = reader.text("when");
    let trigger = match (&when, reader.item("every").is_some()) {
        (Some(when), true) => {
            reader.faults().add(&when.place, "a replica has either when or every");
            None
        }
        (Some(when), false) if when.value != "present" => {
            reader.faults().add(&when.place, "when can only be \"present\"; every names a time");
            None
        }
        (Some(when), false) => {
            if at.as_ref().is_some_and(|at| at.contains("://")) {
                reader.faults().add(&when.place, "when = \"present\" is for folders");
            }
            Some(ReplicaTrigger::Present)
        }
        (None, _) => read_every(place, &format!("replica.{name}"), table, defaults, &mut reader)
            .map(ReplicaTrigger::Every),
    };
    let upload = read_upload(&mut reader).or(defaults.upload.clone());
    let (spread, conditions) = read_conditions(&mut reader, defaults);
    let timeout = read_timeout(&mut reader, defaults, FOREIGN_TIMEOUT);
    if let Some(ReplicaTrigger::Every(every)) = &trigger {
        check_spread(every, spread, place, &mut reader);
    }
    reader.finish();
    Some(ConfiguredReplica {
        place: place.clone(),
        of: of?,
        at: at?,
        trigger: trigger?,
        upload,
        spread,
        conditions,
        timeout,
    })
}

/// Reads `upload`: a rate, or a table of times of the week with their rates.
fn read_upload(reader: &mut TableReader<'_>) -> Option<UploadRates> {
    let Located { place, value } = reader.item("upload")?.clone();
    let read = match &value {
        Item::Text(text) => text.parse(),
        Item::Table(table) => {
            let mut pairs = Vec::new();
            for (period, rate) in table {
                match &rate.value {
                    Item::Text(text) => pairs.push((period.as_str(), text.as_str())),
                    other => {
                        let kind = other.kind();
                        reader.faults().add(&rate.place, format!("{period:?} is {kind}, but must be a rate"));
                        return None;
                    }
                }
            }
            UploadRates::new(pairs)
        }
        other => {
            let text = format!("upload is {}, but must be a rate, or a table of rates", other.kind());
            reader.faults().add(&place, text);
            return None;
        }
    };
    read.map_err(|error| reader.faults().add(&place, format!("upload: {error}"))).ok()
}

fn read_care(
    table: &ItemTable,
    (defaults, sources): (&Defaults, &BTreeMap<String, ConfiguredSource>),
    above: &mut TableReader<'_>,
) -> CareConfig {
    let mut reader = TableReader::new("care", table, above.faults());
    let verify = reader.table("verify").and_then(|table| read_verify(&table, defaults, &mut reader));
    let reclaim = reader.table("reclaim").and_then(|table| read_reclaim(&table, defaults, &mut reader));
    let drill = reader.table("drill").and_then(|table| read_drill(&table, (defaults, sources), &mut reader));
    let timeout = read_timeout(&mut reader, defaults, OWN_TIMEOUT);
    reader.finish();
    let conditions = defaults.only_when.conditions(defaults.at_the_latest);
    CareConfig { verify, reclaim, drill, spread: defaults.spread.unwrap_or_default(), conditions, timeout }
}

fn read_verify(
    found: &Located<&ItemTable>,
    defaults: &Defaults,
    above: &mut TableReader<'_>,
) -> Option<VerifyCare> {
    let mut reader = TableReader::new("care.verify", found.value, above.faults());
    let every = read_every(&found.place, "care.verify", found.value, defaults, &mut reader);
    let share = reader.parsed("share", |text| {
        let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        match percent.filter(|percent| *percent > 0.0 && *percent <= 100.0) {
            Some(_) => Ok(text.to_owned()),
            None => Err(format!("{text:?} is not a share: write 3% or 100%")),
        }
    });
    if let Some(every) = &every {
        check_spread(every, defaults.spread.unwrap_or_default(), &found.place, &mut reader);
    }
    reader.finish();
    Some(VerifyCare { every: every?, share: share.map(|found| found.value) })
}

fn read_reclaim(
    found: &Located<&ItemTable>,
    defaults: &Defaults,
    above: &mut TableReader<'_>,
) -> Option<ReclaimCare> {
    let mut reader = TableReader::new("care.reclaim", found.value, above.faults());
    let every = read_every(&found.place, "care.reclaim", found.value, defaults, &mut reader);
    let at_most = reader.span("at-most").map(|found| found.value);
    if let Some(every) = &every {
        check_spread(every, defaults.spread.unwrap_or_default(), &found.place, &mut reader);
    }
    reader.finish();
    Some(ReclaimCare { every: every?, at_most })
}

fn read_drill(
    found: &Located<&ItemTable>,
    (defaults, known): (&Defaults, &BTreeMap<String, ConfiguredSource>),
    above: &mut TableReader<'_>,
) -> Option<DrillCare> {
    let mut reader = TableReader::new("care.drill", found.value, above.faults());
    let every = read_every(&found.place, "care.drill", found.value, defaults, &mut reader);
    let sources = reader.texts("sources");
    for name in sources.iter().flat_map(|sources| &sources.value) {
        if !known.contains_key(name) {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            let rest =
                nearest(name, &names).map(|near| format!(": did you mean {near}?")).unwrap_or_default();
            reader.faults().add(&found.place, format!("there is no [source.{name}]{rest}"));
        }
    }
    let files = reader.parsed("restore", |text| {
        let count = text.strip_suffix(" files").or(text.strip_suffix(" file"));
        let count = count.and_then(|count| count.parse::<u32>().ok());
        count
            .filter(|count| (1..=1_000_000).contains(count))
            .ok_or_else(|| format!("{text:?} is not a number of files: write \"50 files\""))
    });
    let boot = reader.flag("boot").unwrap_or(false);
    if let Some(every) = &every {
        check_spread(every, defaults.spread.unwrap_or_default(), &found.place, &mut reader);
    }
    reader.finish();
    let file_count = files.map_or(DRILL_FILES, |found| found.value);
    Some(DrillCare { every: every?, sources: sources.map(|found| found.value), file_count, boot })
}

fn read_promises(table: &ItemTable, above: &mut TableReader<'_>) -> PromiseLimits {
    let mut reader = TableReader::new("promise", table, above.faults());
    let mut span = |key| reader.span(key).map(|found| found.value);
    let limits = PromiseLimits {
        snapshot_within: span("snapshot-within"),
        replica_within: span("replica-within"),
        verified_within: span("verified-within"),
        reclaimed_within: span("reclaimed-within"),
        drill_within: span("drill-within"),
        room_for: span("room-for"),
    };
    reader.finish();
    limits
}
