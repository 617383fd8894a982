//! The places that have the same objects: how fast each is, which one rests after a failure, and
//! which one is asked next. Pure: the time is an argument, measured from any fixed moment.

use std::time::Duration;

/// A mirror, counted from 0 in the order in which the mirrors were named.
pub(crate) type ServerNumber = usize;

/// The pause after the first failure. Each further one is twice as long.
const FIRST_REST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(300);
/// A server that asks for a longer pause gets this one.
const ASKED_REST_MAX: Duration = Duration::from_secs(60);
/// A request that a reader waits for is sent to a resting mirror after this time, if there is no
/// other one.
const DEMAND_REST_MAX: Duration = Duration::from_secs(5);
/// An answer is never called late before this time.
const LATE_MIN: Duration = Duration::from_millis(500);
/// The weight of the newest measurement in a moving average.
const NEWEST: f64 = 0.25;
/// The rate of a shorter transfer says little.
const RATE_BYTES_MIN: u64 = 256 << 10;

/// The mirrors of a publication.
#[derive(Debug)]
pub(crate) struct ServerRanking(Vec<ServerState>);

#[derive(Debug, Default, Clone)]
struct ServerState {
    /// The failures since the last success.
    failures: u32,
    failed_at: Duration,
    /// The end of the pause that the server has asked for.
    asked_until: Duration,
    in_flight: u32,
    /// It has sent wrong bytes, so it is the last choice for the rest of the session.
    has_lied: bool,
    /// The usual seconds until the first piece of an answer.
    first_piece: Option<f64>,
    /// The usual bytes a second.
    rate: Option<f64>,
}

/// The mirror for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerChoice {
    Ask(ServerNumber),
    /// All of them rest, or are being probed. Ask again at this time.
    Wait(Duration),
    /// None is permitted.
    Nobody,
}

impl ServerRanking {
    pub(crate) fn new(count: usize) -> Self {
        Self(vec![ServerState::default(); count])
    }

    /// Chooses the fastest mirror that does not rest and for which `is_permitted` returns true. One
    /// without a measurement comes after those with one, in the order in which they were named.
    pub(crate) fn choose(
        &self,
        now: Duration,
        is_demand: bool,
        is_permitted: impl Fn(ServerNumber) -> bool,
    ) -> ServerChoice {
        let permitted: Vec<_> =
            self.0.iter().enumerate().filter(|(number, _)| is_permitted(*number)).collect();
        // A mirror that has failed is probed by one request at a time.
        let ready =
            permitted.iter().filter(|(_, mirror)| mirror.rests_until() <= now && !mirror.is_probed()).min_by(
                |(first, one), (second, other)| one.cost().total_cmp(&other.cost()).then(first.cmp(second)),
            );
        if let Some((number, _)) = ready {
            return ServerChoice::Ask(*number);
        }
        let until = permitted.iter().map(|(_, mirror)| match mirror.is_probed() {
            true => now.saturating_add(DEMAND_REST_MAX),
            false if is_demand => mirror.rests_until().min(mirror.failed_at.saturating_add(DEMAND_REST_MAX)),
            false => mirror.rests_until(),
        });
        match until.enumerate().min_by_key(|(_, until)| *until) {
            None => ServerChoice::Nobody,
            Some((place, until)) if until <= now => {
                permitted.get(place).map_or(ServerChoice::Nobody, |(number, _)| ServerChoice::Ask(*number))
            }
            Some((_, until)) => ServerChoice::Wait(until),
        }
    }

    pub(crate) fn begin(&mut self, mirror: ServerNumber) {
        if let Some(mirror) = self.0.get_mut(mirror) {
            mirror.in_flight = mirror.in_flight.saturating_add(1);
        }
    }

    pub(crate) fn end(&mut self, mirror: ServerNumber) {
        if let Some(mirror) = self.0.get_mut(mirror) {
            mirror.in_flight = mirror.in_flight.saturating_sub(1);
        }
    }

    /// Records the time between a request and the first piece of its answer.
    pub(crate) fn first_piece(&mut self, mirror: ServerNumber, after: Duration) {
        if let Some(mirror) = self.0.get_mut(mirror) {
            average(&mut mirror.first_piece, after.as_secs_f64());
        }
    }

    /// Records a whole answer, whose bytes came in `time` after its first piece.
    pub(crate) fn succeeded(&mut self, mirror: ServerNumber, bytes: u64, time: Duration) {
        let Some(mirror) = self.0.get_mut(mirror) else { return };
        mirror.failures = 0;
        mirror.asked_until = Duration::ZERO;
        if bytes >= RATE_BYTES_MIN && !time.is_zero() {
            #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact bytes")]
            average(&mut mirror.rate, bytes as f64 / time.as_secs_f64());
        }
    }

