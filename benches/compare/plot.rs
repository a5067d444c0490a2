//! The plot of docs/performance.md: the rates, as multiples of the baseline's, as SVG.

use std::fmt::Write;

use crate::{
    figures::{Figures, Quartiles, Unit},
    report::{Report, Run},
    rows::{ROWS, Row, ratio},
};

/// The colours of a page.
#[derive(Debug)]
pub(crate) struct Theme {
    ground: &'static str,
    text: &'static str,
    faint: &'static str,
    /// Of the runtimes.
    runs: [&'static str; 2],
    peers: &'static str,
}

pub(crate) const LIGHT: Theme = Theme {
    ground: "#ffffff",
    text: "#1f2328",
    faint: "#d1d9e0",
    runs: ["#0969da", "#bc4c00"],
    peers: "#818b98",
};

pub(crate) const DARK: Theme = Theme {
    ground: "#0d1117",
    text: "#e6edf3",
    faint: "#3d444d",
    runs: ["#4493f8", "#db6d28"],
    peers: "#9198a1",
};

const WIDTH: f64 = 760.0;
/// The plot's area: left of it are the labels.
const LEFT: f64 = 230.0;
const RIGHT: f64 = 710.0;
const TOP: f64 = 64.0;
const ROW: f64 = 36.0;
/// Between the marks of two runtimes.
const STEP: f64 = 14.0;
/// How the names of the baselines end.
const RAW: &str = "raw";
const TICKS: [f64; 13] = [
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0,
];

/// A logarithmic axis.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// From tick to tick around all these values, and the baseline.
    fn around(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values.fold((0.9, 1.1), |(low, high), value| {
            (f64::min(low, value), f64::max(high, value))
        });
        let [first, .., last] = TICKS;
        let below = TICKS.into_iter().rfind(|&tick| tick <= low);
        let above = TICKS.into_iter().find(|&tick| tick >= high);
        Self {
            low: below.unwrap_or(first),
            high: above.unwrap_or(last),
        }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let range = self.low..=self.high;
        TICKS.into_iter().filter(move |tick| range.contains(tick))
    }

    fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let part = (value / self.low).ln() / (self.high / self.low).ln();
        LEFT + part * (RIGHT - LEFT)
    }
}

/// The rates of all rows whose baseline is the bare crate.
pub(crate) fn plot(report: &Report, theme: &Theme) -> String {
    let shown = |run: &Run, row: &Row| {
        row.figures(run)
            .zip(row.scene(run))
            .is_some_and(|(_, scene)| {
                let baseline = scene.sides.last().map(|side| side.name.as_str());
                scene.unit != Unit::Micros && baseline.is_some_and(|name| name.ends_with(RAW))
            })
    };
    let rows = ROWS.iter();
    let rows: Vec<&Row> = rows
        .filter(|row| report.runs.iter().any(|run| shown(run, row)))
        .collect();
    let all = rows.iter().flat_map(|row| {
        let runs = report.runs.iter();
        runs.flat_map(|run| row.figures(run).into_iter().chain(row.peers(run)))
    });
    let ratios = all.filter_map(|figures| figures.ratio);
    let axis = Axis::around(ratios.flat_map(|of| [of.low, of.high]));
    let bottom = TOP + rows.len() as f64 * ROW;
    let mut svg = Svg::begin(bottom + 30.0, theme);
    svg.legend(report, rows.iter().any(|row| has_peers(row, report)));
    svg.axis(&axis, bottom);
    for (at, row) in rows.into_iter().enumerate() {
        let middle = TOP + (at as f64 + 0.5) * ROW;
        svg.text(LEFT - 12.0, middle + 4.0, "end", &row.plain());
        for (run, (measured, colour)) in report.runs.iter().zip(theme.runs).enumerate() {
            let y = middle + (run as f64 - 0.5) * STEP;
            for peer in row.peers(measured) {
                svg.peer(peer, &axis, y);
            }
            if let Some(of) = row.figures(measured).and_then(|figures| figures.ratio) {
                svg.mark(of, &axis, y, colour);
            }
        }
    }
    svg.end()
}

fn has_peers(row: &Row, report: &Report) -> bool {
    let mut runs = report.runs.iter();
    runs.any(|run| row.peers(run).next().is_some())
}

/// A picture in the making.
struct Svg<'a> {
    text: String,
    theme: &'a Theme,
}

