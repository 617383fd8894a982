//! The steps of a collector.

use super::state::{
    Arenas, Exclusive, ExclusiveStep, FinalRoot, Kind, LEAVES_MAX, Pushes, STAYS, State, Statement, arena_of,
};
use super::{Action, Setup};

/// Appends the steps that a collector may take after its claim.
pub fn actions(setup: &Setup, state: &State, index: usize, actions: &mut Vec<Action>) {
    let session = &state.exclusives[index];
    match session.step {
        ExclusiveStep::Claimed => actions.push(Action::Mark(index)),
        ExclusiveStep::Marked => actions.push(Action::Propose(index)),
        ExclusiveStep::Proposed => actions.push(Action::LookForClaims(index)),
        ExclusiveStep::Waiting => {
            // A session of a later epoch may seem dead, and is closed, too.
            let open = (0..setup.push_count).filter(|push| state.pushes[*push].is_open());
            actions.extend(open.map(|push| Action::Close(index, push)));
            let is_older = |push: usize| state.pushes[push].epoch.is_none_or(|epoch| epoch < session.epoch);
            let mut pushes = 0..setup.push_count;
            if !setup.rules.waits_for_older_sessions
                || pushes.all(|push| !(state.pushes[push].is_open() && is_older(push)))
            {
                actions.push(Action::MarkAgain(index));
            }
        }
        ExclusiveStep::MarkedAgain if setup.rules.writes_its_root_before_its_statement => {
            actions.push(Action::WriteRoot(index));
        }
        ExclusiveStep::MarkedAgain => actions.push(Action::PublishFinal(index)),
        ExclusiveStep::RootWritten => actions.push(Action::PublishFinal(index)),
        ExclusiveStep::StatementFirst => actions.push(Action::WriteRoot(index)),
        ExclusiveStep::Final if session.remaining != 0 => actions.push(Action::Rewrite(index)),
        ExclusiveStep::Final => actions.push(Action::Finish(index)),
        _ => {}
    }
}

/// Takes a step of a collector after its claim.
pub fn take(setup: &Setup, state: &mut State, action: Action) {
    match action {
        Action::Mark(index) => mark(setup, state, index),
        Action::Propose(index) => {
            publish(state, index, Kind::Proposed);
            state.exclusives[index].step = ExclusiveStep::Proposed;
        }
        Action::LookForClaims(index) => {
            let session = &mut state.exclusives[index];
            let goes_on = state.claimed == session.epoch || !setup.rules.stops_if_a_later_epoch_is_claimed;
            if goes_on {
                session.step = ExclusiveStep::Waiting;
            } else {
                stop(session);
            }
        }
        Action::Close(_, push) => state.pushes[push].closed = true,
        Action::MarkAgain(index) => mark_again(setup, state, index),
        Action::WriteRoot(index) => {
            write_root(state, index);
            let session = &mut state.exclusives[index];
            let is_published = session.step == ExclusiveStep::StatementFirst;
            session.step = if is_published { ExclusiveStep::Final } else { ExclusiveStep::RootWritten };
        }
        Action::PublishFinal(index) => {
            publish(state, index, Kind::Final);
            let session = &mut state.exclusives[index];
            session.remaining = session.statement.dying;
            let has_root = session.step == ExclusiveStep::RootWritten;
            session.step = if has_root { ExclusiveStep::Final } else { ExclusiveStep::StatementFirst };
        }
        Action::Rewrite(index) => rewrite(setup, state, index),
        Action::Finish(index) => {
            state.exclusives[index].statement.dying = 0;
            publish(state, index, Kind::Finished);
            let session = &mut state.exclusives[index];
            *session =
                Exclusive { step: ExclusiveStep::Finished, epoch: session.epoch, ..Exclusive::default() };
        }
        other => unreachable!("{other:?} is no step of a collector"),
    }
}

/// Ends a session early. Without the rest, fewer states differ.
pub fn stop(session: &mut Exclusive) {
    *session = Exclusive { step: ExclusiveStep::Stopped, epoch: session.epoch, ..Exclusive::default() };
}

/// Publishes the statement of a session.
pub fn publish(state: &mut State, index: usize, kind: Kind) {
    let Exclusive { epoch, statement, .. } = state.exclusives[index];
    state.statements[usize::from(epoch)][kind as usize] = Some(Statement { epoch, ..statement });
}

