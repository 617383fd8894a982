//! The steps of a push session.

use super::state::{Arenas, LEAVES_MAX, Push, PushStep, STAYS, State, Statement, arena_of};
use super::{Action, Setup};

/// Appends the steps that a push session may take.
pub fn actions(setup: &Setup, state: &State, push: usize, actions: &mut Vec<Action>) {
    let session = &state.pushes[push];
    match session.step {
        // Push sessions are alike, so it is enough that they begin in one order.
        PushStep::New if push > 0 && state.pushes[push - 1].step == PushStep::New => {}
        PushStep::New if setup.rules.registers_before_it_reads => actions.push(Action::Register(push)),
        PushStep::New => actions.push(Action::Read(push)),
        PushStep::ReadFirst => actions.push(Action::Register(push)),
        PushStep::Registered => actions.push(Action::Read(push)),
        PushStep::Read => actions.push(Action::Announce(push)),
        PushStep::Announced => {
            if finds_pointer(setup, state, push) {
                actions.push(Action::FindPointer(push));
            }
            // The index is a hint: it may not find a block that is there.
            actions.push(Action::MissPointer(push));
        }
        PushStep::NeedsLeaf(leaf) => {
            if finds_leaf(setup, state, push, leaf) {
                actions.push(Action::FindLeaf(push));
            }
            actions.push(Action::StoreLeaf(push));
        }
        PushStep::NeedsPointer => actions.push(Action::StorePointer(push)),
        PushStep::HasTree => actions.push(Action::PutRoot(push)),
        PushStep::RootPut => actions.push(Action::Look(push)),
        PushStep::Acknowledged => actions.push(Action::End(push)),
        PushStep::Ended | PushStep::Failed => {}
    }
}

/// Takes a step of a push session.
pub fn take(setup: &Setup, state: &mut State, action: Action) {
    match action {
        Action::Register(push) => register(&mut state.pushes[push]),
        Action::Read(push) => {
            let statement = state.newest_statement();
            read(&mut state.pushes[push], statement);
        }
        Action::Announce(push) => {
            let session = &mut state.pushes[push];
            session.epoch = Some(session.statement.epoch);
            session.step = PushStep::Announced;
        }
        Action::FindPointer(push) => has_tree(&mut state.pushes[push]),
        Action::MissPointer(push) => state.pushes[push].step = PushStep::NeedsLeaf(0),
        Action::FindLeaf(push) => has_leaf(setup, &mut state.pushes[push]),
        Action::StoreLeaf(push) => store_leaf(setup, &mut state.pushes[push]),
        Action::StorePointer(push) => {
            let session = &mut state.pushes[push];
            session.pointer = session.generation == 0;
            has_tree(session);
        }
        Action::PutRoot(push) => {
            let session = &mut state.pushes[push];
            session.root = session.generation == 0;
            session.step = PushStep::RootPut;
        }
        Action::Look(push) => {
            let session = &mut state.pushes[push];
            let is_refused = session.closed && setup.rules.looks_if_it_was_closed;
            session.step = if is_refused { PushStep::Failed } else { PushStep::Acknowledged };
        }
        Action::End(push) => state.pushes[push].step = PushStep::Ended,
        other => unreachable!("{other:?} is no step of a push session"),
    }
}

fn register(session: &mut Push) {
    session.registered = true;
    session.step = if session.step == PushStep::New { PushStep::Registered } else { PushStep::Read };
}

fn read(session: &mut Push, statement: Statement) {
    // A session acts on the arenas only. Without the rest, fewer states differ.
    session.statement = Statement { void: 0, judged: 0, ..statement };
    session.step = if session.registered { PushStep::Read } else { PushStep::ReadFirst };
}

fn has_tree(session: &mut Push) {
    session.statement = Statement::default();
    session.step = PushStep::HasTree;
}

fn has_leaf(setup: &Setup, session: &mut Push) {
    let PushStep::NeedsLeaf(leaf) = session.step else { unreachable!("{session:?} looks for no leaf") };
    let is_last = usize::from(leaf) + 1 == setup.leaf_count;
    session.step = if is_last { PushStep::NeedsPointer } else { PushStep::NeedsLeaf(leaf + 1) };
}

fn store_leaf(setup: &Setup, session: &mut Push) {
    // An arena that was rewritten has a later generation: nobody sees what is appended to this one.
    if let PushStep::NeedsLeaf(leaf) = session.step
        && session.generation == 0
    {
        session.leaves |= 1 << leaf;
    }
    has_leaf(setup, session);
}

/// The session may take a pointer block that is there.
fn finds_pointer(setup: &Setup, state: &State, push: usize) -> bool {
    let session = &state.pushes[push];
    let statement = &session.statement;
    // The old arena that stays has no session, and so none of this epoch.
    let of_others = state.pushes.iter().enumerate().any(|(other, holder)| {
        let is_own = other == push;
        holder.pointer
            && (is_own || may_build_on(setup, statement, arena_of(other), holder.epoch == session.epoch))
    });
    of_others || may_build_on(setup, statement, STAYS, false)
}

/// The session may take structure from an arena of another session.
fn may_build_on(setup: &Setup, statement: &Statement, arena: Arenas, is_of_this_epoch: bool) -> bool {
    let is_dying = statement.dying & arena != 0 && setup.rules.takes_nothing_from_dying_arenas;
    let is_covered = statement.covered & arena != 0;
    let is_barren = statement.barren & arena != 0 && setup.rules.barren_blocks_count_as_absent;
    let is_known = is_covered || is_of_this_epoch || !setup.rules.takes_structure_from_covered_arenas_only;
    !is_dying && is_known && !(is_covered && is_barren)
}

/// The session may take a leaf that is there.
fn finds_leaf(setup: &Setup, state: &State, push: usize, leaf: u8) -> bool {
    debug_assert!(usize::from(leaf) < LEAVES_MAX);
    let dying = state.pushes[push].statement.dying;
    let may_take = |arena: Arenas| dying & arena == 0 || !setup.rules.takes_nothing_from_dying_arenas;
    let in_old = state.old[usize::from(leaf)].leaf && may_take(1 << leaf);
    let mut holders = state.pushes.iter().enumerate().filter(|(_, holder)| holder.leaves & 1 << leaf != 0);
    in_old || holders.any(|(other, _)| other == push || may_take(arena_of(other)))
}
