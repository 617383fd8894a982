use proptest::prelude::*;

use super::*;

const PLAIN: ServerTraits = ServerTraits { knows_ranges: true, multiplexes: false };
const MULTIPLEXING: ServerTraits = ServerTraits { multiplexes: true, ..PLAIN };

fn with_connections(mirror_count: usize, connections: usize) -> Schedule {
    Schedule::new(mirror_count, RequestLimits { connections, streams: 8 })
}

fn alone(number: u8) -> ObjectPart {
    ObjectPart::alone(ObjectName::of(&[number]), 1000)
}

/// Block `number` of a pack, of 1,000 bytes.
fn packed(pack: u8, number: u32) -> ObjectPart {
    let object = ObjectName::of(&[b'p', pack]);
    let name = ObjectName::of(&[&[pack][..], &number.to_le_bytes()].concat());
    ObjectPart { object, offset: number * 1000, bytes: 1000, name }
}

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn start(schedule: &mut Schedule, now: u64) -> FetchJob {
    match schedule.next(at(now), |_| PLAIN) {
        NextJob::Start(job) => job,
        other => panic!("{other:?}"),
    }
}

/// Ends a request as if all its blocks had come.
fn deliver(schedule: &mut Schedule, job: &FetchJob, now: u64) {
    schedule.first_piece(job.number, at(now));
    job.parts.iter().for_each(|part| schedule.drop_want(&part.name));
    schedule.succeeded(job, at(now), 1000);
}

#[test]
fn readers_come_first_and_have_a_connection_of_their_own() {
    let mut schedule = with_connections(1, 3);
    (0..4).for_each(|number| assert!(schedule.want(alone(number), Urgency::Fill)));
    schedule.want(alone(10), Urgency::Ahead);
    assert_eq!(start(&mut schedule, 0).parts, [alone(10)]);
    assert_eq!(start(&mut schedule, 0).parts, [alone(0)]);
    assert_eq!(schedule.next(at(0), |_| PLAIN), NextJob::Idle, "one is kept free");
    // A block that is wanted for the cache becomes urgent.
    assert!(!schedule.want(alone(3), Urgency::Demand));
    let job = start(&mut schedule, 0);
    assert_eq!((&job.parts[..], job.urgency), (&[alone(3)][..], Urgency::Demand));
    schedule.want(alone(11), Urgency::Demand);
    assert_eq!(schedule.next(at(0), |_| PLAIN), NextJob::Idle, "all are busy");
    deliver(&mut schedule, &job, 10);
    assert_eq!(start(&mut schedule, 10).parts, [alone(11)]);
    assert!(!schedule.is_requested(&alone(3).name) && schedule.is_requested(&alone(1).name));
}

#[test]
fn neighbours_in_a_pack_come_with_one_request() {
    let mut schedule = with_connections(1, 2);
    for number in [0, 1, 5, 300, 301] {
        schedule.want(packed(1, number), Urgency::Ahead);
    }
    schedule.want(packed(2, 2), Urgency::Ahead);
    schedule.want(packed(1, 5), Urgency::Demand);
    let job = start(&mut schedule, 0);
    // The gap between 5 and 300 is too wide.
    assert_eq!((job.span.clone(), job.parts.len()), (Some(0..6000), 3));
    deliver(&mut schedule, &job, 1);
    let job = start(&mut schedule, 1);
    assert_eq!(job.span, Some(300_000..302_000));
    deliver(&mut schedule, &job, 2);
    assert_eq!(start(&mut schedule, 2).parts, [packed(2, 2)]);
}

#[test]
fn without_ranges_the_whole_pack_comes() {
    let mut schedule = with_connections(1, 2);
    for number in [7, 300] {
        schedule.want(packed(1, number), Urgency::Demand);
    }
    schedule.want(alone(9), Urgency::Demand);
    let NextJob::Start(job) = schedule.next(at(0), |_| ServerTraits { knows_ranges: false, ..PLAIN }) else {
        panic!()
    };
    assert_eq!((job.span, job.parts), (None, vec![packed(1, 7), packed(1, 300)]));
    let NextJob::Start(job) = schedule.next(at(0), |_| ServerTraits { knows_ranges: false, ..PLAIN }) else {
        panic!()
    };
    assert_eq!(job.span, Some(0..1000), "an object by itself is requested as it is");
}

