//! Feeds hostile bytes to the decoder of every structure on disk, to the readers of foreign disks
//! and file systems, and to both sides of the network protocols.
//!
//! A target takes any bytes, makes a structure of them, and reads it as the program would. The
//! program must never panic, and never return other data than was stored. If a structure carries a
//! code, the target computes a good one ([`forge`]). The bytes then pass the check of the code, as
//! those of a writer with the key would.
//!
//! The same functions are used twice: `VARVE_FUZZ=NAME cargo +nightly fuzz run any_target` searches
//! for inputs that fail. `cargo test` runs on stable Rust: it replays seeds and saved inputs, and
//! mutates them for a limited time.

pub mod archive;
pub mod btrfs;
pub mod daily;
pub mod disk_index;
pub mod edition;
pub mod forge;
pub mod golden;
pub mod image;
pub mod import;
pub mod index;
pub mod input;
pub mod log;
pub mod mutate;
pub mod nbd;
pub mod parity;
pub mod store;
pub mod trace;
pub mod tree;
pub mod vac;
pub mod venti;

use std::sync::LazyLock;

/// A function that takes arbitrary bytes, with its name and its seeds.
pub struct Target {
    /// Its name for `VARVE_FUZZ`, and the name of its folder in `corpus/`.
    pub name: &'static str,
    /// Reads the bytes. Panics if the program does, or returns wrong data.
    pub run: fn(&[u8]),
    /// Inputs that get deep into the decoder. The search starts from them.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets: one for each structure on disk, one for each side of a protocol, and one for the
/// files of whole stores.
pub static TARGETS: [Target; 60] = [
    Target { name: "arena_header", run: log::arena_header, seeds: log::arena_header_seeds },
    Target { name: "record_header", run: log::record_header, seeds: log::record_header_seeds },
    Target { name: "clump_body", run: log::clump_body, seeds: log::clump_body_seeds },
    Target { name: "framed_clump", run: log::framed_clump, seeds: log::framed_clump_seeds },
    Target { name: "directory_page", run: log::directory_page, seeds: log::directory_page_seeds },
    Target { name: "footer", run: log::footer, seeds: log::footer_seeds },
    Target { name: "parity_file", run: parity::parity_file, seeds: parity::parity_file_seeds },
    Target { name: "entry", run: tree::entry, seeds: tree::entry_seeds },
    Target { name: "pointer_block", run: tree::pointer_block, seeds: tree::pointer_block_seeds },
    Target { name: "checkpoint", run: index::checkpoint, seeds: index::checkpoint_seeds },
    Target {
        name: "disk_index_summary",
        run: disk_index::disk_index_summary,
        seeds: disk_index::disk_index_summary_seeds,
    },
    Target {
        name: "disk_index_page",
        run: disk_index::disk_index_page,
        seeds: disk_index::disk_index_page_seeds,
    },
    Target {
        name: "disk_index_filter",
        run: disk_index::disk_index_filter,
        seeds: disk_index::disk_index_filter_seeds,
    },
    Target { name: "node", run: archive::node, seeds: archive::node_seeds },
    Target { name: "node_list", run: archive::node_list, seeds: archive::node_list_seeds },
    Target { name: "snapshot", run: archive::snapshot, seeds: archive::snapshot_seeds },
    Target { name: "catalog_root", run: archive::catalog_root, seeds: archive::catalog_root_seeds },
    Target { name: "catalog_list", run: archive::catalog_list, seeds: archive::catalog_list_seeds },
    Target { name: "config", run: store::config, seeds: store::config_seeds },
    Target { name: "key_file", run: store::key_file, seeds: store::key_file_seeds },
    Target { name: "paper_key", run: store::paper_key, seeds: store::paper_key_seeds },
    Target { name: "last_night", run: store::last_night, seeds: store::last_night_seeds },
    Target { name: "sealed_data_key", run: log::sealed_data_key, seeds: log::sealed_data_key_seeds },
    Target { name: "checkpoint_note", run: store::checkpoint_note, seeds: store::checkpoint_note_seeds },
    Target { name: "log_note", run: store::log_note, seeds: store::log_note_seeds },
    Target { name: "lease", run: store::lease, seeds: store::lease_seeds },
    Target { name: "nbd_server", run: nbd::nbd_server, seeds: nbd::nbd_server_seeds },
    Target { name: "nbd_client", run: nbd::nbd_client, seeds: nbd::nbd_client_seeds },
    Target { name: "venti_server", run: venti::venti_server, seeds: venti::venti_server_seeds },
    Target { name: "venti_client", run: venti::venti_client, seeds: venti::venti_client_seeds },
    Target { name: "venti_root", run: vac::venti_root, seeds: vac::venti_root_seeds },
    Target { name: "venti_entry", run: vac::venti_entry, seeds: vac::venti_entry_seeds },
    Target { name: "vac_meta_block", run: vac::vac_meta_block, seeds: vac::vac_meta_block_seeds },
    Target { name: "venti_arena", run: vac::venti_arena, seeds: vac::venti_arena_seeds },
    Target { name: "whack", run: vac::whack, seeds: vac::whack_seeds },
    Target { name: "partitions", run: image::partitions, seeds: image::partitions_seeds },
    Target { name: "ext", run: image::ext, seeds: image::ext_seeds },
    Target { name: "exfat", run: image::exfat, seeds: image::exfat_seeds },
    Target { name: "ntfs", run: image::ntfs, seeds: image::ntfs_seeds },
    Target { name: "xfs", run: image::xfs, seeds: image::xfs_seeds },
    Target { name: "btrfs", run: btrfs::btrfs, seeds: btrfs::btrfs_seeds },
    Target { name: "edition_head", run: edition::edition_head, seeds: edition::edition_head_seeds },
    Target { name: "map_page", run: edition::map_page, seeds: edition::map_page_seeds },
    Target { name: "disk_profile", run: edition::disk_profile, seeds: edition::disk_profile_seeds },
    Target {
        name: "machine_description",
        run: edition::machine_description,
        seeds: edition::machine_description_seeds,
    },
    Target { name: "stored_block", run: edition::stored_block, seeds: edition::stored_block_seeds },
    Target { name: "content_key", run: edition::content_key, seeds: edition::content_key_seeds },
    Target { name: "cache_record", run: edition::cache_record, seeds: edition::cache_record_seeds },
    Target { name: "trust_record", run: edition::trust_record, seeds: edition::trust_record_seeds },
    Target { name: "blkparse_text", run: edition::blkparse_text, seeds: edition::blkparse_text_seeds },
    Target { name: "daily_config", run: daily::daily_config, seeds: daily::daily_config_seeds },
    Target { name: "borg_items", run: import::borg_items, seeds: import::borg_items_seeds },
    Target { name: "restic_index", run: import::restic_index, seeds: import::restic_index_seeds },
    Target { name: "restic_key_file", run: import::restic_key_file, seeds: import::restic_key_file_seeds },
    Target {
        name: "restic_pack_header",
        run: import::restic_pack_header,
        seeds: import::restic_pack_header_seeds,
    },
    Target { name: "restic_tree", run: import::restic_tree, seeds: import::restic_tree_seeds },
    Target { name: "tar_archive", run: import::tar_archive, seeds: import::tar_archive_seeds },
    Target { name: "zip_archive", run: import::zip_archive, seeds: import::zip_archive_seeds },
    Target { name: "trace", run: trace::trace, seeds: trace::trace_seeds },
    Target { name: "store_files", run: store::store_files, seeds: store::store_files_seeds },
];

/// The target that `VARVE_FUZZ` names.
///
/// # Panics
/// If it names none.
pub fn chosen_target() -> &'static Target {
    static CHOSEN: LazyLock<&'static Target> = LazyLock::new(|| {
        let name = std::env::var("VARVE_FUZZ").unwrap_or_default();
        let found = TARGETS.iter().find(|target| target.name == name);
        found
            .unwrap_or_else(|| panic!("VARVE_FUZZ must be the name of a target in fuzz/src/lib.rs: {name:?}"))
    });
    &CHOSEN
}
