//! The answer for one workload, table and level, and its robustness: cost against each part of the
//! level, the range of each input in which the architecture stays the same, and the changes of
//! prices that flip it (Table 2 of scc's article).

use serde::Serialize;

use super::candidate::{Architecture, Market, Priced, Setting, StoreDesign};
use super::demand::{Demand, StoreNeeds};
use super::inputs::{HardwareTable, ServiceLevel, WorkloadProfile};
use super::search::{FoundDesign, candidate_count, cheapest, cheapest_of_each};
use crate::chart::{ChartLine, ChartPanel, chart};
use crate::plan::Processor;

/// The designs of other architectures that are listed.
const OTHERS_MAX: usize = 5;
/// Steps of a curve to each side of the given level, and the steps in a factor of ten.
const CURVE_STEPS: i32 = 20;
const CURVE_STEPS_IN_TEN: f64 = 10.0;
/// An input is varied by this factor a step, up to a factor of a hundred, and then the edge is
/// bisected.
const RANGE_FACTOR: f64 = 1.25;
const RANGE_STEPS: i32 = 21;
const RANGE_BISECTIONS: usize = 8;
/// The largest factor of a price that is tried.
const PRICE_FACTOR_MAX: f64 = 100.0;
/// Upper bound on the breakpoints of one price.
const BREAKPOINTS_MAX: usize = 64;

/// The cheapest design, and its robustness.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DesignStudy {
    pub workload: WorkloadProfile,
    pub level: ServiceLevel,
    /// The name of the hardware table.
    pub table: String,
    pub currency: String,
    pub needs: StoreNeeds,
    /// Candidates with enough space for the data.
    pub candidates: u64,
    /// The cheapest design that meets the level; `None` if none does.
    pub best: Option<StoreDesign>,
    /// The cheapest designs of the next cheapest architectures.
    pub others: Vec<StoreDesign>,
    /// If no design meets the level: the parts of the level without which one would, each with its
    /// cost.
    pub obstacles: Vec<LevelObstacle>,
    pub curves: Vec<LevelCurve>,
    pub ranges: Vec<AttributeRange>,
    pub flips: Vec<PriceFlip>,
    pub datasets: Vec<DatasetFlip>,
}

/// A part of the level that no design meets together with the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelObstacle {
    /// `snapshot_hours`
    pub attribute: &'static str,
    /// The cost of the cheapest design that meets the rest.
    pub cost: f64,
}

/// The cost of the cheapest design against one part of the level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelCurve {
    /// `snapshot_hours`
    pub attribute: &'static str,
    pub unit: &'static str,
    /// From the laxest value to the strictest.
    pub points: Vec<LevelPoint>,
}

/// One value of a part of the level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelPoint {
    pub value: f64,
    /// `None` if no design meets this value.
    pub cost: Option<f64>,
    /// The kinds of parts of the cheapest design.
    pub architecture: Option<String>,
}

/// The range of an input in which the cheapest design has the same architecture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttributeRange {
    pub attribute: &'static str,
    pub value: f64,
    /// `None` if it stays the same down to a hundredth of the value.
    pub lowest: Option<f64>,
    /// `None` if it stays the same up to a hundred times the value, or up to the largest one.
    pub highest: Option<f64>,
}

/// The change of one price, down or up, with which another architecture becomes cheapest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PriceFlip {
    /// The thing whose price changes.
    pub thing: String,
    pub price: f64,
    /// The price at which the designs cost the same.
    pub flips_at: f64,
    /// The change, as a share of the price: -0.2 is a fall by 20 %.
    pub change: f64,
    pub to: String,
}

/// The smallest fall of one price that moves a dataset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DatasetFlip {
    /// `arenas`, `index` or `cache`.
    pub dataset: &'static str,
    /// The thing whose price falls; `None` if no fall of one price moves the dataset.
    pub thing: Option<String>,
    /// The change, as a share of the price.
    pub change: Option<f64>,
}

/// The input of a search.
#[derive(Clone)]
struct Question<'a> {
    profile: WorkloadProfile,
    level: ServiceLevel,
    table: &'a HardwareTable,
    processor: Processor,
}

