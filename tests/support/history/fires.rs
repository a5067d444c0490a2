//! What is to be done once is marked as done once, and each caller is told what became of it.

use super::{History, LatchAct, LatchCall, Ms, Started, Verdict, Violation};

const RULE: &str = "once";

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let is_of_a_fire = |act| matches!(act, LatchAct::Start { .. } | LatchAct::Mark);
    for (key, calls) in history.latch_calls(is_of_a_fire) {
        let moved = history.moved(key).map(|moved| moved.from);
        let forgotten = history.wiped(key).map(|wiped| wiped.at).chain(moved).min();
        for (at, what) in broken(&calls) {
            let before = forgotten.is_some_and(|forgotten| forgotten <= at);
            if !verdict.excuses("once: forgotten", before) {
                verdict.push(Violation::new(RULE, at, format!("{key}: {what}")));
            }
        }
    }
}

fn broken(calls: &[&LatchCall]) -> Vec<(Ms, String)> {
    let mut found = Vec::new();
    let marks: Vec<&&LatchCall> = calls.iter().filter(|c| c.act == LatchAct::Mark).collect();
    let marked = marks.iter().filter_map(|mark| Some(mark.returned?.0));
    let mut marked: Vec<Ms> = marked.collect();
    marked.sort_unstable();
    if let [first, second, ..] = marked[..] {
        found.push((second, format!("done at {first} ms, and once more")));
    }
    let mut begun = 0;
    let mut starts: Vec<_> = calls.iter().filter_map(|call| answer(call)).collect();
    starts.sort_unstable_by_key(|(at, ..)| *at);
    for (at, called, most, told) in starts {
        let done = marked.first().is_some_and(|done| *done < called);
        if done && told != Started::Done as u64 {
            found.push((at, "done, and who asked later was not told so".to_owned()));
        }
        if told == Started::Done as u64 && !marks.iter().any(|mark| mark.called <= at) {
            found.push((at, "told to be done before anybody marked it".to_owned()));
        }
        begun += u64::from(told == Started::Begun as u64);
        if most > 0 && begun > most {
            found.push((at, format!("begun {begun} times of {most}")));
        }
        // Who has no answer may have begun it.
        let unknown = |call: &&&LatchCall| {
            let start = matches!(call.act, LatchAct::Start { .. });
            start && call.called <= at && call.returned.is_none_or(|(then, _)| then > at)
        };
        // And who had an answer later than its lease may have begun one more, whose reply was lost.
        let unheard = |call: &&&LatchCall| match (call.act, call.returned) {
            (LatchAct::Start { lease, .. }, Some((then, _))) => {
                then <= at && then - call.called >= lease
            }
            _ => false,
        };
        let may = calls.iter().filter(unknown).count() + calls.iter().filter(unheard).count();
        let may = begun + may as u64;
        if told == Started::Failed as u64 && may < most {
            found.push((at, format!("given up after {may} attempts of {most}")));
        }
    }
    found
}

/// When a start was answered, when it was called, how many attempts there are, and the answer.
fn answer(call: &LatchCall) -> Option<(Ms, Ms, u64, u64)> {
    let LatchAct::Start { most, .. } = call.act else {
        return None;
    };
    let (at, told) = call.returned?;
    Some((at, call.called, most.into(), told))
}
