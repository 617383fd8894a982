//! The configuration: what it means, and how its faults are reported.

use std::path::Path;
use std::time::Duration;

use varve_daily::{
    ConfigText, Credential, DailyConfig, PowerNeed, ReadingOptions, ReplicaTrigger, SourceWhat, StoreKey,
};

const WHOLE: &str = r#"
time-zone = "Europe/Berlin"
[store.main]
at = "/backup/store"
key-file = "credential:varve-main"
wait = "2h"

[defaults]
store = "main"
every = "day at 02:00"
spread = "45m"
only-when = { power = "mains or 60%" }
at-the-latest = "3d"
keep = { daily = 30, weekly = 26, monthly = 24, yearly = "all" }
exclude-caches = true

[source.home]
folder = "/home"
exclude-file = "home.exclude"
[source.root-disk]
disk = "/dev/vda"
every = "week on sun at 04:00"
skip-free = true
cut = "files"
[source.orders-db]
command = ["pg_dump", "-Fc", "orders"]
as = "orders.dump"
every = "6h"
snapshot-within = "8h"
[source.orders-db.hooks]
before = { run = ["systemctl", "stop", "orders-import"], timeout = "2m" }
always = { run = ["systemctl", "start", "orders-import"] }
[source.mail-vm]
qmp = "/run/qemu/mail.qmp"
agent = "/run/qemu/mail.agent"

[replica.usb]
at = "/media/varve-usb"
when = "present"

[care]
verify = { share = "3%", every = "day" }
reclaim = { every = "week", at-most = "2h" }
[promise]
snapshot-within = "30h"
replica-within = "8d"
verified-within = "60d"
reclaimed-within = "10d"
room-for = "45d"
"#;

fn files(texts: &[(&str, &str)]) -> Vec<ConfigText> {
    texts.iter().map(|(name, text)| ConfigText { name: (*name).into(), text: (*text).into() }).collect()
}

fn read(texts: &[(&str, &str)]) -> Result<DailyConfig, String> {
    DailyConfig::read(&files(texts), Path::new("/etc/varve")).map_err(|errors| errors.to_string())
}

#[test]
fn a_whole_configuration_is_read() {
    let config = read(&[("varve.toml", WHOLE)]).unwrap();
    let main = &config.stores["main"];
    assert_eq!(main.key, Some(StoreKey::KeyFile(Credential::Systemd("varve-main".into()))));
    let home = &config.sources["home"];
    assert_eq!(home.what, SourceWhat::Folder("/home".into()));
    let options = ReadingOptions {
        exclude_file: Some("/etc/varve/home.exclude".into()),
        exclude_caches: true,
        ..ReadingOptions::default()
    };
    assert_eq!(home.options, options);
    assert_eq!(home.every.to_string(), "each day at 02:00");
    assert_eq!(home.spread, Duration::from_secs(2_700));
    assert_eq!(home.conditions.power, Some(PowerNeed::MainsOrCharge(60)));
    assert_eq!(home.keep[3].to_string(), "keep_yearly = unlimited");
    let options = ReadingOptions { skip_free: true, cut_at_files: true, ..ReadingOptions::default() };
    assert_eq!(config.sources["root-disk"].options, options);
    let database = &config.sources["orders-db"];
    let program = ["pg_dump", "-Fc", "orders"].map(str::to_owned).to_vec();
    assert_eq!(database.what, SourceWhat::Command { program, name: "orders.dump".into() });
    assert_eq!(database.hooks.before.as_ref().unwrap().timeout, Duration::from_secs(120));
    assert_eq!(database.hooks.always.as_ref().unwrap().run[1], "start");
    assert_eq!(database.snapshot_within, Some(Duration::from_secs(8 * 3_600)));
    assert_eq!(config.replicas["usb"].trigger, ReplicaTrigger::Present);
    assert_eq!(config.care.verify.unwrap().share.unwrap(), "3%");
    assert_eq!(config.promises.room_for, Some(Duration::from_secs(45 * 86_400)));
}