impl Question<'_> {
    fn demand(&self) -> Demand {
        Demand::of(&self.profile, &self.level, &self.processor)
    }

    fn with<T>(&self, scaled: Option<(Priced, f64)>, ask: impl FnOnce(&Setting<'_>) -> T) -> T {
        let demand = self.demand();
        let market = Market::of(self.table, self.level.years, scaled);
        ask(&Setting { demand: &demand, table: self.table, market: &market, level: &self.level })
    }

    fn cheapest(&self) -> Option<FoundDesign> {
        self.with(None, cheapest)
    }

    /// Returns the cost of a design if one price is multiplied by a factor.
    fn cost(&self, found: &FoundDesign, thing: Priced, factor: f64) -> f64 {
        let count = match thing {
            Priced::Core => found.verdict.cores,
            Priced::Memory => found.verdict.memory_units,
            Priced::Drive(drive) => found.candidate.drive_count(drive),
            Priced::Server(server) => u32::from(found.candidate.server == server),
        };
        let price = self.price(thing);
        // The verdict has the cost with the table's own prices.
        self.base_cost(found) + price * (factor - 1.0) * f64::from(count)
    }

    fn base_cost(&self, found: &FoundDesign) -> f64 {
        let verdict = self.with(None, |setting| setting.judge(&found.candidate));
        verdict.map_or(f64::INFINITY, |verdict| verdict.cost)
    }

    fn price(&self, thing: Priced) -> f64 {
        match thing {
            Priced::Core => self.table.core.price,
            Priced::Memory => self.table.memory.price,
            Priced::Drive(drive) => self.table.drives[drive].price,
            Priced::Server(server) => self.table.servers[server].price,
        }
    }

    fn name(&self, thing: Priced) -> String {
        match thing {
            Priced::Core => "core".into(),
            Priced::Memory => self.table.memory.name.clone(),
            Priced::Drive(drive) => self.table.drives[drive].name.clone(),
            Priced::Server(server) => self.table.servers[server].name.clone(),
        }
    }

    fn things(&self) -> Vec<Priced> {
        let drives = (0..self.table.drives.len()).map(Priced::Drive);
        let servers = (0..self.table.servers.len()).map(Priced::Server);
        let all = drives.chain([Priced::Memory, Priced::Core]).chain(servers);
        all.filter(|thing| self.price(*thing) > 0.0).collect()
    }
}

/// Finds the cheapest design, and varies each input and price around it.
#[must_use]
pub fn study_designs(
    profile: &WorkloadProfile,
    table: &HardwareTable,
    level: &ServiceLevel,
    processor: &Processor,
) -> DesignStudy {
    let question = Question { profile: profile.clone(), level: *level, table, processor: *processor };
    let (candidates, all) =
        question.with(None, |setting| (candidate_count(setting), cheapest_of_each(setting)));
    let describe = |found: &FoundDesign| {
        question.with(None, |setting| setting.describe(&found.candidate, &found.verdict))
    };
    let best = all.first();
    let (flips, datasets) = best.map(|best| flips(&question, best)).unwrap_or_default();
    DesignStudy {
        workload: profile.clone(),
        level: *level,
        table: table.name.clone(),
        currency: table.currency.clone(),
        needs: StoreNeeds::of(profile, level.years),
        candidates,
        best: best.map(describe),
        others: all.iter().skip(1).take(OTHERS_MAX).map(describe).collect(),
        obstacles: if best.is_none() { obstacles(&question) } else { Vec::new() },
        curves: LEVEL_ATTRIBUTES.iter().map(|attribute| curve(&question, attribute)).collect(),
        ranges: best.map(|best| ranges(&question, &best.candidate.architecture())).unwrap_or_default(),
        flips,
        datasets,
    }
}