    /// Records an answer that has not all come in `time` after its first piece.
    pub(crate) fn late(&mut self, mirror: ServerNumber, bytes: u64, time: Duration) {
        let Some(mirror) = self.0.get_mut(mirror) else { return };
        if bytes >= RATE_BYTES_MIN && !time.is_zero() {
            #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact bytes")]
            let at_most = bytes as f64 / time.as_secs_f64();
            mirror.rate = Some(mirror.rate.map_or(at_most, |rate| rate.min(at_most)));
        }
    }

    /// Records the pause that a server asks for. Requests that a reader waits for are sent earlier.
    pub(crate) fn asked_to_wait(&mut self, mirror: ServerNumber, pause: Duration, now: Duration) {
        if let Some(mirror) = self.0.get_mut(mirror) {
            let until = now.saturating_add(pause.min(ASKED_REST_MAX));
            mirror.asked_until = mirror.asked_until.max(until);
        }
    }

    /// Records the failure of a request, or an answer that is late. The mirror rests. Requests that
    /// had begun before the latest failure have failed with it: one connection may carry many.
    pub(crate) fn failed(&mut self, mirror: ServerNumber, begun: Duration, now: Duration) {
        if let Some(mirror) = self.0.get_mut(mirror)
            && (mirror.failures == 0 || begun > mirror.failed_at)
        {
            mirror.failures = mirror.failures.saturating_add(1);
            mirror.failed_at = now;
        }
    }

    /// Records wrong bytes. Returns true the first time.
    pub(crate) fn has_lied(&mut self, mirror: ServerNumber) -> bool {
        let Some(mirror) = self.0.get_mut(mirror) else { return false };
        !std::mem::replace(&mut mirror.has_lied, true)
    }

    /// Returns the time after which an answer of this length is late.
    pub(crate) fn late_after(&self, mirror: ServerNumber, bytes: u64) -> Duration {
        let Some(mirror) = self.0.get(mirror) else { return LATE_MIN };
        let seconds = 2.0 * mirror.seconds_for(bytes).unwrap_or(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(LATE_MIN).max(LATE_MIN)
    }
}

impl ServerState {
    fn rests_until(&self) -> Duration {
        match self.failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(before) => {
                let rest = FIRST_REST.saturating_mul(1 << before.min(16)).min(REST_MAX);
                self.failed_at.saturating_add(rest).max(self.asked_until)
            }
        }
    }

    fn is_probed(&self) -> bool {
        self.failures > 0 && self.in_flight > 0
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate needs no exact bytes")]
    fn seconds_for(&self, bytes: u64) -> Option<f64> {
        let transfer = self.rate.map_or(0.0, |rate| bytes as f64 / rate.max(1.0));
        Some(self.first_piece? + transfer)
    }

    fn cost(&self) -> f64 {
        const UNKNOWN: f64 = 1e6;
        const LIAR: f64 = 1e12;
        let usual = self.seconds_for(RATE_BYTES_MIN).unwrap_or(UNKNOWN);
        let busy = usual * f64::from(self.in_flight) / 4.0;
        usual + busy + if self.has_lied { LIAR } else { 0.0 }
    }
}

fn average(value: &mut Option<f64>, newest: f64) {
    *value = Some(value.map_or(newest, |old| old + (newest - old) * NEWEST));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: f64) -> Duration {
        Duration::from_secs_f64(count)
    }

    fn ask(mirrors: &ServerRanking, now: f64) -> ServerChoice {
        mirrors.choose(seconds(now), true, |_| true)
    }

    #[test]
    fn the_first_one_is_asked_until_another_is_known_to_be_faster() {
        let mut mirrors = ServerRanking::new(3);
        assert_eq!(ask(&mirrors, 0.0), ServerChoice::Ask(0));
        mirrors.first_piece(0, seconds(0.2));
        assert_eq!(ask(&mirrors, 0.0), ServerChoice::Ask(0));
        mirrors.first_piece(2, seconds(0.1));
        assert_eq!(ask(&mirrors, 0.0), ServerChoice::Ask(2));
        // A low rate weighs more than an early first piece.
        mirrors.succeeded(2, 1 << 20, seconds(10.0));
        assert_eq!(ask(&mirrors, 0.0), ServerChoice::Ask(0));
        assert_eq!(mirrors.choose(seconds(0.0), true, |number| number == 1), ServerChoice::Ask(1));
        assert_eq!(mirrors.choose(seconds(0.0), true, |_| false), ServerChoice::Nobody);
        assert!(mirrors.late_after(0, 0) == LATE_MIN && mirrors.late_after(2, 1 << 20) > seconds(20.0));
    }

