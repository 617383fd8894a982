//! Readers beside a collector: leases, and the removal of old generations.
//!
//! One arena has a block of a snapshot that is forgotten, and a block of one that stays. The
//! collector writes a successor of the arena, and removes the old generation.

use stateright::{Model, Property};

use crate::rules::rules;
use crate::search::{all_states, shortest_loss};

rules! {
    /// The rules of readers, and those of a collector that concern them.
    Rules {
        /// A reader writes its lease, and only then looks for generations.
        writes_its_lease_before_it_looks,
        /// A reader looks after its lease if its snapshot is still listed.
        looks_again_if_the_snapshot_is_listed,
        /// A collector reads the catalog, and only then lists the leases for its mark.
        lists_the_leases_after_the_catalog,
        /// The snapshot of a lease counts as live.
        leased_snapshots_are_live,
        /// An old generation is kept until the leases are gone that were listed.
        waits_for_the_leases,
        /// The collector lists these leases after its successors are there.
        lists_the_leases_after_the_successors,
    }
}

const READERS: usize = 2;
/// A set of readers, one bit each.
type Readers = u8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Step {
    #[default]
    New,
    Chosen,
    Leased,
    /// Its snapshot is still listed.
    Looked,
    /// It has found the newest generation, and has no lease: only without the rule about the order.
    FoundFirst,
    /// It reads from the generation that it has found.
    Reading,
    Done,
    /// Its snapshot was forgotten before it began to read.
    Refused,
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Reader {
    step: Step,
    wants_forgotten: bool,
    has_lease: bool,
    /// It reads the successor, not the old generation.
    reads_successor: bool,
}

/// The steps of the collector, in their order.
const ORDER: [CollectorStep; 7] = [
    CollectorStep::Forget,
    CollectorStep::ReadCatalog,
    CollectorStep::ListLeases,
    CollectorStep::WriteSuccessor,
    CollectorStep::ListOlderLeases,
    CollectorStep::RemoveOld,
    CollectorStep::End,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CollectorStep {
    Forget,
    ReadCatalog,
    ListLeases,
    WriteSuccessor,
    ListOlderLeases,
    RemoveOld,
    End,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    readers: [Reader; READERS],
    /// The number of steps that the collector has taken.
    position: usize,
    is_forgotten: bool,
    /// The block of the forgotten snapshot is dead for the collector.
    is_dead: bool,
    /// The collector has found a lease on the snapshot.
    has_found_lease: bool,
    /// The leases that the collector has listed, and that are still there.
    older: Readers,
    has_old: bool,
    has_successor: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Choose(usize, bool),
    Lease(usize),
    Look(usize),
    Find(usize),
    Read(usize),
    Collect(CollectorStep),
}

#[derive(Clone, Debug)]
struct Setup {
    rules: Rules,
}

impl Setup {
    fn order(&self) -> [CollectorStep; 7] {
        let mut order = ORDER;
        if !self.rules.lists_the_leases_after_the_catalog {
            // The leases are listed even before the snapshot is forgotten.
            order[..3].rotate_right(1);
        }
        if !self.rules.lists_the_leases_after_the_successors {
            order.swap(3, 4);
        }
        order
    }

    fn look(&self, state: &State, reader: &mut Reader) {
        let is_gone = reader.wants_forgotten && state.is_forgotten;
        let is_refused = is_gone && self.rules.looks_again_if_the_snapshot_is_listed;
        reader.step = if is_refused { Step::Refused } else { Step::Looked };
        reader.has_lease &= !is_refused;
    }

    fn find(state: &State, reader: &mut Reader) {
        reader.reads_successor = state.has_successor;
        reader.step = if reader.has_lease { Step::Reading } else { Step::FoundFirst };
    }

    fn read(state: &State, reader: &mut Reader) {
        let is_dead = reader.wants_forgotten && state.is_dead;
        let has_block = if reader.reads_successor { !is_dead } else { state.has_old };
        reader.step = if has_block { Step::Done } else { Step::Failed };
        reader.has_lease = false;
    }

    fn collect(&self, state: &mut State, step: CollectorStep) {
        let leases = state.readers.iter().enumerate().filter(|(_, reader)| reader.has_lease);
        let leased = leases.clone().fold(0, |all, (index, _)| all | 1 << index);
        match step {
            CollectorStep::Forget => state.is_forgotten = true,
            CollectorStep::ReadCatalog => state.is_dead = state.is_forgotten,
            CollectorStep::ListLeases => {
                state.has_found_lease = leases.clone().any(|(_, reader)| reader.wants_forgotten);
            }
            CollectorStep::WriteSuccessor => {
                let is_kept = state.has_found_lease && self.rules.leased_snapshots_are_live;
                state.is_dead &= !is_kept;
                state.has_successor = true;
            }
            CollectorStep::ListOlderLeases => state.older = leased,
            CollectorStep::RemoveOld => state.has_old = false,
            CollectorStep::End => {}
        }
        state.position += 1;
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let readers = [Reader::default(); READERS];
        vec![State {
            readers,
            position: 0,
            is_forgotten: false,
            is_dead: false,
            has_found_lease: false,
            older: 0,
            has_old: true,
            has_successor: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, reader) in state.readers.iter().enumerate() {
            match reader.step {
                Step::New => {
                    actions.push(Action::Choose(index, false));
                    if !state.is_forgotten {
                        actions.push(Action::Choose(index, true));
                    }
                }
                Step::Chosen if self.rules.writes_its_lease_before_it_looks => {
                    actions.push(Action::Lease(index));
                }
                Step::Chosen | Step::Leased => actions.push(Action::Look(index)),
                Step::Looked => actions.push(Action::Find(index)),
                Step::FoundFirst => actions.push(Action::Lease(index)),
                Step::Reading => actions.push(Action::Read(index)),
                Step::Done | Step::Refused | Step::Failed => {}
            }
        }
        let step = self.order()[state.position];
        let waits = step == CollectorStep::RemoveOld && state.older != 0 && self.rules.waits_for_the_leases;
        if step != CollectorStep::End && !waits {
            actions.push(Action::Collect(step));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Choose(index, wants_forgotten) => {
                next.readers[index] = Reader { step: Step::Chosen, wants_forgotten, ..Reader::default() };
            }
            Action::Lease(index) => {
                let reader = &mut next.readers[index];
                reader.has_lease = true;
                reader.step = if reader.step == Step::Chosen { Step::Leased } else { Step::Reading };
            }
            Action::Look(index) => self.look(state, &mut next.readers[index]),
            Action::Find(index) => Self::find(state, &mut next.readers[index]),
            Action::Read(index) => Self::read(state, &mut next.readers[index]),
            Action::Collect(step) => self.collect(&mut next, step),
        }
        let leased = next.readers.iter().enumerate().filter(|(_, reader)| reader.has_lease);
        next.older &= leased.fold(0, |all, (index, _)| all | 1 << index);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("a reader that has begun can read on", |_: &Self, state: &State| {
            state.readers.iter().all(|reader| reader.step != Step::Failed)
        })]
    }
}

#[test]
fn a_reader_that_has_begun_can_read_on() {
    println!("2 readers: {} states", all_states(Setup { rules: Rules::all() }));
}

#[test]
fn each_rule_for_readers_is_needed() {
    let losses = [
        ("writes_its_lease_before_it_looks", 9),
        ("looks_again_if_the_snapshot_is_listed", 9),
        ("lists_the_leases_after_the_catalog", 9),
        ("leased_snapshots_are_live", 9),
        ("waits_for_the_leases", 11),
        ("lists_the_leases_after_the_successors", 11),
    ];
    assert_eq!(losses.each_ref().map(|(rule, _)| *rule), Rules::NAMES);
    for (rule, steps) in losses {
        let path = shortest_loss(Setup { rules: Rules::without(rule) }).expect(rule);
        println!("without {rule}: a reader fails after {} steps: {path:?}", path.len());
        assert_eq!(path.len(), steps, "{rule}");
    }
}
