//! The table of docs/performance.md, and the rows of it that README has.

use crate::{
    figures::Unit,
    held::Held,
    report::{Report, Run},
    rows::{ROWS, Row, count, longest, ratio, value},
};

const NONE: &str = "–";
/// The rows of README, by their labels.
const SHORT: [&str; 4] = [
    "1 task",
    "the same, guard dropped",
    "64 tasks, a key each",
    "32 tasks, 1 key",
];

/// The rows that were measured, and how, in Markdown.
pub(crate) fn table(report: &Report) -> String {
    let rows = || ROWS.iter().filter(|row| row.is_in(report));
    let fastest = |row: &Row, run| row.fastest_peer(run).is_some();
    let peers = rows().any(|row| report.runs.iter().any(|run| fastest(row, run)));
    let mut head = head(report);
    head.push("calls each".into());
    if peers {
        head.push("fastest other crate, of the baseline".into());
    }
    let body = rows().map(|row| cells(row, report, peers));
    let lines = lines(head, body);
    let held = match report.held.is_empty() {
        true => String::new(),
        false => of_held(&report.held) + "\n",
    };
    format!("{lines}\n{held}{}\n", how(report))
}

/// A few of the rows.
pub(crate) fn short(report: &Report) -> String {
    let head = head(report);
    let width = head.len();
    let rows = ROWS.iter().filter(|row| SHORT.contains(&row.label));
    let rows = rows.filter(|row| row.is_in(report));
    let rows = rows.map(|row| cells(row, report, false));
    let held = report.held.first().map(|held| {
        let calls = format!("{:.1} calls/s", held.calls);
        vec!["1000 held locks, idle".into(), calls]
    });
    let body = rows.chain(held).map(|mut cells| {
        cells.resize(width, NONE.into());
        cells
    });
    format!("{}\n{}\n", lines(head, body), how(report))
}

/// The columns of both tables.
fn head(report: &Report) -> Vec<String> {
    let mut head = vec![String::new()];
    for run in &report.runs {
        head.extend([run.runtime(), "of the baseline".into()]);
    }
    head
}

