//! The steps of a fold: an exclusive session that changes the catalog, and deletes nothing.

use super::exclusive::{publish, stop, write_root};
use super::state::{Exclusive, ExclusiveStep, Kind, State, Statement, arena_of};
use super::{Action, Setup};

/// Appends the steps that a fold may take after its claim.
pub fn actions(state: &State, index: usize, actions: &mut Vec<Action>) {
    match state.exclusives[index].step {
        ExclusiveStep::Claimed => actions.push(Action::FoldRead(index)),
        ExclusiveStep::FoldRead => actions.push(Action::FoldWriteRoot(index)),
        ExclusiveStep::FoldRootWritten => actions.push(Action::FoldPublish(index)),
        ExclusiveStep::FoldPublished => actions.push(Action::FoldLook(index)),
        _ => {}
    }
}

/// Takes a step of a fold after its claim.
pub fn take(setup: &Setup, state: &mut State, action: Action) {
    match action {
        Action::FoldRead(index) => {
            let statement = statement(setup, state);
            let forgets = setup.forgets;
            let catalog = state.newest_root();
            let ended = state.pushes.iter().enumerate().filter(|(_, push)| push.is_ended() && forgets);
            let forgotten = ended.fold(catalog.forgotten, |all, (push, _)| all | 1 << push);
            let session = &mut state.exclusives[index];
            session.statement = Statement { epoch: session.epoch, ..statement };
            session.gone = catalog.gone || forgets;
            session.forgotten = forgotten;
            session.step = ExclusiveStep::FoldRead;
        }
        Action::FoldWriteRoot(index) => {
            write_root(state, index);
            state.exclusives[index].step = ExclusiveStep::FoldRootWritten;
        }
        Action::FoldPublish(index) => {
            publish(state, index, Kind::Final);
            let session = &mut state.exclusives[index];
            *session = Exclusive {
                step: ExclusiveStep::FoldPublished,
                epoch: session.epoch,
                ..Exclusive::default()
            };
        }
        Action::FoldLook(index) => {
            let session = &mut state.exclusives[index];
            if state.claimed > session.epoch && setup.rules.a_fold_looks_for_later_claims {
                stop(session);
            } else {
                session.step = ExclusiveStep::Reported;
            }
        }
        other => unreachable!("{other:?} is no step of a fold"),
    }
}

/// The statement of a fold: that of the last collection, with the arenas of the sessions that have
/// ended since.
fn statement(setup: &Setup, state: &State) -> Statement {
    let newest = state.newest_statement();
    let dying = state.unfinished_dying();
    let is_finished = dying == 0;
    let mut covered = newest.covered;
    if is_finished || !setup.rules.a_fold_copies_unfinished_statements {
        let is_recent = |epoch: Option<u8>| {
            !setup.rules.a_fold_covers_recent_sessions_only
                || epoch.is_some_and(|epoch| usize::from(epoch) >= state.collected())
        };
        let ended = state.pushes.iter().enumerate().filter(|(_, push)| push.is_ended());
        let ended = ended.filter(|(_, push)| is_recent(push.epoch));
        covered = ended.fold(covered, |all, (push, _)| all | arena_of(push));
    }
    Statement { dying, covered, void: state.void(), judged: state.judged(), ..newest }
}
