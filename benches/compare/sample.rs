//! A report for tests.

use crate::{
    figures::{Figures, Quartiles, Scene, Unit, Waits},
    held::Held,
    machine::Machine,
    report::{Report, Run},
};

/// Two runtimes; only one scene is in both.
pub(crate) fn report() -> Report {
    let one = vec![
        scene(
            "1 task",
            Unit::Pairs,
            vec![
                side("redlock-rt", 6614.0, 1.01, Some(2.0)),
                side("slow", 4000.0, 0.6, None),
                side("fast", 7300.0, 1.1, None),
                baseline("raw", 6550.0),
            ],
        ),
        scene(
            "handover",
            Unit::Micros,
            vec![
                side("redlock-rt", 120.0, 1.05, None),
                baseline("raw pub/sub", 114.0),
            ],
        ),
        scene(
            "shared",
            Unit::Shared,
            vec![
                side("redlock-rt", 241.0, 1.43, None),
                waiting(700_000, baseline("like Redisson", 168.0)),
            ],
        ),
    ];
    let two = vec![
        scene(
            "1 task",
            Unit::Pairs,
            vec![
                side("redlock-rt", 13_500.0, 0.99, Some(2.0)),
                side("fast", 18_000.0, 1.3, None),
                baseline("raw", 13_600.0),
            ],
        ),
        scene(
            "contended",
            Unit::Turns,
            vec![
                side("redlock-rt", 496_000.0, 66.0, Some(0.001)),
                baseline("FIFO + raw", 7500.0),
            ],
        ),
        scene(
            "peers",
            Unit::Turns,
            vec![
                side("redlock-rt", 480_000.0, 64.0, None),
                side("quick", 13_200.0, 1.75, None),
                baseline("FIFO + raw", 7540.0),
            ],
        ),
    ];
    Report {
        machine: Machine {
            cores: 2,
            cpu: "a CPU".into(),
            kernel: "6.18".into(),
            redis: "7.0.15".into(),
        },
        rounds: 9,
        turns: 20,
        held: vec![
            held("redlock-rt", 1.05, Some(641.9), 1223.0, Some(1449.0)),
            held("slow", 0.0, None, 2001.0, None),
        ],
        slice: 25,
        runs: vec![run(1, one), run(2, two)],
    }
}

fn run(threads: usize, scenes: Vec<Scene>) -> Run {
    Run {
        threads,
        load_before: Some(1.0),
        load_after: Some(1.2),
        scenes,
    }
}

fn scene(name: &str, unit: Unit, sides: Vec<Figures>) -> Scene {
    Scene {
        name: name.into(),
        about: String::new(),
        unit,
        sides,
    }
}

fn held(name: &str, calls: f64, lock: Option<f64>, task: f64, fair: Option<f64>) -> Held {
    Held {
        name: name.into(),
        calls,
        lock,
        task: Some(task),
        fair,
    }
}

fn side(name: &str, value: f64, ratio: f64, calls: Option<f64>) -> Figures {
    Figures {
        ratio: Some(around(ratio)),
        calls,
        ..baseline(name, value)
    }
}

fn baseline(name: &str, value: f64) -> Figures {
    Figures {
        name: name.into(),
        value: around(value),
        ratio: None,
        calls: None,
        waits: Waits {
            p50: 50,
            p99: 4100,
            max: 1_584_127,
        },
    }
}

/// With this longest wait.
fn waiting(max: u64, mut figures: Figures) -> Figures {
    figures.waits.max = max;
    figures
}

fn around(median: f64) -> Quartiles {
    Quartiles {
        low: median * 0.9,
        median,
        high: median * 1.1,
    }
}