#[test]
fn many_requests_share_a_connection() {
    let begin = |schedule: &mut Schedule| match schedule.next(at(0), |_| MULTIPLEXING) {
        NextJob::Start(job) => Some(job),
        _ => None,
    };
    let mut schedule = with_connections(1, 3);
    (0..9).for_each(|number| assert!(schedule.want(alone(number), Urgency::Profile)));
    let jobs: Vec<_> = std::iter::from_fn(|| begin(&mut schedule)).collect();
    assert_eq!(jobs.len(), 7, "one of 8 streams is kept free");
    schedule.want(alone(20), Urgency::Demand);
    assert_eq!(begin(&mut schedule).unwrap().parts, [alone(20)]);
    assert_eq!(begin(&mut schedule), None);

    // Long requests are as few as with connections of their own.
    let mut schedule = with_connections(1, 3);
    for pack in 0..9 {
        schedule.want(ObjectPart { bytes: SPAN_BYTES_MAX, ..packed(pack, 0) }, Urgency::Profile);
    }
    let jobs: Vec<_> = std::iter::from_fn(|| begin(&mut schedule)).collect();
    assert_eq!(jobs.len(), 2);
    schedule.want(alone(20), Urgency::Demand);
    assert_eq!(begin(&mut schedule).unwrap().parts, [alone(20)]);
}

#[test]
fn each_protocol_has_a_limit() {
    let mut schedule = with_connections(2, 2);
    let traits = |mirror| if mirror == 0 { MULTIPLEXING } else { PLAIN };
    for number in 0..12 {
        schedule.want(alone(number), Urgency::Demand);
    }
    let next = |schedule: &mut Schedule| match schedule.next(at(0), traits) {
        NextJob::Start(job) => Some(job.mirror),
        _ => None,
    };
    let asked: Vec<_> = std::iter::from_fn(|| next(&mut schedule)).collect();
    let count = |mirror| asked.iter().filter(|other| **other == mirror).count();
    assert_eq!((count(0), count(1)), (8, 2), "{asked:?}");
}

#[test]
fn a_late_answer_is_requested_elsewhere_too() {
    let mut schedule = with_connections(2, 4);
    schedule.want(alone(1), Urgency::Demand);
    let first = start(&mut schedule, 0);
    assert_eq!((first.mirror, schedule.late_at(&alone(1).name)), (0, Some(at(500))));
    assert!(!schedule.hedge(&alone(1).name, at(499)) && schedule.hedge(&alone(1).name, at(500)));
    assert!(!schedule.hedge(&alone(1).name, at(9999)), "once");
    let second = start(&mut schedule, 500);
    assert_eq!((second.mirror, &second.parts), (1, &first.parts));
    deliver(&mut schedule, &second, 600);
    assert!(!schedule.is_requested(&alone(1).name));
    // The first one ends without effect. Its mirror rests, and the other one is asked.
    assert_eq!(schedule.failed(&first, at(700)), []);
    schedule.want(alone(2), Urgency::Demand);
    assert_eq!(start(&mut schedule, 800).mirror, 1);
    // A single mirror has nobody to help it.
    let mut schedule = with_connections(1, 4);
    schedule.want(alone(1), Urgency::Demand);
    start(&mut schedule, 0);
    assert_eq!(schedule.late_at(&alone(1).name), None);
}

