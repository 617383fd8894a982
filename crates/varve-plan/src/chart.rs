//! A picture of lines over one axis, as SVG: panels beside each other, without scripts or fonts of
//! its own.

use std::fmt::Write as _;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 44.0;
const INNER_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const INNER_HEIGHT: f64 = HEIGHT - TOP - BOTTOM;
/// The height of the horizontal axis.
const BASE: f64 = TOP + INNER_HEIGHT;
const COLOURS: [&str; 6] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#7f7f7f"];

/// A line of a panel.
pub(crate) struct ChartLine {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// True if a value holds until the next point.
    pub is_stepped: bool,
}

/// One drawing with axes.
pub(crate) struct ChartPanel {
    pub title: String,
    pub horizontal: String,
    pub vertical: String,
    /// True if the horizontal axis is logarithmic.
    pub is_log: bool,
    /// A value on the horizontal axis that is marked.
    pub mark: Option<f64>,
    pub lines: Vec<ChartLine>,
}

/// Draws panels beside each other.
pub(crate) fn chart(title: &str, panels: &[ChartPanel]) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a few panels")]
    let width = WIDTH * panels.len() as f64;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {:.0}" font-family="sans-serif" font-size="11">"#,
        HEIGHT + 24.0
    );
    let _ = writeln!(svg, r#"<rect width="100%" height="100%" fill="white"/>"#);
    let _ = writeln!(svg, r#"<text x="10" y="16" font-size="13">{}</text>"#, escaped(title));
    let mut left = 0.0;
    for panel in panels {
        let _ = writeln!(svg, r#"<g transform="translate({left:.0} 24)">"#);
        draw(&mut svg, panel);
        let _ = writeln!(svg, "</g>");
        left += WIDTH;
    }
    svg + "</svg>\n"
}

/// Escapes text for SVG, and leaves out characters that XML does not have.
fn escaped(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    let escape = |c| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        other => other.to_string(),
    };
    plain.map(escape).collect()
}

/// A linear map from values to places.
struct Axis {
    first: f64,
    last: f64,
    is_log: bool,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, is_log: bool, from_zero: bool) -> Option<Self> {
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (!is_log || *value > 0.0)).collect();
        let first = values.iter().copied().reduce(f64::min)?;
        let last = values.iter().copied().reduce(f64::max)?;
        let first = if from_zero { first.min(0.0) } else { first };
        let last = if last > first { last } else { first + first.abs().max(1.0) };
        Some(Self { first, last, is_log })
    }

    /// Returns the place of a value as a share of the axis.
    fn share(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.max(1e-300).log10() } else { value };
        (scale(value) - scale(self.first)) / (scale(self.last) - scale(self.first))
    }

    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let powers = (-12..=24).map(|power| 10_f64.powi(power));
            return powers.filter(|tick| (self.first..=self.last).contains(tick)).collect();
        }
        let raw = (self.last - self.first) / 5.0;
        let power = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= raw);
        let step = step.unwrap_or(raw);
        let ticks = (0..=11).map(|number| (self.first / step).ceil() * step + f64::from(number) * step);
        ticks.filter(|tick| *tick <= self.last * (1.0 + 1e-12)).collect()
    }
}