#[test]
fn files_are_merged_by_the_names_of_their_tables() {
    let more = "[source.photos]\nfolder = \"/photos\"\n[source.home]\none-file-system = true\n";
    let config = read(&[("varve.toml", WHOLE), ("conf.d/photos.toml", more)]).unwrap();
    assert_eq!(config.sources["photos"].every.to_string(), "each day at 02:00");
    assert!(config.sources["home"].options.one_file_system);
    let twice = "\n[source.home]\nfolder = \"/home2\"\n[defaults]\nkeep = { last = 3 }\n";
    assert_eq!(
        read(&[("varve.toml", WHOLE), ("conf.d/a.toml", twice)]).unwrap_err(),
        "conf.d/a.toml:3: source.home.folder is already set at varve.toml:18\n\
         conf.d/a.toml:5: defaults.keep is already set at varve.toml:14"
    );
}

/// Each word of the configuration is misspelled in several ways. Each is refused with its line and
/// the right word.
#[test]
fn every_typo_is_named_with_its_line_and_the_nearest_word() {
    let words = [
        "time-zone",
        "key-file",
        "wait",
        "store",
        "every",
        "spread",
        "only-when",
        "power",
        "at-the-latest",
        "keep",
        "daily",
        "weekly",
        "monthly",
        "yearly",
        "exclude-caches",
        "exclude-file",
        "folder",
        "disk",
        "skip-free",
        "command",
        "hooks",
        "before",
        "timeout",
        "always",
        "agent",
        "verify",
        "share",
        "reclaim",
        "at-most",
        "snapshot-within",
        "replica-within",
        "verified-within",
        "reclaimed-within",
        "room-for",
        "promise",
        "care",
        "defaults",
    ];
    let mut typo_count = 0;
    for word in words {
        let doubled = format!("{}{}", &word[..word.len() - 1], &word[word.len() - 1..].repeat(2));
        let swapped = format!("{}{}{}", &word[..1], &word[2..3], &word[1..2]) + &word[3..];
        let mut typos = vec![doubled, swapped];
        typos.extend(word.contains('-').then(|| word.replace('-', "_")));
        for typo in typos.iter().filter(|typo| *typo != word) {
            // The first place where the word is a key.
            let found = [
                format!("\n{word} ="),
                format!("{{ {word} ="),
                format!(", {word} ="),
                format!("[{word}]"),
                format!(".{word}]"),
            ];
            let Some((at, pattern)) =
                found.iter().filter_map(|pattern| Some((WHOLE.find(pattern.as_str())?, pattern))).min()
            else {
                panic!("{word} is no key");
            };
            let text =
                format!("{}{}{}", &WHOLE[..at], pattern.replace(word, typo), &WHOLE[at + pattern.len()..]);
            let line = WHOLE[..at + pattern.len()].matches('\n').count() + 1;
            let errors = read(&[("varve.toml", &text)]).unwrap_err();
            let expected = format!("varve.toml:{line}: unknown key {typo}");
            let named = errors.lines().find(|error| error.starts_with(&expected));
            let named = named.unwrap_or_else(|| panic!("{expected}: {errors}"));
            assert!(named.ends_with(&format!("did you mean {word}?")), "{named}");
            typo_count += 1;
        }
    }
    assert!(typo_count >= 60, "{typo_count}");
}