fn lines(head: Vec<String>, body: impl Iterator<Item = Vec<String>>) -> String {
    let rule = vec!["---".to_owned(); head.len()];
    let lines = [head, rule].into_iter().chain(body);
    lines
        .map(|cells| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |"))
        .collect()
}

/// What is held, and what waits.
pub(crate) fn of_held(held: &[Held]) -> String {
    let line = |label: &str, cell: &dyn Fn(&Held) -> String| {
        let cells: Vec<String> = held.iter().map(cell).collect();
        format!("| {label} | {} |\n", cells.join(" | "))
    };
    let bytes = |bytes: Option<f64>| {
        let some = |bytes| format!("{} bytes", count(bytes));
        bytes.map_or_else(|| NONE.into(), some)
    };
    let fair = || line("the same, `FairLock`", &|held| bytes(held.fair));
    let has_fair = held.iter().any(|held| held.fair.is_some());
    [
        line("", &|held| held.name.clone()).replace("|  |", "| |"),
        line("---", &|_| "---".into()),
        line("1000 held locks", &|held| match held.calls {
            0.0 => "not renewed".into(),
            calls => format!("{calls:.1} calls/s"),
        }),
        line("memory of a held lock", &|held| bytes(held.lock)),
        line("memory of a waiting task", &|held| bytes(held.task)),
        has_fair.then(fair).unwrap_or_default(),
    ]
    .concat()
}

fn cells(row: &Row, report: &Report, peers: bool) -> Vec<String> {
    let runs = &report.runs;
    let mut cells = vec![row.label.to_owned()];
    for run in runs {
        let found = row.scene(run).zip(row.figures(run));
        cells.push(found.map_or_else(|| NONE.into(), |(scene, figures)| value(figures, scene)));
        let of_baseline = row.figures(run).and_then(|figures| figures.ratio);
        cells.push(of_baseline.map_or_else(|| NONE.into(), |of| ratio(of.median)));
    }
    cells.push(each(runs, |run| {
        Some(match row.figures(run)?.calls? {
            few if few < 0.01 => "below 0.01".into(),
            calls => format!("{calls:.2}"),
        })
    }));
    if peers {
        cells.push(each(runs, |run| {
            let peer = row.fastest_peer(run)?;
            let (name, of) = (&peer.name, ratio(peer.ratio?.median));
            Some(match row.scene(run)?.unit {
                Unit::Turns => format!("{name} {of}, {}", longest(&peer.waits)),
                Unit::Pairs | Unit::Shared | Unit::Micros => format!("{name} {of}"),
            })
        }));
    }
    cells
}

/// What all runs say, once if it is the same.
fn each(runs: &[Run], tell: impl Fn(&Run) -> Option<String>) -> String {
    let mut told: Vec<String> = runs.iter().filter_map(tell).collect();
    told.dedup();
    match told.is_empty() {
        true => NONE.to_owned(),
        false => told.join("; "),
    }
}

fn how(report: &Report) -> String {
    let loads = report.runs.iter();
    let loads = loads.flat_map(|run| [run.load_before, run.load_after]);
    let mut loads: Vec<f64> = loads.flatten().collect();
    loads.sort_by(f64::total_cmp);
    let load = match (loads.first(), loads.last()) {
        (Some(low), Some(high)) => format!("{low:.1} to {high:.1}"),
        _ => "unknown".into(),
    };
    format!(
        "Medians of {} rounds of {} ms a side, on {} on the same cores; load {load}.",
        report.rounds,
        u64::from(report.turns) * report.slice,
        report.machine,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::report;

    #[test]
    fn a_row_tells_all_runtimes() {
        let expected = "\
| | 1 thread | of the baseline | 2 threads | of the baseline | calls each | fastest other crate, of the baseline |
| --- | --- | --- | --- | --- | --- | --- |
| 1 task | 6 610 pairs/s | 1.01 | 13 500 pairs/s | 0.99 | 2.00 | fast 1.10; fast 1.30 |
| 32 tasks, 1 key | – | – | 496 000 turns/s, p99 4.1 ms, max 1.6 s | 66 | below 0.01 | quick 1.75, p99 4.1 ms, max 1.6 s |
| hand-over between 2 clients | 120 us | 1.05 | – | – | – | – |
| beside a client like Redisson's | 241 turns/s, max 1.6 s, theirs 700 ms | 1.43 | – | – | – | – |

| | redlock-rt | slow |
| --- | --- | --- |
| 1000 held locks | 1.1 calls/s | not renewed |
| memory of a held lock | 642 bytes | – |
| memory of a waiting task | 1 220 bytes | 2 000 bytes |
| the same, `FairLock` | 1 450 bytes | – |

Medians of 9 rounds of 500 ms a side, on 2 cores of a CPU, Linux 6.18, with redis-server 7.0.15 on the same cores; \
load 1.0 to 1.2.
";
        assert_eq!(table(&report()), expected);
    }

    #[test]
    fn readme_has_a_few_rows() {
        let expected = "\
| | 1 thread | of the baseline | 2 threads | of the baseline |
| --- | --- | --- | --- | --- |
| 1 task | 6 610 pairs/s | 1.01 | 13 500 pairs/s | 0.99 |
| 32 tasks, 1 key | – | – | 496 000 turns/s, p99 4.1 ms, max 1.6 s | 66 |
| 1000 held locks, idle | 1.1 calls/s | – | – | – |

Medians of 9 rounds of 500 ms a side, on 2 cores of a CPU, Linux 6.18, with redis-server 7.0.15 on the same cores; \
load 1.0 to 1.2.
";
        assert_eq!(short(&report()), expected);
    }

    #[test]
    fn without_other_crates_there_is_no_column_of_them() {
        let mut report = report();
        for run in &mut report.runs {
            for scene in &mut run.scenes {
                scene
                    .sides
                    .retain(|side| !["fast", "slow", "quick"].contains(&&*side.name));
            }
        }
        let table = table(&report);
        assert!(table.contains("| 2.00 |\n"), "{table}");
        assert!(!table.contains("other crate"), "{table}");
    }
}
