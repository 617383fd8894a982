//! Claims of numbers at a target that has no conditional PUT.
//!
//! A claimant lists the claims, puts its own under a free number, and lists again. A PUT may be
//! seen long after the claimant has given it up, or never. A sweeper removes old claims.

use stateright::{Model, Property};

use crate::rules::rules;
use crate::search::{all_states, shortest_loss};

rules! {
    /// The rules of claimants and of the sweeper.
    Rules {
        /// A claimant lists the claims again after its PUT, and gives up if it is not alone.
        lists_again_after_its_claim,
        /// A claim that begins below another one and reaches into it is not alone.
        sees_claims_that_begin_below,
        /// A claim that begins inside of another one is not alone.
        sees_claims_that_begin_above,
        /// A claimant reads the floor after that, and gives up if its claim is below it.
        reads_the_floor_last,
        /// The sweeper publishes a floor before it removes the claims below it.
        publishes_the_floor_before_it_sweeps,
    }
}

const CLAIMANTS_MAX: usize = 3;
/// A claimant whose PUT got no answer, or who is not alone, claims once more under a new id.
const TRIES: u8 = 2;
const IDS: u32 = 6;

/// A set of claims: bit `number * IDS + id`.
type Claims = u64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Step {
    #[default]
    Idle,
    Listed,
    Sent,
    Answered,
    Alone,
    Owner,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Claimant {
    step: Step,
    number: u8,
    tries: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    claimants: [Claimant; CLAIMANTS_MAX],
    /// The claims that a LIST returns.
    visible: Claims,
    /// The claims that were sent, and are seen later or never.
    late: Claims,
    owned: Claims,
    /// No number below it is claimed again.
    floor: u8,
    /// The sweeper has done the first of its two steps.
    is_sweeping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    List(usize, u8),
    Put(usize),
    Answer(usize),
    LoseAnswer(usize),
    ListAgain(usize),
    ReadFloor(usize),
    Land(u32),
    PublishFloor,
    Sweep,
}

#[derive(Clone, Debug)]
struct Setup {
    rules: Rules,
    claimant_count: usize,
    number_max: u8,
    /// The numbers that one claim takes.
    span: u8,
    /// A claimant adds a random number up to this one, so that two seldom meet.
    offset_max: u8,
}

fn bit(number: u8, id: u32) -> u32 {
    u32::from(number) * IDS + id
}

/// The numbers of the first claims of a set, one for each claim.
fn numbers(claims: Claims) -> impl Iterator<Item = u8> {
    let bits = (0..Claims::BITS).filter(move |bit| claims >> bit & 1 != 0);
    bits.map(|bit| u8::try_from(bit / IDS).unwrap())
}

impl Setup {
    fn single_numbers() -> Self {
        Self { rules: Rules::all(), claimant_count: 3, number_max: 4, span: 1, offset_max: 0 }
    }

    fn spans() -> Self {
        Self { rules: Rules::all(), claimant_count: 2, number_max: 7, span: 2, offset_max: 1 }
    }

    fn id(claimant: usize, tries: u8) -> u32 {
        u32::try_from(claimant).unwrap() * u32::from(TRIES) + u32::from(tries)
    }

    fn own(&self, state: &State, claimant: usize) -> Claims {
        let Claimant { number, tries, .. } = state.claimants[claimant];
        1 << bit(number, Self::id(claimant, tries))
    }

    /// No other claim takes one of the numbers, as far as the rules let the claimant see.
    fn is_alone(&self, number: u8, others: Claims) -> bool {
        let overlaps = |other: u8| {
            let is_seen = other == number
                || other < number && self.rules.sees_claims_that_begin_below
                || other > number && self.rules.sees_claims_that_begin_above;
            is_seen && number.abs_diff(other) < self.span
        };
        !numbers(others).any(overlaps)
    }

    /// Claims below this floor are removed: all of their numbers are below it.
    fn below(&self, floor: u8) -> Claims {
        let ends = (0..=floor.saturating_sub(self.span)).filter(|number| number + self.span <= floor);
        ends.fold(0, |all, number| all | ((1 << IDS) - 1) << bit(number, 0))
    }

    fn claim_again(claimant: &mut Claimant) {
        *claimant = Claimant { tries: claimant.tries + 1, ..Claimant::default() };
    }

    fn claimant_actions(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        match state.claimants[index].step {
            Step::Idle if state.claimants[index].tries < TRIES => {
                let ends = numbers(state.visible).map(|number| number + self.span);
                let free = ends.chain([state.floor]).max().unwrap();
                let starts =
                    (free..=free + self.offset_max).filter(|start| start + self.span <= self.number_max + 1);
                actions.extend(starts.map(|start| Action::List(index, start)));
            }
            Step::Idle | Step::Owner => {}
            Step::Listed => actions.push(Action::Put(index)),
            Step::Sent => {
                // The PUT may be seen before its answer is lost.
                if state.late & self.own(state, index) != 0 {
                    actions.push(Action::Answer(index));
                }
                actions.push(Action::LoseAnswer(index));
            }
            Step::Answered => actions.push(Action::ListAgain(index)),
            Step::Alone => actions.push(Action::ReadFloor(index)),
        }
    }

    fn take_claimant(&self, state: &mut State, action: Action) {
        match action {
            Action::List(index, number) => {
                state.claimants[index].number = number;
                state.claimants[index].step = Step::Listed;
            }
            Action::Put(index) => {
                state.late |= self.own(state, index);
                state.claimants[index].step = Step::Sent;
            }
            Action::Answer(index) => {
                let own = self.own(state, index);
                state.late &= !own;
                state.visible |= own;
                state.claimants[index].step = Step::Answered;
            }
            Action::ListAgain(index) => {
                let others = state.visible & !self.own(state, index);
                let is_alone = self.is_alone(state.claimants[index].number, others);
                let claimant = &mut state.claimants[index];
                if is_alone || !self.rules.lists_again_after_its_claim {
                    claimant.step = Step::Alone;
                } else {
                    Self::claim_again(claimant);
                }
            }
            Action::ReadFloor(index) => {
                let own = self.own(state, index);
                let claimant = &mut state.claimants[index];
                if state.floor > claimant.number && self.rules.reads_the_floor_last {
                    Self::claim_again(claimant);
                } else {
                    claimant.step = Step::Owner;
                    state.owned |= own;
                }
            }
            Action::LoseAnswer(index) => Self::claim_again(&mut state.claimants[index]),
            other => unreachable!("{other:?} is no step of a claimant"),
        }
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let claimants = [Claimant::default(); CLAIMANTS_MAX];
        vec![State { claimants, visible: 0, late: 0, owned: 0, floor: 1, is_sweeping: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for index in 0..self.claimant_count {
            self.claimant_actions(state, index, actions);
        }
        let in_flight = (0..self.claimant_count).filter(|index| state.claimants[*index].step == Step::Sent);
        let in_flight = in_flight.fold(0, |all, index| all | self.own(state, index));
        let given_up = state.late & !in_flight;
        actions.extend((0..Claims::BITS).filter(|bit| given_up >> bit & 1 != 0).map(Action::Land));
        // The floor rises past numbers that have an owner.
        let is_first_published = self.rules.publishes_the_floor_before_it_sweeps;
        let has_owner = numbers(state.owned).any(|number| number == state.floor);
        match (state.is_sweeping, is_first_published) {
            (false, true) if has_owner => actions.push(Action::PublishFloor),
            (false, false) if has_owner => actions.push(Action::Sweep),
            (true, true) => actions.push(Action::Sweep),
            (true, false) => actions.push(Action::PublishFloor),
            _ => {}
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let is_first_published = self.rules.publishes_the_floor_before_it_sweeps;
        match action {
            Action::Land(bit) => {
                next.late &= !(1 << bit);
                next.visible |= 1 << bit;
            }
            Action::PublishFloor => {
                next.floor += self.span;
                next.is_sweeping = is_first_published;
            }
            Action::Sweep => {
                let floor = if is_first_published { state.floor } else { state.floor + self.span };
                next.visible &= !self.below(floor);
                next.is_sweeping = !is_first_published;
            }
            _ => self.take_claimant(&mut next, action),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("no number has two owners", |setup: &Self, state: &State| {
            let owned: Vec<u8> = numbers(state.owned).collect();
            owned.windows(2).all(|pair| pair[1] - pair[0] >= setup.span)
        })]
    }
}

#[test]
fn no_number_has_two_owners() {
    println!("3 claimants, 4 numbers: {} states", all_states(Setup::single_numbers()));
    println!("2 claimants, claims of 2 numbers: {} states", all_states(Setup::spans()));
}

#[test]
fn each_rule_for_claims_is_needed() {
    let losses = [
        ("lists_again_after_its_claim", Setup::single_numbers(), 10),
        ("sees_claims_that_begin_below", Setup::spans(), 10),
        ("sees_claims_that_begin_above", Setup::spans(), 10),
        ("reads_the_floor_last", Setup::single_numbers(), 12),
        ("publishes_the_floor_before_it_sweeps", Setup::single_numbers(), 11),
    ];
    assert_eq!(losses.each_ref().map(|(rule, ..)| *rule), Rules::NAMES);
    for (rule, setup, steps) in losses {
        let path = shortest_loss(Setup { rules: Rules::without(rule), ..setup }).expect(rule);
        println!("without {rule}: two owners after {} steps: {path:?}", path.len());
        assert_eq!(path.len(), steps, "{rule}");
    }
}
