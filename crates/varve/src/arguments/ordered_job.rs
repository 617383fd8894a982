//! `varve job`: the order of a job becomes the command line of the command that does it.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser};
use varve_daily::{
    DrillOrder, ForgetOrder, JobOrder, OrderedWork, ReadingOptions, ReplicateOrder, SnapshotOrder, SourceWhat,
};

use super::{Arguments, Command};

/// A longer file is no order.
const ORDER_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Clone, Args)]
pub struct JobArgs {
    /// The order, as `varve run` has written it
    #[arg(value_name = "FILE")]
    pub order: PathBuf,
}

impl Arguments {
    /// Returns the arguments of the command that an order is for; other arguments are unchanged.
    ///
    /// # Errors
    /// When the order cannot be read.
    pub fn carried_out(self) -> Result<Self> {
        let Command::Job(JobArgs { order }) = &self.command else { return Ok(self) };
        let ordered =
            read_order(order).with_context(|| format!("the order {} cannot be read", order.display()))?;
        let words = std::iter::once("varve".into()).chain(words_of(&ordered.work));
        let Self { command, .. } = Self::try_parse_from(words).context("the order of a job")?;
        let mut global = self.global;
        global.wait = Some(ordered.wait);
        Ok(Self { global, command })
    }
}

fn read_order(path: &Path) -> Result<JobOrder> {
    let mut text = Vec::new();
    File::open(path)?.take(ORDER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Returns the command line of an order.
fn words_of(work: &OrderedWork) -> Vec<OsString> {
    match work {
        OrderedWork::Snapshot(order) => snapshot(order),
        OrderedWork::Replicate(ReplicateOrder { target, upload }) => {
            let rates = upload.iter().map(|rates| format!("--limit-rate={rates}").into());
            std::iter::once("replicate".into()).chain(rates).chain(["--".into(), target.into()]).collect()
        }
        OrderedWork::Verify { share: Some(share) } => {
            vec!["verify".into(), format!("--share={share}").into()]
        }
        OrderedWork::Verify { share: None } => vec!["verify".into(), "--data".into()],
        OrderedWork::Forget(ForgetOrder { host, series, rules, zone }) => {
            let mut words = vec!["forget".into(), format!("--host={host}").into()];
            words.extend(series.iter().map(|name| format!("--name={name}").into()));
            let rules = rules.iter().filter_map(|rule| rule.split_once(" = "));
            words.extend(rules.map(|(key, value)| format!("--{}={value}", key.replace('_', "-")).into()));
            words.extend(zone.iter().map(|zone| format!("--zone={zone}").into()));
            words
        }
        OrderedWork::Reclaim { at_most } => {
            let limit = at_most.map(|limit| format!("--max-time={}s", limit.as_secs()).into());
            std::iter::once("gc".into()).chain(limit).collect()
        }
        OrderedWork::Drill(DrillOrder { snapshot, file_count, boot }) => {
            let boot = boot.then(|| "--boot".into());
            let head = ["drill".into(), format!("--files={file_count}").into()];
            head.into_iter().chain(boot).chain([snapshot.into()]).collect()
        }
        OrderedWork::Notify { config } => vec!["notify".into(), with("config", config)],
    }
}

fn snapshot(order: &SnapshotOrder) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["snapshot".into()];
    words.extend(options(&order.options));
    words.extend(order.read_from.iter().map(|view| with("read-from", view)));
    let name = OsString::from(format!("--name={}", order.name));
    match &order.what {
        SourceWhat::Command { program, name } => {
            words.extend([format!("--command={name}").into(), "--".into()]);
            words.extend(program.iter().map(OsString::from));
        }
        SourceWhat::Machine(socket) => words.extend([name, with("qmp", socket)]),
        SourceWhat::File(file) => words.extend([name, "--as=file".into(), "--".into(), file.into()]),
        SourceWhat::Folder(place) | SourceWhat::Disk(place) => {
            words.extend([name, "--".into(), place.into()]);
        }
    }
    words
}

fn options(options: &ReadingOptions) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    words.extend(options.exclude.iter().map(|pattern| format!("--exclude={pattern}").into()));
    words.extend(options.exclude_file.iter().map(|file| with("exclude-file", file)));
    words.extend(options.exclude_if_present.iter().map(|name| format!("--exclude-if-present={name}").into()));
    let flags = [
        ("--exclude-caches", options.exclude_caches),
        ("--one-file-system", options.one_file_system),
        ("--allow-empty", options.allow_empty),
        ("--skip-free", options.skip_free),
        ("--keep-swap", options.keep_swap),
        ("--cut=files", options.cut_at_files),
    ];
    words.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.into()));
    words.extend(options.agent.iter().map(|socket| with("agent", socket)));
    words.extend(options.drives.iter().map(|drive| format!("--drive={drive}").into()));
    words
}

