//! Runs every target on stable Rust: on its seeds, on the inputs saved in `corpus/`, and on
//! mutations of both for a limited time.
//!
//! `SECONDS=60` mutates longer, and `SEED=7` mutates differently. An input that fails is saved in
//! `artifacts/`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use varve_fuzz::mutate::Mutator;
use varve_fuzz::{TARGETS, Target};

const MUTATIONS_MAX: u64 = 200_000;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn saved(target: &Target) -> Vec<Vec<u8>> {
    let Ok(files) = fs::read_dir(folder("corpus").join(target.name)) else { return Vec::new() };
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn run(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let artifacts = folder("artifacts").join(target.name);
        fs::create_dir_all(&artifacts).unwrap();
        let file = artifacts.join(blake3::hash(input).to_hex().split_at(16).0);
        fs::write(&file, input).unwrap();
        eprintln!("{}: this input fails: {}", target.name, file.display());
        resume_unwind(panic);
    }
}

#[expect(clippy::disallowed_methods, reason = "this test is bounded by time")]
fn exercise(target: &Target) {
    let mut inputs = (target.seeds)();
    assert!(!inputs.is_empty(), "a target has seeds");
    inputs.extend(saved(target));
    inputs.push(Vec::new());
    for input in &inputs {
        run(target, input);
    }
    let mut mutator = Mutator::new(setting("SEED", 1));
    let end = Instant::now() + Duration::from_secs(setting("SECONDS", 4));
    let mut count = 0;
    while count < MUTATIONS_MAX && Instant::now() < end {
        run(target, &mutator.next(&inputs));
        count += 1;
    }
    println!("{}: {} inputs, {count} mutations", target.name, inputs.len());
}

macro_rules! exercise {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            exercise(TARGETS.iter().find(|target| target.name == stringify!($name)).unwrap());
        })*

        const EXERCISED: &[&str] = &[$(stringify!($name)),*];
    };
}

exercise!(
    arena_header,
    record_header,
    clump_body,
    framed_clump,
    directory_page,
    footer,
    parity_file,
    entry,
    pointer_block,
    checkpoint,
    disk_index_summary,
    disk_index_page,
    disk_index_filter,
    node,
    node_list,
    snapshot,
    catalog_root,
    catalog_list,
    config,
    key_file,
    paper_key,
    last_night,
    sealed_data_key,
    checkpoint_note,
    log_note,
    lease,
    nbd_server,
    nbd_client,
    venti_server,
    venti_client,
    venti_root,
    venti_entry,
    vac_meta_block,
    venti_arena,
    whack,
    partitions,
    ext,
    exfat,
    ntfs,
    xfs,
    btrfs,
    edition_head,
    map_page,
    disk_profile,
    machine_description,
    stored_block,
    content_key,
    cache_record,
    trust_record,
    blkparse_text,
    daily_config,
    borg_items,
    restic_index,
    restic_key_file,
    restic_pack_header,
    restic_tree,
    tar_archive,
    zip_archive,
    trace,
    store_files,
);

#[test]
fn every_target_is_here() {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(EXERCISED, names);
}
