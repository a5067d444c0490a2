//! Charts, for light and dark pages.

use std::fmt::Write as _;

const HEAD: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 HEIGHT\" font-family=\"sans-serif\" font-size=\"13\">
<style>text { fill: #24292f } line { stroke: #8c959f } .c0 { stroke: #0969da; fill: #0969da } .c1 { stroke: #cf222e; fill: #cf222e } .c2 { stroke: #1a7f37; fill: #1a7f37 } polyline { fill: none !important; stroke-width: 2 } @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }</style>
";

fn svg(height: usize, body: &str) -> String {
    format!(
        "{}{body}</svg>\n",
        HEAD.replace("HEIGHT", &height.to_string())
    )
}

/// Acquisitions in each 100 ms around a failover, which begins behind 2 s, for each kind of servers.
pub(crate) fn lines(all: &[(String, Vec<f64>)]) -> String {
    let most = all
        .iter()
        .flat_map(|(_, counts)| counts)
        .fold(1.0_f64, |most, count| most.max(*count));
    let mut body = String::new();
    for (at, (name, counts)) in all.iter().enumerate() {
        let points = counts.iter().enumerate().map(|(step, count)| {
            format!(
                "{:.0},{:.0}",
                50.0 + 7.0 * step as f64,
                260.0 - 220.0 * count / most
            )
        });
        let points: Vec<_> = points.collect();
        let _ = writeln!(
            body,
            "<polyline class=\"c{at}\" points=\"{}\"/>",
            points.join(" ")
        );
        let y = 20 + 16 * at;
        let _ = writeln!(
            body,
            "<text x=\"600\" y=\"{y}\">{name}</text><rect class=\"c{at}\" x=\"580\" y=\"{}\" width=\"12\" height=\"4\"/>",
            y - 6
        );
    }
    let _ = writeln!(
        body,
        "<line x1=\"190\" x2=\"190\" y1=\"30\" y2=\"260\" stroke-dasharray=\"4\"/><text x=\"194\" y=\"40\">failover begins</text>"
    );
    let _ = writeln!(
        body,
        "<line x1=\"50\" x2=\"750\" y1=\"260\" y2=\"260\"/><text x=\"4\" y=\"44\">{most:.1}</text><text x=\"4\" y=\"264\">0</text>"
    );
    for second in 0..=10 {
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"280\">{} s</text>",
            42 + 70 * second,
            second - 2
        );
    }
    svg(290, &body)
}

/// Shares, each with its name.
pub(crate) fn bars(all: &[(String, f64)]) -> String {
    let mut body = String::new();
    for (at, (name, share)) in all.iter().enumerate() {
        let y = 20 * at;
        let _ = writeln!(
            body,
            "<text x=\"4\" y=\"{}\">{name}</text><rect class=\"c0\" x=\"330\" y=\"{}\" width=\"{:.1}\" height=\"12\"/><text x=\"{:.0}\" y=\"{}\">{:.2} %</text>",
            y + 15,
            y + 5,
            380.0 * share,
            336.0 + 380.0 * share,
            y + 15,
            100.0 * share,
        );
    }
    svg(20 * all.len() + 10, &body)
}