impl<'a> Svg<'a> {
    fn begin(height: f64, theme: &'a Theme) -> Self {
        let mut svg = Self {
            text: String::new(),
            theme,
        };
        svg.line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\">"
        ));
        svg.line(format_args!(
            "<title>Locks and unlocks per second, as multiples of the bare redis crate's</title>"
        ));
        let ground = theme.ground;
        svg.line(format_args!(
            "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"{ground}\"/>"
        ));
        svg
    }

    fn end(mut self) -> String {
        self.line(format_args!("</svg>"));
        self.text
    }

    fn line(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{element}").expect("a text takes all");
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let colour = self.theme.text;
        self.line(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        ));
    }

    fn legend(&mut self, report: &Report, peers: bool) {
        self.text(
            WIDTH / 2.0,
            18.0,
            "middle",
            "rate, as a multiple of the bare redis crate's (median and quartiles)",
        );
        let runs = report.runs.iter().zip(self.theme.runs);
        let mut x = LEFT;
        for (run, colour) in runs {
            self.line(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"38\" r=\"4\" fill=\"{colour}\"/>"
            ));
            self.text(x + 9.0, 42.0, "start", &run.runtime());
            x += 100.0;
        }
        if peers {
            self.ring(x, 38.0, "");
            self.text(x + 9.0, 42.0, "start", "other lock crates");
        }
    }

    fn axis(&mut self, axis: &Axis, bottom: f64) {
        for tick in axis.ticks() {
            let x = axis.at(tick);
            let (colour, width) = match tick {
                1.0 => (self.theme.text, 1.5),
                _ => (self.theme.faint, 1.0),
            };
            self.line(format_args!(
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"{colour}\" \
                 stroke-width=\"{width}\"/>"
            ));
            self.text(x, bottom + 18.0, "middle", &format!("{tick}"));
        }
    }

    fn mark(&mut self, of: Quartiles, axis: &Axis, y: f64, colour: &str) {
        let [low, median, high] = [of.low, of.median, of.high].map(|value| axis.at(value));
        self.line(format_args!(
            "<line x1=\"{low:.1}\" y1=\"{y:.1}\" x2=\"{high:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" \
             stroke-width=\"2\"/>"
        ));
        self.line(format_args!(
            "<circle cx=\"{median:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
        ));
        self.text(
            high.max(median + 4.0) + 5.0,
            y + 4.0,
            "start",
            &ratio(of.median),
        );
    }

    fn peer(&mut self, peer: &Figures, axis: &Axis, y: f64) {
        if let Some(of) = peer.ratio {
            let title = format!("{} {}", peer.name, ratio(of.median));
            self.ring(axis.at(of.median), y, &title);
        }
    }

    fn ring(&mut self, x: f64, y: f64, title: &str) {
        let colour = self.theme.peers;
        self.line(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"1.5\"><title>{title}</title></circle>"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::report;

    #[test]
    fn each_ratio_has_a_mark_at_its_place() {
        let svg = plot(&report(), &LIGHT);
        // From 0.5 to 100 on 480: 1.01 is at 293.7, 0.99 at 291.9, 66 at 672.4.
        for (x, colour) in [("293.7", 0), ("291.9", 1), ("672.4", 1)] {
            let mark = format!("<circle cx=\"{x}\"");
            let mark = svg.lines().find(|line| line.starts_with(&mark));
            let mark = mark.unwrap_or_else(|| panic!("no mark at {x}: {svg}"));
            assert!(mark.contains(LIGHT.runs[colour]), "{mark}");
        }
        assert!(svg.contains("<title>slow 0.60</title>"), "{svg}");
        assert!(svg.contains(">66</text>"), "{svg}");
        // A time is no rate.
        assert!(!svg.contains("hand-over"), "{svg}");
        // Of a scene that was measured without it.
        assert!(!svg.contains("guard dropped"), "{svg}");
    }

    #[test]
    fn the_themes_differ_in_colours_alone() {
        let mut dark = plot(&report(), &DARK);
        let colours = |theme: &Theme| {
            let [one, two] = theme.runs;
            [theme.ground, theme.text, theme.faint, one, two, theme.peers]
        };
        for (from, to) in colours(&DARK).into_iter().zip(colours(&LIGHT)) {
            assert!(dark.contains(from), "{from}");
            dark = dark.replace(from, to);
        }
        assert_eq!(dark, plot(&report(), &LIGHT));
    }
}