#[test]
fn wrong_values_are_explained() {
    for (line, message) in [
        (
            "every = \"daily\"",
            "every: \"daily\" is not a rhythm: write 6h, hour, \"day at 02:00\", \"week on sun at 04:00\" or \"month on 1 at 03:00\"",
        ),
        ("every = 6", "every is a number, but must be a text"),
        ("spread = \"1d\"", "spread must be shorter than the time between two runs (each day at 02:00)"),
        ("store = \"mian\"", "there is no [store.mian]: did you mean main?"),
        ("keep = { daily = 0 }", "daily is a number of at least 1, or \"all\""),
        ("keep = {}", "keep has no rule: leave it out to keep everything"),
        ("disk = \"/dev/vda\"", "[source.a] has two things to archive: write one source for each"),
        ("skip-free = true", "skip-free is only for disks"),
        ("as = \"x\"", "as is for the output of a command"),
        (
            "only-when = { power = \"sun\" }",
            "power: \"sun\" is not a condition of power: write \"mains\" or \"mains or 60%\"",
        ),
        ("freeze = \"zfs\"", "freeze: \"zfs\" is no way to freeze: write \"btrfs\" or \"lvm\""),
        ("hooks = { before = {} }", "before needs run = [\"PROGRAM\", \"ARGUMENT\"]"),
    ] {
        let every = if line.starts_with("every") { "" } else { "every = \"day at 02:00\"\n" };
        let text = format!("[store.main]\nat = \"s\"\n[source.a]\nfolder = \"/a\"\n{every}{line}\n");
        let error = read(&[("f", &text)]).unwrap_err();
        assert!(error.contains(message), "{line}: {error}");
    }
    assert_eq!(
        read(&[("f", "")]).unwrap_err(),
        "f:1: no store is named: write [store.main] and at = \"/backup/store\""
    );
    let error = read(&[("f", "\n[store.main\n")]).unwrap_err();
    assert!(error.starts_with("f:2: "), "{error}");
    let error =
        read(&[("f", "[store.main]\nat = \"s\"\nkey-file = \"k\"\npassphrase-file = \"p\"\n")]).unwrap_err();
    assert_eq!(
        error,
        "f:4: a store has one of key-file, key-file-command, passphrase-file and passphrase-command"
    );
    let config = read(&[("f", "[store.main]\nat = \"s\"\nkey-file-command = [\"pass\", \"show\", \"k\"]\n")]);
    let program = ["pass", "show", "k"].map(str::to_owned).to_vec();
    assert_eq!(config.unwrap().stores["main"].key, Some(StoreKey::KeyFileCommand(program)));
    for (what, freeze) in
        [("disk = \"/dev/vda\"", "btrfs"), ("command = [\"x\"]", "btrfs"), ("qmp = \"q\"", "lvm")]
    {
        let text =
            format!("[store.main]\nat = \"s\"\n[source.a]\n{what}\nevery = \"day\"\nfreeze = \"{freeze}\"\n");
        let error = read(&[("f", &text)]).unwrap_err();
        assert!(error.starts_with(&format!("f:6: freeze = \"{freeze}\" is only for")), "{error}");
    }
    let error = read(&[("f", "[store.\"../x\"]\nat = \"s\"\n")]).unwrap_err();
    assert!(error.contains("is not a name"), "{error}");
    assert_eq!(
        read(&[("f", "[store.main]\nat = \"s\"\n[source.a]\nfolder = \"/a\"\n")]).unwrap_err(),
        "f:3: [source.a] needs every = \"day at 02:00\", here or in [defaults]"
    );
}

#[test]
fn a_path_that_a_shell_would_expand_is_refused() {
    for (old, new, key) in [
        ("folder = \"/home\"", "folder = \"~/src\"", "folder"),
        ("folder = \"/home\"", "folder = \"$HOME/src\"", "folder"),
        ("exclude-file = \"home.exclude\"", "exclude-file = \"~ada/exclude\"", "exclude-file"),
        ("at = \"/backup/store\"", "at = \"~/store\"", "at"),
        ("key-file = \"credential:varve-main\"", "key-file = \"$KEYS/main\"", "key-file"),
        ("disk = \"/dev/vda\"", "disk = \"${DISK}\"", "disk"),
    ] {
        let error = read(&[("varve.toml", &WHOLE.replacen(old, new, 1))]).unwrap_err();
        assert!(error.contains(&format!(": {key}: \"")) && error.contains("is not expanded"), "{error}");
        // Without its store, a configuration has other faults, too.
        assert!(error.lines().count() == 1 || key == "at", "{error}");
    }
    let named = WHOLE.replacen("folder = \"/home\"", "folder = \"./~/src\"", 1);
    let config = read(&[("varve.toml", &named)]).unwrap();
    assert_eq!(config.sources["home"].what, SourceWhat::Folder("/etc/varve/./~/src".into()));
}