/// An input that can be varied.
struct Attribute {
    name: &'static str,
    unit: &'static str,
    get: fn(&Question<'_>) -> f64,
    set: fn(&mut Question<'_>, f64),
    most: f64,
}

/// The parts of the level. A larger restore rate is stricter, and so are shorter times.
const LEVEL_ATTRIBUTES: [Attribute; 3] = [
    Attribute {
        name: "snapshot_hours",
        unit: "hours",
        get: |question| question.level.snapshot_hours,
        set: |question, value| question.level.snapshot_hours = value,
        most: f64::INFINITY,
    },
    Attribute {
        name: "restore_bytes_per_second",
        unit: "bytes a second",
        get: |question| question.level.restore_bytes_per_second,
        set: |question, value| question.level.restore_bytes_per_second = value,
        most: f64::INFINITY,
    },
    Attribute {
        name: "look_ms",
        unit: "ms",
        get: |question| question.level.look_ms,
        set: |question, value| question.level.look_ms = value,
        most: f64::INFINITY,
    },
];

const WORKLOAD_ATTRIBUTES: [Attribute; 8] = [
    Attribute {
        name: "source_bytes",
        unit: "bytes",
        get: |question| question.profile.source_bytes,
        set: |question, value| question.profile.source_bytes = value,
        most: f64::INFINITY,
    },
    Attribute {
        name: "growth_per_year",
        unit: "",
        get: |question| question.profile.growth_per_year,
        set: |question, value| question.profile.growth_per_year = value,
        most: 10.0,
    },
    Attribute {
        name: "changed_share",
        unit: "",
        get: |question| question.profile.changed_share,
        set: |question, value| question.profile.changed_share = value,
        most: 1.0,
    },
    Attribute {
        name: "kept_share",
        unit: "",
        get: |question| question.profile.kept_share,
        set: |question, value| question.profile.kept_share = value,
        most: 1.0,
    },
    Attribute {
        name: "stored_share",
        unit: "",
        get: |question| question.profile.stored_share,
        set: |question, value| question.profile.stored_share = value,
        most: 1.0,
    },
    Attribute {
        name: "looks_per_second",
        unit: "a second",
        get: |question| question.profile.looks_per_second,
        set: |question, value| question.profile.looks_per_second = value,
        most: f64::INFINITY,
    },
    Attribute {
        name: "hot_bytes",
        unit: "bytes",
        get: |question| question.profile.hot_bytes,
        set: |question, value| question.profile.hot_bytes = value,
        most: f64::INFINITY,
    },
    Attribute {
        name: "years",
        unit: "years",
        get: |question| question.level.years,
        set: |question, value| question.level.years = value,
        most: 200.0,
    },
];

/// Returns the cheapest design if one input has another value.
fn ask_with(question: &Question<'_>, attribute: &Attribute, value: f64) -> Option<FoundDesign> {
    let mut changed = question.clone();
    (attribute.set)(&mut changed, value);
    changed.cheapest()
}

fn obstacles(question: &Question<'_>) -> Vec<LevelObstacle> {
    let lax = |attribute: &Attribute| {
        let value = if attribute.name == "restore_bytes_per_second" { 0.0 } else { 1e12 };
        let found = ask_with(question, attribute, value)?;
        Some(LevelObstacle { attribute: attribute.name, cost: found.verdict.cost })
    };
    LEVEL_ATTRIBUTES.iter().filter_map(lax).collect()
}

fn curve(question: &Question<'_>, attribute: &Attribute) -> LevelCurve {
    let given = (attribute.get)(question);
    let is_rate = attribute.name == "restore_bytes_per_second";
    let point = |step: i32| {
        let factor = 10_f64.powf(f64::from(step) / CURVE_STEPS_IN_TEN);
        let value = if is_rate { given * factor } else { given / factor };
        let found = ask_with(question, attribute, value);
        let text = |found: &FoundDesign| {
            question.with(None, |setting| setting.architecture_text(&found.candidate.architecture()))
        };
        LevelPoint {
            value,
            cost: found.map(|found| found.verdict.cost),
            architecture: found.as_ref().map(text),
        }
    };
    // A rate of zero cannot be varied.
    let steps = if given > 0.0 { -CURVE_STEPS..=CURVE_STEPS } else { 0..=0 };
    LevelCurve { attribute: attribute.name, unit: attribute.unit, points: steps.map(point).collect() }
}

fn ranges(question: &Question<'_>, architecture: &Architecture) -> Vec<AttributeRange> {
    let all = WORKLOAD_ATTRIBUTES.iter().chain(&LEVEL_ATTRIBUTES);
    let varied = all.filter(|attribute| (attribute.get)(question) > 0.0);
    varied
        .map(|attribute| {
            let value = (attribute.get)(question);
            let is_same = |value: f64| {
                let found = ask_with(question, attribute, value);
                found.is_some_and(|found| found.candidate.architecture() == *architecture)
            };
            let edge = |factor: f64| {
                let mut last = value;
                for _ in 0..RANGE_STEPS {
                    if last >= attribute.most && factor > 1.0 {
                        return None;
                    }
                    let next = (last * factor).min(attribute.most);
                    if !is_same(next) {
                        return Some(bisected(last, next, &is_same));
                    }
                    last = next;
                }
                None
            };
            AttributeRange {
                attribute: attribute.name,
                value,
                lowest: edge(1.0 / RANGE_FACTOR),
                highest: edge(RANGE_FACTOR),
            }
        })
        .collect()
}

/// Returns the last value that is the same, between one that is and one that is not.
fn bisected(mut same: f64, mut other: f64, is_same: &impl Fn(f64) -> bool) -> f64 {
    for _ in 0..RANGE_BISECTIONS {
        let middle = (same * other).sqrt();
        *(if is_same(middle) { &mut same } else { &mut other }) = middle;
    }
    same
}

/// Returns the changes of prices that flip the architecture, and for each dataset the smallest fall
/// of a price that moves it.
fn flips(question: &Question<'_>, best: &FoundDesign) -> (Vec<PriceFlip>, Vec<DatasetFlip>) {
    let original = best.candidate.architecture();
    let mut flips = Vec::new();
    let mut moves: [Option<(String, f64)>; 3] = [None, None, None];
    for thing in question.things() {
        let price = question.price(thing);
        for end in [0.0, PRICE_FACTOR_MAX] {
            let mut is_first = true;
            for (factor, next) in breakpoints(question, thing, best, end) {
                let architecture = next.candidate.architecture();
                if architecture == original {
                    continue;
                }
                let change = factor - 1.0;
                if std::mem::take(&mut is_first) {
                    flips.push(PriceFlip {
                        thing: question.name(thing),
                        price,
                        flips_at: price * factor,
                        change,
                        to: question.with(None, |setting| setting.architecture_text(&architecture)),
                    });
                }
                let is_moved = [
                    architecture.arenas != original.arenas,
                    architecture.index != original.index,
                    architecture.cache != original.cache,
                ];
                for (place, is_moved) in moves.iter_mut().zip(is_moved) {
                    let is_smaller = place.as_ref().is_none_or(|(_, known)| change > *known);
                    if end < 1.0 && is_moved && is_smaller {
                        *place = Some((question.name(thing), change));
                    }
                }
            }
        }
    }
    flips.sort_by(|one, other| one.change.abs().total_cmp(&other.change.abs()));
    let datasets = ["arenas", "index", "cache"].into_iter().zip(moves);
    let datasets = datasets.map(|(dataset, moved)| {
        let (thing, change) = moved.unzip();
        DatasetFlip { dataset, thing, change }
    });
    (flips, datasets.collect())
}

/// Returns the factors of a price, from 1 to `end`, at which the cheapest design changes, each with
/// the design beyond it.
///
/// The cost of a design is a straight line over the price. The cheapest one is the lower hull of
/// these lines. From one design, the nearest corner is found by asking for the cheapest design at
/// the end, then where the two lines meet, and so on until the answer costs no less.
fn breakpoints(
    question: &Question<'_>,
    thing: Priced,
    best: &FoundDesign,
    end: f64,
) -> Vec<(f64, FoundDesign)> {
    let cheapest_at = |factor: f64| question.with(Some((thing, factor)), cheapest);
    let cost = |found: &FoundDesign, factor: f64| question.cost(found, thing, factor);
    let is_less = |one: f64, other: f64| one < other - 1e-9 * other.abs().max(1.0);
    let mut corners: Vec<(f64, FoundDesign)> = Vec::new();
    let mut current = *best;
    while corners.len() < BREAKPOINTS_MAX {
        let Some(mut next) = cheapest_at(end) else { break };
        if !is_less(cost(&next, end), cost(&current, end)) {
            break;
        }
        let factor = loop {
            // Both lines are known at factor 0 and 1.
            let (base, other) = (cost(&current, 0.0), cost(&next, 0.0));
            let (slope, other_slope) = (cost(&current, 1.0) - base, cost(&next, 1.0) - other);
            let factor = (other - base) / (slope - other_slope);
            match cheapest_at(factor) {
                Some(found) if is_less(cost(&found, factor), cost(&current, factor)) => next = found,
                _ => break factor,
            }
        };
        corners.push((factor, next));
        current = next;
    }
    corners
}

impl DesignStudy {
    /// Draws the curves as an SVG picture: cost against each part of the level.
    #[must_use]
    pub fn svg(&self) -> String {
        let panels = self.curves.iter().map(|curve| {
            let points = curve.points.iter().filter_map(|point| Some((point.value, point.cost?)));
            let given = match curve.attribute {
                "snapshot_hours" => self.level.snapshot_hours,
                "look_ms" => self.level.look_ms,
                _ => self.level.restore_bytes_per_second,
            };
            ChartPanel {
                title: format!("cost against {}", curve.attribute.replace('_', " ")),
                horizontal: format!("{}, {}", curve.attribute, curve.unit),
                vertical: format!("cost over {} years, {}", self.level.years, self.currency),
                is_log: true,
                mark: Some(given),
                lines: vec![ChartLine {
                    name: "cheapest design".into(),
                    points: points.collect(),
                    is_stepped: true,
                }],
            }
        });
        chart(&format!("{} on {}", self.workload.name, self.table), &panels.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::Example;

    fn question(table: &HardwareTable) -> Question<'_> {
        let mut profile = WorkloadProfile::parse(Example::Workload.text()).unwrap();
        // The disks of 2012 are small.
        profile.source_bytes = 2e11;
        let level = ServiceLevel::parse(Example::Sla.text()).unwrap();
        let processor = profile.processor.unwrap();
        Question { profile, level, table, processor }
    }

    fn study(table: &HardwareTable) -> DesignStudy {
        let asked = question(table);
        study_designs(&asked.profile, table, &asked.level, &asked.processor)
    }

    #[test]
    fn a_stricter_level_never_costs_less() {
        let table = HardwareTable::parse(Example::Devices2012.text()).unwrap();
        let study = study(&table);
        assert!(study.best.is_some(), "{:?}", study.obstacles);
        for curve in &study.curves {
            let costs: Vec<f64> =
                curve.points.iter().map(|point| point.cost.unwrap_or(f64::INFINITY)).collect();
            assert!(costs.is_sorted(), "{}: {costs:?}", curve.attribute);
            assert_eq!(curve.points.len(), 41);
        }
        let svg = study.svg();
        assert!(svg.contains("cost against look ms"), "{svg}");
    }

    /// Just before the price at which the design is said to flip it stays, and just after it does
    /// not.
    #[test]
    fn prices_flip_the_design_where_the_study_says() {
        let table = HardwareTable::parse(Example::Devices2012.text()).unwrap();
        let study = study(&table);
        let best = study.best.as_ref().unwrap();
        assert!(!study.flips.is_empty());
        let asked = question(&table);
        for flip in &study.flips {
            let thing = asked.things().into_iter().find(|thing| asked.name(*thing) == flip.thing).unwrap();
            let at = |share: f64| {
                let factor = 1.0 + flip.change * share;
                let found = asked.with(Some((thing, factor)), cheapest).unwrap();
                asked.with(None, |setting| setting.architecture_text(&found.candidate.architecture()))
            };
            assert_eq!(at(0.99), best.architecture, "{flip:?}");
            assert_eq!(at(1.01), flip.to, "{flip:?}");
        }
        let largest_fall = study.datasets.iter().filter_map(|moved| moved.change);
        assert!(largest_fall.into_iter().all(|change| (-1.0..0.0).contains(&change)));
    }

    #[test]
    fn the_ranges_hold_the_given_values() {
        let table = HardwareTable::parse(Example::Devices.text()).unwrap();
        for range in study(&table).ranges {
            assert!(range.lowest.is_none_or(|lowest| lowest <= range.value), "{range:?}");
            assert!(range.highest.is_none_or(|highest| highest >= range.value), "{range:?}");
        }
    }

    #[test]
    fn an_obstacle_is_named() {
        let table = HardwareTable::parse(Example::Devices2012.text()).unwrap();
        let mut asked = question(&table);
        asked.level.look_ms = 0.001;
        let study = study_designs(&asked.profile, &table, &asked.level, &asked.processor);
        assert!(study.best.is_none() && study.flips.is_empty());
        let names: Vec<_> = study.obstacles.iter().map(|obstacle| obstacle.attribute).collect();
        assert_eq!(names, ["look_ms"]);
    }
}
