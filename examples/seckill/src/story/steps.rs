//! The steps of the story: what each is, its picture, and what has to happen for it to go wrong.
//!
//! They are in `page/story.json`, which the page shows too.

use serde::Deserialize;

use crate::cli::FaultAt;
use crate::service::LockKind;

/// One step of the story.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) lock: LockKind,
    pub(super) title: String,
    /// One order in so many takes 450 ms; none for zero.
    pub(super) stall_one_in: u32,
    /// What is broken, and when.
    fault: Option<String>,
    /// Who takes part, from left to right.
    lines: [String; 3],
    /// What happens, from top to bottom.
    moments: Vec<Moment>,
    pub(super) moral: String,
}

/// Something that happens.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Moment {
    /// One calls another.
    Call {
        from: usize,
        to: usize,
        text: String,
    },
    /// Something happens at one of them, and may end it.
    Event {
        at: usize,
        text: String,
        #[serde(default)]
        ends: bool,
    },
}

/// The steps, in order.
pub(super) fn steps() -> Vec<Step> {
    serde_json::from_str(include_str!("../page/story.json")).expect("a test reads the file")
}

/// How wide the column of a line is.
const COLUMN: usize = 24;

impl Step {
    pub(super) fn fault(&self) -> Result<Option<FaultAt>, String> {
        self.fault.as_deref().map(str::parse).transpose()
    }

    /// The sequence as text, time going down.
    pub(super) fn picture(&self) -> String {
        let mut alive = [true; 3];
        let heads = self.lines.each_ref().map(|name| format!("{name:^COLUMN$}"));
        let mut rows = vec![heads.concat()];
        for moment in &self.moments {
            rows.push(match moment {
                Moment::Call { from, to, text } => call(*from, *to, text, alive),
                Moment::Event { at, text, ends } => {
                    alive[*at] &= !ends;
                    event(*at, text, alive)
                }
            });
        }
        rows.iter()
            .map(|row| format!("{}\n", row.trim_end()))
            .collect()
    }
}

/// A row with the lines of those that have not ended.
fn lines(alive: [bool; 3]) -> Vec<char> {
    let column = |alive| format!("{:^COLUMN$}", if alive { "|" } else { "" });
    alive.map(column).concat().chars().collect()
}

/// The column of a line.
fn middle(line: usize) -> usize {
    // As `^` pads: the smaller half comes first.
    line * COLUMN + (COLUMN - 1) / 2
}

fn call(from: usize, to: usize, text: &str, alive: [bool; 3]) -> String {
    let mut row = lines(alive);
    let (left, right) = (middle(from.min(to)) + 1, middle(from.max(to)));
    let label = format!(" {text} ");
    let arrow = format!("{label:-^width$}", width = right - left);
    row.splice(left..right, arrow.chars());
    row[if from < to { right - 1 } else { left }] = if from < to { '>' } else { '<' };
    row.into_iter().collect()
}

fn event(at: usize, text: &str, alive: [bool; 3]) -> String {
    let mut row = lines(alive);
    let length = text.chars().count();
    // On its line where that is possible, and on the paper in any case.
    let start = (middle(at) + 1).saturating_sub(length.div_ceil(2));
    let start = start.min(row.len().saturating_sub(length));
    row.splice(start..start + length, text.chars());
    row.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_kind_of_lock_has_its_step_and_each_step_its_picture() {
        let steps = steps();
        for kind in LockKind::value_variants() {
            assert!(steps.iter().any(|step| step.lock == *kind), "{kind}");
        }
        for step in &steps {
            step.fault().unwrap();
            let picture = step.picture();
            for row in picture.lines() {
                assert!(row.chars().count() <= 3 * COLUMN, "{picture}");
            }
            assert!(step.moments.len() >= 4, "{picture}");
            for moment in &step.moments {
                let (Moment::Call { text, .. } | Moment::Event { text, .. }) = moment;
                assert!(picture.contains(text), "{text} is not in\n{picture}");
            }
        }
    }

    #[test]
    fn an_arrow_points_to_who_is_called_and_a_line_ends_with_who_is_killed() {
        let step = Step {
            lock: LockKind::Off,
            title: String::new(),
            stall_one_in: 0,
            fault: None,
            lines: ["a", "b", "c"].map(str::to_owned),
            moments: vec![
                Moment::Call {
                    from: 0,
                    to: 1,
                    text: "set".to_owned(),
                },
                Moment::Event {
                    at: 0,
                    text: "dies".to_owned(),
                    ends: true,
                },
                Moment::Call {
                    from: 2,
                    to: 1,
                    text: "set".to_owned(),
                },
            ],
            moral: String::new(),
        };
        let picture = [
            "           a                       b                       c",
            "           |--------- set -------->|                       |",
            "          dies                     |                       |",
            "                                   |<-------- set ---------|",
        ];
        assert_eq!(step.picture().lines().collect::<Vec<_>>(), picture);
    }

    #[test]
    fn the_readme_has_each_step() {
        let readme = include_str!("../../README.md");
        for step in steps() {
            let block = format!("```text\n{}```", step.picture());
            assert!(readme.contains(&block), "--lock {}:\n{block}", step.lock);
        }
    }
}