/// Writes the final root of a session. It repeats the sessions that earlier ones call void.
pub fn write_root(state: &mut State, index: usize) {
    let Exclusive { epoch, statement, gone, forgotten, .. } = state.exclusives[index];
    state.roots[usize::from(epoch)] = Some(FinalRoot { void: statement.void, gone, forgotten });
}

/// The findings of a mark.
struct Marked {
    /// A snapshot leads to the blocks: they are kept.
    live: bool,
    covered: Arenas,
    barren: Arenas,
}

/// Marks the blocks of all snapshots. `judged` are the closed sessions with a verdict, `void` those
/// whose roots do not count.
fn find_live(setup: &Setup, state: &State, judged: Pushes, void: Pushes) -> Marked {
    let rules = &setup.rules;
    let FinalRoot { gone, forgotten, .. } = state.newest_root();
    let (mut live, mut is_shared) = (!gone, !gone);
    let (mut covered, mut pointers) = (STAYS, STAYS);
    for (push, session) in state.pushes.iter().enumerate() {
        let bit = 1 << push;
        let counts =
            session.root && forgotten & bit == 0 && (void & bit == 0 || !rules.void_roots_count_nowhere);
        live |= counts;
        let frees = if session.is_ended() || !session.closed {
            true
        } else if judged & bit != 0 {
            !rules.roots_with_a_verdict_free_no_block
        } else {
            !rules.roots_without_a_verdict_free_no_block
        };
        is_shared |= counts && frees;
        let is_complete = session.is_ended() || session.closed;
        let was_read = session.pointer || session.is_ended() || !rules.covers_only_the_listed_part;
        if is_complete && was_read {
            covered |= arena_of(push);
        }
        if session.pointer {
            pointers |= arena_of(push);
        }
    }
    Marked { live, covered, barren: if is_shared { 0 } else { covered & pointers } }
}

fn mark(setup: &Setup, state: &mut State, index: usize) {
    let (judged, void) = (state.judged(), state.void());
    let marked = find_live(setup, state, judged, void);
    let complete = state.pushes.iter().enumerate().filter(|(_, push)| push.is_ended() || push.closed);
    let complete = complete.fold(STAYS - 1, |all, (push, _)| all | arena_of(push));
    let inherited = if setup.rules.inherits_dying_arenas { state.unfinished_dying() } else { 0 };
    let session = &mut state.exclusives[index];
    session.live = marked.live;
    session.statement = Statement {
        epoch: session.epoch,
        dying: setup.dying[index] & complete | inherited,
        covered: marked.covered,
        barren: marked.barren,
        void,
        judged,
    };
    session.step = ExclusiveStep::Marked;
}

/// Lists the arenas of the closed sessions, decides which of them are void, and marks again.
fn mark_again(setup: &Setup, state: &mut State, index: usize) {
    let (mut judged, mut void) = (state.judged(), state.void());
    for (push, session) in state.pushes.iter().enumerate() {
        if session.closed && !session.is_ended() {
            judged |= 1 << push;
            void |= u8::from(!session.root) << push;
        }
    }
    let marked = find_live(setup, state, judged, void);
    let FinalRoot { gone, forgotten, .. } = state.newest_root();
    let session = &mut state.exclusives[index];
    if setup.rules.marks_twice {
        let stays_live = session.live && setup.rules.keeps_what_the_first_mark_found;
        session.live = marked.live || stays_live;
        session.statement.covered = marked.covered;
        session.statement.barren = marked.barren;
    }
    session.statement.void = void;
    session.statement.judged = judged;
    session.gone = gone;
    session.forgotten = forgotten;
    session.step = ExclusiveStep::MarkedAgain;
}

/// Writes the successor of one dying arena. It has the live blocks only.
fn rewrite(setup: &Setup, state: &mut State, index: usize) {
    let Exclusive { epoch, live, remaining, .. } = state.exclusives[index];
    let arena = remaining.trailing_zeros() as usize;
    state.exclusives[index].remaining &= remaining - 1;
    let replaces = |generation: u8| epoch > generation || !setup.rules.the_latest_epoch_names_the_generation;
    if arena < LEAVES_MAX {
        let old = &mut state.old[arena];
        if replaces(old.generation) {
            old.generation = epoch;
            old.leaf &= live;
        }
        return;
    }
    let push = &mut state.pushes[arena - LEAVES_MAX - 1];
    if replaces(push.generation) {
        push.generation = epoch;
        push.pointer &= live;
        push.leaves = if live { push.leaves } else { 0 };
    }
}