fn draw(svg: &mut String, panel: &ChartPanel) {
    let _ = writeln!(svg, r#"<text x="{LEFT}" y="20" font-size="12">{}</text>"#, escaped(&panel.title));
    let Some(axes) = PanelAxes::of(panel) else {
        let _ = writeln!(svg, r#"<text x="{LEFT}" y="60">no design meets this</text>"#);
        return;
    };
    axes.draw_ticks(svg);
    draw_names_of_axes(svg, panel);
    if let Some(mark) = panel.mark {
        let at = axes.x(mark);
        let _ = writeln!(svg, r#"<path d="M{at:.1} {TOP}V{BASE}" stroke="black" stroke-dasharray="3 3"/>"#);
    }
    let mut legend = TOP + 12.0;
    for (line, colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
        let (name, path) = (escaped(&line.name), axes.path(line));
        if panel.lines.len() > 1 {
            let _ =
                writeln!(svg, r#"<text x="{:.1}" y="{legend:.1}" fill="{colour}">{name}</text>"#, LEFT + 8.0);
            legend += 14.0;
        }
        let _ = writeln!(
            svg,
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"><title>{name}</title></path>"#
        );
    }
}

/// Draws the two axes with what they stand for.
fn draw_names_of_axes(svg: &mut String, panel: &ChartPanel) {
    let _ =
        writeln!(svg, r#"<path d="M{LEFT} {TOP}V{BASE}H{:.1}" fill="none" stroke="black"/>"#, WIDTH - RIGHT);
    let _ = writeln!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
        LEFT + INNER_WIDTH / 2.0,
        HEIGHT - 12.0,
        escaped(&panel.horizontal)
    );
    let _ = writeln!(
        svg,
        r#"<text transform="translate(12 {:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
        TOP + INNER_HEIGHT / 2.0,
        escaped(&panel.vertical)
    );
}

/// The axes of a panel.
struct PanelAxes {
    horizontal: Axis,
    vertical: Axis,
}

impl PanelAxes {
    /// Returns axes with room for all points of a panel; `None` if it has none.
    fn of(panel: &ChartPanel) -> Option<Self> {
        let all = || panel.lines.iter().flat_map(|line| line.points.iter());
        all().next()?;
        let horizontal = Axis::of(all().map(|point| point.0).chain(panel.mark), panel.is_log, false)?;
        let vertical = Axis::of(all().map(|point| point.1), false, true)?;
        Some(Self { horizontal, vertical })
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.horizontal.share(value) * INNER_WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - self.vertical.share(value)) * INNER_HEIGHT
    }

    fn draw_ticks(&self, svg: &mut String) {
        for tick in self.horizontal.ticks() {
            let (at, text) = (self.x(tick), short(tick));
            let _ = writeln!(
                svg,
                r##"<path d="M{at:.1} {TOP}V{BASE}" stroke="#ddd"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{text}</text>"##,
                BASE + 14.0
            );
        }
        for tick in self.vertical.ticks() {
            let (at, text) = (self.y(tick), short(tick));
            let _ = writeln!(
                svg,
                r##"<path d="M{LEFT} {at:.1}H{:.1}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{text}</text>"##,
                WIDTH - RIGHT,
                LEFT - 5.0,
                at + 4.0
            );
        }
    }

    /// Returns the path of a line from left to right.
    fn path(&self, line: &ChartLine) -> String {
        let mut points: Vec<_> = line.points.clone();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut path = String::new();
        for (number, point) in points.iter().enumerate() {
            let (at, height) = (self.x(point.0), self.y(point.1));
            let _ = match (number, line.is_stepped) {
                (0, _) => write!(path, "M{at:.1} {height:.1}"),
                (_, true) => write!(path, "H{at:.1}V{height:.1}"),
                (_, false) => write!(path, "L{at:.1} {height:.1}"),
            };
        }
        path
    }
}

/// Formats a tick: `2k`, `0.1`, `5M`.
fn short(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (size, unit) = units.into_iter().find(|(size, _)| value.abs() >= *size * 0.9999).unwrap_or((1.0, ""));
    let number = value / size;
    let text = if number.abs() >= 100.0 { format!("{number:.0}") } else { format!("{number:.3}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_well_formed_and_keeps_foreign_text_out() {
        let line =
            ChartLine { name: "a & b".into(), points: vec![(1.0, 5.0), (100.0, 7.5)], is_stepped: true };
        let panel = ChartPanel {
            title: "<script>".into(),
            horizontal: "hours".into(),
            vertical: "cost".into(),
            is_log: true,
            mark: Some(10.0),
            lines: vec![line],
        };
        let empty = ChartPanel { lines: Vec::new(), title: "none".into(), mark: None, ..panel_like() };
        let svg = chart("t", &[panel, empty]);
        assert!(svg.contains("&lt;script&gt;") && !svg.contains("<script>"), "{svg}");
        assert!(svg.contains("a &amp; b") && svg.contains("no design meets this"), "{svg}");
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert!(svg.contains(">10<") && svg.contains(">100<"), "ticks at powers of ten: {svg}");
    }

    fn panel_like() -> ChartPanel {
        ChartPanel {
            title: String::new(),
            horizontal: String::new(),
            vertical: String::new(),
            is_log: false,
            mark: None,
            lines: Vec::new(),
        }
    }

    #[test]
    fn ticks_are_short() {
        for (value, text) in [(0.1, "0.1"), (2500.0, "2.5k"), (1e6, "1M"), (250e9, "250G"), (0.0, "0")] {
            assert_eq!(short(value), text);
        }
    }
}
