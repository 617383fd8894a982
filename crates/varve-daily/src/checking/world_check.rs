//! Checks that the things that a configuration names are there.

use std::collections::BTreeMap;
use std::path::Path;

use varve_block::with_causes;
use varve_session::target;
use varve_world::{Clock, RealClock};

use crate::config::{ConfiguredSource, ReplicaTrigger, SourceWhat};
use crate::judging::{ContinuedStore, StoreFacts};
use crate::loaded_config::LoadedConfig;
use crate::stores::{id_at, read_facts};

/// The surroundings of a configuration.
#[derive(Default)]
pub struct WorldCheck {
    /// The facts about the stores that can be read.
    pub facts: BTreeMap<String, StoreFacts>,
    /// Things that are not there, or are other ones, each with the place that names it.
    pub faults: Vec<String>,
    pub warnings: Vec<String>,
}

/// Opens each store, and looks for the sources and for the places of the replicas.
#[must_use]
pub fn look_around(loaded: &LoadedConfig) -> WorldCheck {
    let config = &loaded.config;
    let mut world = WorldCheck::default();
    for (name, store) in &config.stores {
        match loaded.session(store).and_then(|session| read_facts(&session, store)) {
            Ok(Some(facts)) => {
                let now = RealClock.now();
                let continued = ContinuedStore { config, name, host: &loaded.host, now };
                world.warnings.extend(continued.other_hosts(&facts));
                world.facts.insert(name.clone(), facts);
            }
            Ok(None) => {}
            Err(error) => {
                let fault = format!(
                    "{}: the store {name} does not open: {}",
                    store.place,
                    with_causes(error.as_ref())
                );
                world.faults.push(fault);
            }
        }
        if let (None, Some(id)) = (&store.id, id_at(&store.at)) {
            world.warnings.push(format!(
                "nothing would notice another store in the place of {name}: add id = \"{id}\" to [store.{name}]"
            ));
        }
    }
    for source in config.sources.values() {
        world.faults.extend(absent(source).map(|what| format!("{}: {what}", source.place)));
    }
    for replica in config.replicas.values().filter(|replica| replica.trigger != ReplicaTrigger::Present) {
        // A replication makes the folder, but not its parent.
        let parent = target::folder_of(&replica.at).and_then(|folder| folder.parent().map(Path::to_owned));
        if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
            world.faults.push(format!("{}: there is no folder {}", replica.place, parent.display()));
        }
    }
    world
}

/// Says that a source is not there. A machine may be off, and a program is found when it runs.
fn absent(source: &ConfiguredSource) -> Option<String> {
    let named = match &source.what {
        SourceWhat::Folder(path) => {
            (!path.is_dir()).then(|| format!("there is no folder {}", path.display()))
        }
        SourceWhat::File(path) => (!path.is_file()).then(|| format!("there is no file {}", path.display())),
        SourceWhat::Disk(path) => (!path.exists()).then(|| format!("there is no disk {}", path.display())),
        SourceWhat::Command { .. } | SourceWhat::Machine(_) => None,
    };
    let missing = source.options.exclude_file.iter().find(|file| !file.is_file());
    named.or_else(|| missing.map(|file| format!("there is no file {}", file.display())))
}
