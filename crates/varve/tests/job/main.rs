//! The main job, end to end, with the real program: snapshots of folders and images, the choice of
//! their contents, names, keys, and restores.

#[path = "../harness/chattr/mod.rs"]
mod chattr;
#[path = "../harness/golden_text/mod.rs"]
mod golden_text;
#[path = "../harness/loop_device/mod.rs"]
mod loop_device;
#[path = "../harness/makers/mod.rs"]
mod makers;
#[path = "../harness/moved_clock/mod.rs"]
mod moved_clock;
#[path = "../harness/qemu/mod.rs"]
mod qemu;
#[path = "../harness/sandbox/mod.rs"]
mod sandbox;

mod attaching;
mod completing;
mod copies;
mod copy;
mod cut_at_files;
mod daily;
mod daily_care;
mod daily_clock;
mod daily_freeze;
mod daily_limits;
mod daily_mail;
mod daily_notices;
mod daily_safety;
mod daily_sinks;
mod daily_stops;
mod daily_store;
mod daily_trust;
mod daily_twelve_ways;
mod daily_zone;
mod deep_folders;
mod deltas;
mod forgetting;
mod formats;
mod golden;
mod habits;
mod index_paths;
mod inside;
mod keys;
mod left_out;
mod main_job;
mod names;
mod optimize;
mod origins;
mod plan;
mod planning_page;
mod printed;
mod prune;
mod publishing;
mod readme_page;
mod reclaiming;
mod reindex;
mod restore;
mod restore_in_place;
mod rosetta;
mod shrinking_replica;
mod space_page;
mod traces;
mod versions;
mod what_goes_in;
mod write_only;
