//! The library on a simulated network. Many more seeds: `cargo run --release -p tests --bin sim`.

mod regressions;

use tests::history::{Grant, History};
use tests::sim::{Plan, run};

/// Seeds that are run in every build; `./ci/test` runs more of them, optimised.
const SEEDS: std::ops::Range<u64> = 0..16;

#[test]
fn one_seed_is_one_history() {
    // 23, 28 and 60 end runtimes, whose clocks the next ones take over. 6, 9, 10, 18 and 28 have
    // several servers, 1, 27 and 38 a cluster, 3 and 20 sentinels, 30 replicas that copy.
    for seed in [1, 3, 6, 9, 10, 11, 18, 20, 23, 25, 27, 28, 30, 38, 60] {
        let plan = Plan::of_seed(seed);
        let first = run(&plan).lines;
        // Whatever else ran on this thread meanwhile.
        run(&Plan::of_seed(seed + 1));
        let again = run(&plan).lines;
        let place = first
            .iter()
            .zip(&again)
            .position(|(one, other)| one != other);
        let place = place.unwrap_or_else(|| first.len().min(again.len()));
        assert_eq!(
            first.get(place),
            again.get(place),
            "seed {seed}, line {place}"
        );
    }
}

#[test]
fn a_plan_is_what_its_text_says() {
    for seed in 0..50 {
        let plan = Plan::of_seed(seed);
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(
            serde_json::from_str::<Plan>(&text).unwrap(),
            plan,
            "seed {seed}"
        );
    }
}

#[test]
fn no_seed_breaks_a_rule() {
    for seed in SEEDS {
        let report = run(&Plan::of_seed(seed));
        let broken: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        assert!(
            broken.is_empty(),
            "seed {seed}; see `cargo run --release -p tests --bin sim -- --seed {seed} --trace`:\n{}",
            broken.join("\n")
        );
    }
}

/// A simulation in which nothing happens proves nothing.
#[test]
fn locks_are_had_waited_for_and_cancelled() {
    use tests::history::Outcome;

    let (mut granted, mut cancelled, mut waited, mut tokens) = (0, 0, 0, 0);
    let plans = (0..40).map(Plan::of_seed);
    for plan in plans.filter(|plan| plan.flood.is_none()) {
        for one in run(&plan).history.acquisitions {
            let returned = one.returned.as_ref();
            cancelled += usize::from(returned.is_some_and(|(_, end)| *end == Outcome::Cancelled));
            if let Some(grant) = one.grant {
                granted += 1;
                waited += usize::from(grant.at > one.called + 100);
                tokens += usize::from(grant.token.is_some());
            }
        }
    }
    assert!(granted > 100, "{granted} holds");
    assert!(waited > 20, "{waited} had waited");
    assert!(cancelled > 10, "{cancelled} were cancelled");
    assert!(tokens > 5, "{tokens} had tokens");
}

/// Nor does one in which no server ever forgets a part of a lock that is held.
#[test]
fn redlocks_are_had_by_a_majority_and_repaired() {
    use tests::history::Mode;

    let (mut granted, mut again) = (0, 0);
    let mut servers = std::collections::BTreeSet::new();
    for seed in 0..150 {
        let plan = Plan::of_seed(seed);
        let Some(quorum) = plan.quorum else { continue };
        servers.insert(quorum.count);
        let history = run(&plan).history;
        for (place, one) in history.acquisitions.iter().enumerate() {
            let Some(grant) = one.grant.as_ref() else {
                continue;
            };
            granted += usize::from(matches!(one.mode, Mode::Majority(_)));
            let parts = history
                .parts
                .iter()
                .filter(|part| part.acquisition == place);
            let parts: Vec<_> = parts.collect();
            // More than there are servers: one of them has had two.
            again += usize::from(parts.len() > quorum.count && grant.renewed);
        }
    }
    assert_eq!(servers.into_iter().collect::<Vec<_>>(), [3, 5]);
    assert!(granted > 100, "{granted} holds");
    assert!(again > 5, "{again} were given a part again");
}

