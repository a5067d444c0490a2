//! Runs of one topology, added up for the page.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use serde::Serialize;

use super::{Failure, check::Counted, report::sum, run::Outcome};

/// Adds the run whose result is in this folder to `TOPOLOGY.json` in the folder of the page.
pub(crate) fn add(result: &Path, page: &Path) -> Result<(), Failure> {
    let read = |path: &Path| -> Result<Outcome, Failure> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    };
    let run = read(&result.join("result.json"))?;
    let path = page.join(format!("{}.json", run.topology));
    let all = match path.exists() {
        true => read(&path)?.and(run)?,
        false => run,
    };
    Ok(fs::write(path, lines(&all)?)?)
}

impl Outcome {
    /// Both runs as one.
    fn and(mut self, other: Self) -> Result<Self, Failure> {
        if self.seeds.iter().any(|seed| other.seeds.contains(seed)) {
            return Err(format!("seed {:?} is there already", other.seeds).into());
        }
        if self.server != other.server {
            self.server = format!("{}, {}", self.server, other.server);
        }
        self.seconds += other.seconds;
        self.seeds.extend(other.seeds);
        for (fault, times) in other.strikes {
            *self.strikes.entry(fault).or_default() += times;
        }
        for (fault, kinds) in other.seen {
            let seen_before = self.seen.entry(fault).or_default();
            for (kind, seen) in kinds {
                let both = sum([seen_before.entry(kind.clone()).or_default(), &seen]);
                seen_before.insert(kind, both);
            }
        }
        for (kind, counted) in other.counters {
            let before = self.counters.entry(kind).or_default();
            *before = Counted {
                written: before.written + counted.written,
                refused: before.refused + counted.refused,
                unknown: before.unknown + counted.unknown,
                lost: before.lost + counted.lost,
            };
        }
        self.left.extend(other.left);
        self.stuck += other.stuck;
        self.around
            .resize(self.around.len().max(other.around.len()), 0);
        let both = self.around.iter_mut().zip(other.around);
        both.for_each(|(before, count)| *before += count);
        self.broken.extend(other.broken);
        Ok(self)
    }
}

/// As JSON with a line for each fault, so that a change can be read.
fn lines(outcome: &Outcome) -> Result<String, Failure> {
    let fields: BTreeMap<String, serde_json::Value> =
        serde_json::from_value(serde_json::to_value(outcome)?)?;
    let mut text = String::new();
    for (name, value) in &fields {
        let _ = write!(
            text,
            "{}\"{name}\": ",
            if text.is_empty() { "{\n" } else { ",\n" }
        );
        match (&**name, value.as_object()) {
            ("seen", Some(faults)) => {
                let rows = faults
                    .iter()
                    .map(|(fault, kinds)| format!("\n{}: {}", compact(fault), compact(kinds)));
                let _ = write!(text, "{{{}\n}}", rows.collect::<Vec<_>>().join(","));
            }
            _ => text += &compact(value),
        }
    }
    Ok(text + "\n}\n")
}

fn compact(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("it was JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::kept_and_lost;

    #[test]
    fn runs_are_added_up_once() {
        let page = include_str!("../../../docs/under-faults/ack.json");
        let read = || serde_json::from_str::<Outcome>(page).unwrap();
        assert_eq!(
            lines(&read()).unwrap().lines().count(),
            14 + read().seen.len()
        );
        assert!(read().and(read()).is_err());
        let mut other = read();
        other.seeds = vec![u64::MAX];
        let both = lines(&read().and(other).unwrap()).unwrap();
        let both: Outcome = serde_json::from_str(&both).unwrap();
        let told = |outcome: &Outcome| {
            let [kept, lost] = kept_and_lost(outcome, |_| true);
            let counted: u64 = outcome
                .counters
                .values()
                .map(|counted| counted.written)
                .sum();
            let strikes: u64 = outcome.strikes.values().sum();
            [
                kept.acquired,
                lost.acquired,
                counted,
                strikes,
                outcome.seconds,
                outcome.around.iter().sum(),
            ]
        };
        assert_eq!(told(&both), told(&read()).map(|figure| 2 * figure));
        assert_eq!(both.seeds.len(), read().seeds.len() + 1);
    }
}