#[test]
fn the_rest_of_a_late_answer_is_requested_elsewhere_too() {
    let mut schedule = with_connections(2, 4);
    (0..5).for_each(|number| assert!(schedule.want(packed(0, number), Urgency::Profile)));
    let slow = start(&mut schedule, 0);
    assert_eq!((slow.mirror, slow.parts.len()), (0, 5));
    schedule.first_piece(slow.number, at(10));
    schedule.drop_want(&packed(0, 0).name);
    schedule.want(packed(0, 1), Urgency::Demand);
    assert_eq!(schedule.next(at(499), |_| PLAIN), NextJob::Idle);
    assert!(schedule.hedge(&packed(0, 1).name, at(500)));
    let job = start(&mut schedule, 500);
    assert_eq!((job.mirror, job.urgency), (1, Urgency::Demand));
    assert_eq!(job.parts, (1..5).map(|number| packed(0, number)).collect::<Vec<_>>());
    // No block of either answer is requested a third time.
    schedule.want(packed(0, 2), Urgency::Demand);
    assert!(!schedule.hedge(&packed(0, 2).name, at(9999)));
    assert_eq!(schedule.next(at(9999), |_| PLAIN), NextJob::Idle);
    // They are queued again if both of them fail.
    assert_eq!(schedule.failed(&slow, at(10_000)), []);
    assert_eq!(schedule.next(at(10_000), |_| PLAIN), NextJob::Idle);
    schedule.failed(&job, at(10_000));
    assert!(schedule.is_requested(&packed(0, 1).name) && schedule.is_requested(&packed(0, 2).name));
}

/// Requests a block that comes, so that the mirror does not rest any more.
fn deliver_one(schedule: &mut Schedule, now: u64) {
    schedule.want(alone(99), Urgency::Demand);
    let job = start(schedule, now);
    deliver(schedule, &job, now);
}

#[test]
fn after_two_failures_only_readers_matter() {
    let mut schedule = with_connections(2, 3);
    schedule.want(alone(1), Urgency::Ahead);
    let first = start(&mut schedule, 0);
    assert_eq!(schedule.failed(&first, at(10)), []);
    let second = start(&mut schedule, 10);
    assert_eq!((first.mirror, second.mirror), (0, 1), "the other mirror is asked at once");
    assert_eq!(schedule.failed(&second, at(20)), [alone(1).name]);

    let mut schedule = with_connections(1, 3);
    schedule.want(alone(1), Urgency::Ahead);
    let job = start(&mut schedule, 0);
    assert_eq!(schedule.failed(&job, at(10)), []);
    let job = start(&mut schedule, 1010);
    assert_eq!(schedule.failed(&job, at(1011)), [alone(1).name]);
    deliver_one(&mut schedule, 3011);
    schedule.want(alone(2), Urgency::Demand);
    for (now, until) in [(4000, 5000), (5000, 7000), (7000, 11_000)] {
        let job = start(&mut schedule, now);
        assert_eq!(schedule.failed(&job, at(now)), []);
        assert!(schedule.is_requested(&alone(2).name));
        assert_eq!(schedule.next(at(now), |_| PLAIN), NextJob::WaitUntil(at(until)));
    }
    schedule.drop_want(&alone(2).name);
    assert_eq!(schedule.next(at(20_000), |_| PLAIN), NextJob::Idle);
}

#[test]
fn wrong_bytes_are_requested_elsewhere_and_then_once_more() {
    let mut schedule = with_connections(2, 3);
    schedule.want(alone(1), Urgency::Demand);
    let mut asked = Vec::new();
    for round in 0..4 {
        let job = start(&mut schedule, 0);
        asked.push(job.mirror);
        let is_last = schedule.refused(job.mirror, &alone(1).name, BlockRefusal::WrongBytes);
        assert_eq!(is_last, round == 3);
        if is_last {
            schedule.drop_want(&alone(1).name);
        }
        schedule.succeeded(&job, at(1), 1000);
    }
    assert_eq!(asked, [0, 1, 0, 1]);
    schedule.want(alone(2), Urgency::Demand);
    for mirror in [0, 1] {
        let job = start(&mut schedule, 0);
        assert_eq!(job.mirror, mirror);
        assert_eq!(schedule.refused(job.mirror, &alone(2).name, BlockRefusal::Missing), mirror == 1);
        schedule.succeeded(&job, at(1), 0);
    }
}