    #[test]
    fn a_late_answer_lowers_the_rate_at_once() {
        let mut mirrors = ServerRanking::new(2);
        for mirror in 0..2 {
            mirrors.first_piece(mirror, seconds(0.1));
            mirrors.succeeded(mirror, 1 << 20, seconds(0.1));
        }
        assert_eq!(ask(&mirrors, 0.0), ServerChoice::Ask(0));
        mirrors.late(0, 1 << 20, seconds(5.0));
        assert_eq!(ask(&mirrors, 0.0), ServerChoice::Ask(1));
        // It says nothing of the rate if it is later than a faster one would be.
        mirrors.late(1, 1 << 20, seconds(0.01));
        assert_eq!(ask(&mirrors, 0.0), ServerChoice::Ask(1));
    }

    /// A request that fails at once.
    fn fail(mirrors: &mut ServerRanking, mirror: ServerNumber, now: f64) {
        mirrors.failed(mirror, seconds(now), seconds(now));
    }

    #[test]
    fn a_failure_costs_a_rest_that_grows() {
        let mut mirrors = ServerRanking::new(2);
        fail(&mut mirrors, 0, 10.0);
        assert_eq!(ask(&mirrors, 10.5), ServerChoice::Ask(1));
        assert_eq!(ask(&mirrors, 11.0), ServerChoice::Ask(0));
        for now in [18.0, 19.0, 20.0] {
            fail(&mut mirrors, 0, now);
        }
        fail(&mut mirrors, 1, 20.0);
        assert_eq!(ask(&mirrors, 20.5), ServerChoice::Wait(seconds(21.0)));
        for now in [20.8, 20.9, 21.0] {
            fail(&mut mirrors, 1, now);
        }
        // A reader that waits has an answer soon after the mirror is back. Nobody else asks it.
        assert_eq!(ask(&mirrors, 21.0), ServerChoice::Wait(seconds(25.0)));
        assert_eq!(ask(&mirrors, 25.0), ServerChoice::Ask(0));
        assert_eq!(mirrors.choose(seconds(25.0), false, |_| true), ServerChoice::Wait(seconds(28.0)));
        mirrors.succeeded(0, 1, seconds(0.1));
        assert_eq!(ask(&mirrors, 25.0), ServerChoice::Ask(0));
    }

    #[test]
    fn a_server_that_asks_for_a_pause_gets_it_up_to_a_minute() {
        for (asked, until) in [(15.0, 25.0), (600.0, 70.0)] {
            let mut mirrors = ServerRanking::new(1);
            fail(&mut mirrors, 0, 10.0);
            mirrors.asked_to_wait(0, seconds(asked), seconds(10.0));
            let prefetch = |now| mirrors.choose(seconds(now), false, |_| true);
            assert_eq!(prefetch(12.0), ServerChoice::Wait(seconds(until)));
            assert_eq!(prefetch(until), ServerChoice::Ask(0));
            // A reader has its own patience.
            assert_eq!(ask(&mirrors, 12.0), ServerChoice::Wait(seconds(15.0)));
            assert_eq!(ask(&mirrors, 15.0), ServerChoice::Ask(0));
            mirrors.succeeded(0, 1, seconds(0.1));
            assert_eq!(mirrors.choose(seconds(15.0), false, |_| true), ServerChoice::Ask(0));
        }
    }

    #[test]
    fn requests_of_one_broken_connection_are_one_failure() {
        let mut mirrors = ServerRanking::new(1);
        for number in 0..32 {
            mirrors.failed(0, seconds(9.0), seconds(10.0 + f64::from(number) / 1000.0));
        }
        assert_eq!(ask(&mirrors, 10.9), ServerChoice::Wait(seconds(11.0)));
        assert_eq!(ask(&mirrors, 11.0), ServerChoice::Ask(0));
        // The next request fails as well.
        mirrors.failed(0, seconds(11.0), seconds(12.0));
        assert_eq!(ask(&mirrors, 13.9), ServerChoice::Wait(seconds(14.0)));
    }

    #[test]
    fn a_mirror_that_has_failed_is_probed_by_one_request() {
        let mut mirrors = ServerRanking::new(1);
        fail(&mut mirrors, 0, 0.0);
        assert_eq!(ask(&mirrors, 1.0), ServerChoice::Ask(0));
        mirrors.begin(0);
        assert_eq!(ask(&mirrors, 1.0), ServerChoice::Wait(seconds(6.0)));
        mirrors.end(0);
        mirrors.succeeded(0, 1, seconds(0.0));
        for _ in 0..5 {
            assert_eq!(ask(&mirrors, 1.0), ServerChoice::Ask(0));
            mirrors.begin(0);
        }
    }

    #[test]
    fn a_liar_is_the_last_choice() {
        let mut mirrors = ServerRanking::new(2);
        mirrors.first_piece(0, seconds(0.01));
        assert!(mirrors.has_lied(0) && !mirrors.has_lied(0));
        assert_eq!(ask(&mirrors, 0.0), ServerChoice::Ask(1));
        fail(&mut mirrors, 1, 0.0);
        assert_eq!(ask(&mirrors, 0.0), ServerChoice::Ask(0));
    }
}