/// Nor does one in which replicas have whatever is asked for, or never do.
#[test]
fn replicas_are_waited_for_and_missed() {
    use tests::history::Outcome;

    let (mut waited, mut given, mut refused, mut stopped) = (0, 0, 0, 0);
    let plans = (0..300).map(Plan::of_seed);
    for plan in plans.filter(|plan| plan.watched.is_some_and(|of| of.copies.is_some())) {
        let report = run(&plan);
        let waits = report.lines.iter().filter(|line| line.contains("> WAIT "));
        waited += waits.count();
        let stops = report
            .lines
            .iter()
            .filter(|line| line.contains(" StopReplica "));
        stopped += stops.count();
        for one in report
            .history
            .acquisitions
            .iter()
            .filter(|one| one.ack.is_some())
        {
            match one.returned {
                Some((_, Outcome::Granted)) => given += 1,
                Some((_, Outcome::NotReplicated { .. })) => refused += 1,
                _ => {}
            }
        }
    }
    assert!(waited > 100, "{waited} calls of WAIT");
    assert!(
        given > 40 && refused > 20,
        "{given} were given out, {refused} refused"
    );
    assert!(stopped > 3, "{stopped} replicas stood still");
}

/// Nor does one in which nobody has a lock whose slot moves, or whose master fails.
#[test]
fn locks_are_held_while_slots_move_and_masters_fail() {
    let (mut across, mut failed, mut lost) = (0, 0, 0);
    let mut answers = std::collections::BTreeMap::new();
    let plans = (0..200)
        .map(Plan::of_seed)
        .filter(|plan| plan.cluster.is_some());
    for plan in plans {
        let report = run(&plan);
        across += held_across(&report.history);
        for moved in &report.history.moves {
            failed += usize::from(moved.failed);
            lost += usize::from(moved.lost.is_some());
        }
        for word in ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"] {
            let answer = format!("< -{word} ");
            let lines = report.lines.iter().filter(|line| line.contains(&answer));
            *answers.entry(word).or_insert(0) += lines.count();
        }
    }
    assert!(across > 10, "{across} holds had another master meanwhile");
    assert!(
        failed > lost && lost > 5,
        "{lost} of {failed} lost something"
    );
    assert!(answers.values().all(|count| *count > 5), "{answers:?}");
}

/// Nor does one in which sentinels never name another master of a lock that is held.
#[test]
fn locks_are_held_while_sentinels_name_another_master() {
    let (mut across, mut named, mut demoted, mut two) = (0, 0, 0, 0);
    let plans = (0..150)
        .map(Plan::of_seed)
        .filter(|plan| plan.watched.is_some());
    for plan in plans {
        let report = run(&plan);
        across += held_across(&report.history);
        let count = |word: &str| {
            report
                .lines
                .iter()
                .filter(|line| line.contains(word))
                .count()
        };
        named += count(" names s");
        demoted += count("-READONLY");
        let moves = report.history.moves.iter();
        two += moves.filter(|moved| moved.at + 100 < moved.until).count();
    }
    assert!(across > 5, "{across} holds had another master meanwhile");
    assert!(named > 10, "another master was named {named} times");
    assert!(
        demoted > 3,
        "{demoted} calls met a master that is one no more"
    );
    assert!(two > 3, "there were two masters for a while {two} times");
}

/// How many holds outlasted that their key got another master.
fn held_across(history: &History) -> usize {
    let moves = history.moves.iter();
    let across = moves.map(|moved| {
        let held = |grant: &Grant| grant.at < moved.from && moved.at < grant.believed;
        let all = history.acquisitions.iter();
        all.filter(|one| one.key == moved.key && one.grant.as_ref().is_some_and(held))
            .count()
    });
    across.sum()
}

/// And one in which Redisson's clients have nothing to do with ours.
#[test]
fn clients_of_redisson_take_turns_with_ours() {
    let (mut theirs, mut turns) = (0, 0);
    let plans = (0..40)
        .map(Plan::of_seed)
        .filter(|plan| !plan.java.is_empty());
    for plan in plans {
        let history = run(&plan).history;
        let is_theirs = |process| history.foreign.iter().any(|one| one.process == process);
        let mut had: Vec<(&str, u64, bool)> = Vec::new();
        for one in &history.acquisitions {
            if let Some(grant) = &one.grant {
                theirs += usize::from(is_theirs(one.process));
                had.push((&one.key, grant.at, is_theirs(one.process)));
            }
        }
        had.sort_unstable();
        let pairs = had.windows(2);
        turns += pairs
            .filter(|pair| pair[0].0 == pair[1].0 && pair[0].2 != pair[1].2)
            .count();
    }
    assert!(theirs > 30, "{theirs} holds of Redisson's");
    assert!(turns > 30, "{turns} turns");
}