fn with(option: &str, path: &Path) -> OsString {
    let mut word = OsString::from(format!("--{option}="));
    word.push(path);
    word
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn carried_out(work: OrderedWork) -> Command {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("order");
        let order = JobOrder { wait: Duration::from_secs(9), work };
        std::fs::write(&file, serde_json::to_vec(&order).unwrap()).unwrap();
        let words = ["varve".into(), "--json".into(), "job".into(), file.into_os_string()];
        let arguments = Arguments::try_parse_from(words).unwrap().carried_out().unwrap();
        assert_eq!((arguments.global.wait, arguments.global.json), (Some(Duration::from_secs(9)), true));
        arguments.command
    }

    #[test]
    fn each_order_is_the_command_that_it_is_for() {
        let options = ReadingOptions {
            exclude: vec!["--odd".into()],
            exclude_file: Some("/x".into()),
            exclude_if_present: vec![".no".into()],
            exclude_caches: true,
            one_file_system: true,
            allow_empty: true,
            ..ReadingOptions::default()
        };
        let what = SourceWhat::Folder("/home".into());
        let order = SnapshotOrder { what, name: "home".into(), options, read_from: Some("/view".into()) };
        assert!(matches!(carried_out(OrderedWork::Snapshot(order)), Command::Snapshot(_)));
        let disk = SnapshotOrder {
            what: SourceWhat::Disk("/dev/x".into()),
            name: "root".into(),
            options: ReadingOptions {
                skip_free: true,
                cut_at_files: true,
                keep_swap: true,
                ..ReadingOptions::default()
            },
            read_from: None,
        };
        assert!(matches!(carried_out(OrderedWork::Snapshot(disk)), Command::Snapshot(_)));
        let machine = SnapshotOrder {
            what: SourceWhat::Machine("/run/qmp".into()),
            name: "vm".into(),
            options: ReadingOptions {
                agent: Some("/run/agent".into()),
                drives: vec!["root".into()],
                ..ReadingOptions::default()
            },
            read_from: None,
        };
        assert!(matches!(carried_out(OrderedWork::Snapshot(machine)), Command::Snapshot(_)));
        let program = ["dump", "--all"].map(str::to_owned).to_vec();
        let command = SnapshotOrder {
            what: SourceWhat::Command { program, name: "db".into() },
            name: "orders".into(),
            options: ReadingOptions::default(),
            read_from: None,
        };
        assert!(matches!(carried_out(OrderedWork::Snapshot(command)), Command::Snapshot(_)));
        let replicate = ReplicateOrder { target: "/usb".into(), upload: Some("2M".into()) };
        assert!(matches!(carried_out(OrderedWork::Replicate(replicate)), Command::Replicate(_)));
        for share in [None, Some("3%".to_owned())] {
            assert!(matches!(carried_out(OrderedWork::Verify { share }), Command::Verify(_)));
        }
        let forget = ForgetOrder {
            host: "web".into(),
            series: vec!["home".into(), "-odd".into()],
            rules: vec!["keep_daily = 7".into(), "keep_within = 1m".into()],
            zone: Some("Europe/Berlin".into()),
        };
        assert!(matches!(carried_out(OrderedWork::Forget(forget)), Command::Forget(_)));
        let at_most = Some(Duration::from_secs(60));
        let gc = carried_out(OrderedWork::Reclaim { at_most });
        assert!(matches!(gc, Command::StoreByName(super::super::StoreCommand::Gc(_))));
        let drill = DrillOrder { snapshot: "ab12".into(), file_count: 5, boot: true };
        let drill = carried_out(OrderedWork::Drill(drill));
        assert!(matches!(drill, Command::DailyByName(super::super::DailyCommand::Drill(_))));
        let notify = carried_out(OrderedWork::Notify { config: "/etc/varve.toml".into() });
        assert!(matches!(notify, Command::DailyByName(super::super::DailyCommand::Notify(_))));
    }

    #[test]
    fn an_order_that_cannot_be_read_says_so() {
        let arguments = Arguments::try_parse_from(["varve", "job", "/no/such/order"]).unwrap();
        let error = arguments.carried_out().unwrap_err();
        assert!(error.to_string().contains("/no/such/order cannot be read"), "{error}");
        // It has no end.
        let endless = Arguments::try_parse_from(["varve", "job", "/dev/zero"]).unwrap();
        let error = endless.carried_out().unwrap_err();
        assert!(error.to_string().contains("/dev/zero cannot be read"), "{error}");
    }
}