#[derive(Debug, Clone)]
enum ScheduleStep {
    Want(u8, u8),
    WantPacked(u8, u32),
    Begin,
    Deliver(usize),
    Fail(usize),
    Refuse(usize),
    Hedge(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = ScheduleStep> {
    prop_oneof![
        3 => (0_u8..20, 0_u8..4).prop_map(|(number, urgency)| ScheduleStep::Want(number, urgency)),
        2 => (0_u8..3, 0_u32..200).prop_map(|(pack, number)| ScheduleStep::WantPacked(pack, number)),
        6 => Just(ScheduleStep::Begin),
        3 => any::<usize>().prop_map(ScheduleStep::Deliver),
        2 => any::<usize>().prop_map(ScheduleStep::Fail),
        1 => any::<usize>().prop_map(ScheduleStep::Refuse),
        1 => (0_u8..20).prop_map(ScheduleStep::Hedge),
        2 => (0_u64..3000).prop_map(ScheduleStep::Wait),
    ]
}

proptest! {
    /// Requests stay bounded, and every reader is served as soon as mirrors answer.
    #[test]
    fn no_reader_is_forgotten(steps in proptest::collection::vec(step(), 0..200), mirror_count in 1_usize..4) {
        let mut schedule = with_connections(mirror_count, 3);
        let (mut now, mut running): (u64, Vec<FetchJob>) = (0, Vec::new());
        let begin = |schedule: &mut Schedule, running: &mut Vec<FetchJob>, now: u64| {
            let traits = |mirror| ServerTraits { knows_ranges: mirror != 1, multiplexes: mirror == 2 };
            if let NextJob::Start(job) = schedule.next(at(now), traits) {
                let alike = running.iter().filter(|other| (other.mirror == 2) == (job.mirror == 2));
                let (alike, limit) = (alike.collect::<Vec<_>>(), if job.mirror == 2 { 8 } else { 3 });
                assert!(!job.parts.is_empty() && alike.len() < limit, "{job:?}");
                let span = job.span.clone().unwrap_or(0..u32::MAX);
                for part in &job.parts {
                    assert!(part.object == job.object, "{job:?}");
                    assert!(span.start <= part.offset && part.offset + part.bytes <= span.end, "{job:?}");
                }
                let reserved = alike.iter().filter(|other| other.urgency != Urgency::Demand).count();
                assert!(job.urgency == Urgency::Demand || reserved + 1 < limit, "none is left for readers");
                running.push(job);
            }
        };
        for step in steps {
            match step {
                ScheduleStep::Want(number, urgency) => {
                    schedule.want(alone(number), URGENCIES[usize::from(urgency)]);
                }
                ScheduleStep::WantPacked(pack, number) => {
                    schedule.want(packed(pack, number), Urgency::Demand);
                }
                ScheduleStep::Begin => begin(&mut schedule, &mut running, now),
                ScheduleStep::Deliver(at) if !running.is_empty() => {
                    let job = running.remove(at % running.len());
                    deliver(&mut schedule, &job, now);
                }
                ScheduleStep::Fail(which) if !running.is_empty() => {
                    let job = running.remove(which % running.len());
                    schedule.failed(&job, at(now));
                }
                ScheduleStep::Refuse(which) if !running.is_empty() => {
                    let job = running.remove(which % running.len());
                    for part in &job.parts {
                        if schedule.refused(job.mirror, &part.name, BlockRefusal::WrongBytes) {
                            schedule.drop_want(&part.name);
                        }
                    }
                    schedule.succeeded(&job, at(now), 1000);
                }
                ScheduleStep::Hedge(number) => {
                    schedule.hedge(&alone(number).name, at(now));
                }
                ScheduleStep::Wait(time) => now += time,
                _ => {}
            }
        }
        // From now on every request is answered.
        for _ in 0..1000 {
            begin(&mut schedule, &mut running, now);
            if let Some(job) = running.pop() {
                deliver(&mut schedule, &job, now);
            }
            now += 1000;
        }
        prop_assert_eq!(schedule.wants.len(), 0);
        prop_assert_eq!(schedule.next(at(now), |_| PLAIN), NextJob::Idle);
    }
}
