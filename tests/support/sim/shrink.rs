//! Makes a plan that fails smaller, as long as it fails by the same rule.

use super::plan::Plan;
use super::run::run;

/// So many runs it may take.
const MOST: usize = 300;

/// The smallest plan that was found to break the same rule.
pub fn shrink(plan: &Plan) -> Plan {
    let Some(rule) = run(plan).violations.first().map(|violation| violation.rule) else {
        return plan.clone();
    };
    let mut best = plan.clone();
    let mut runs = 0;
    let mut fails = |plan: &Plan| {
        runs += 1;
        runs <= MOST
            && run(plan)
                .violations
                .iter()
                .any(|violation| violation.rule == rule)
    };
    loop {
        let before = best.clone();
        for smaller in smaller(&before) {
            if let Some(smaller) = smaller.filter(|smaller| fails(smaller)) {
                best = smaller;
                break;
            }
        }
        if best == before {
            return best;
        }
    }
}

/// Plans with something left out, the largest parts first.
fn smaller(plan: &Plan) -> impl Iterator<Item = Option<Plan>> {
    let hosts = (0..plan.hosts.len()).map(|host| without(plan, |plan| plan.hosts[host].clear()));
    let tasks = tasks_of(plan)
        .into_iter()
        .map(|(host, task)| without(plan, move |plan| plan.hosts[host][task].clear()));
    let faults = (0..plan.faults.len()).map(|fault| {
        without(plan, move |plan| {
            plan.faults.remove(fault);
        })
    });
    let halves = tasks_of(plan).into_iter().map(|(host, task)| {
        without(plan, move |plan| {
            let steps = &mut plan.hosts[host][task];
            steps.truncate(steps.len().div_ceil(2));
        })
    });
    let steps = tasks_of(plan).into_iter().flat_map(|(host, task)| {
        (0..plan.hosts[host][task].len()).map(move |step| (host, task, step))
    });
    let steps = steps.map(|(host, task, step)| {
        without(plan, move |plan| {
            plan.hosts[host][task].remove(step);
        })
    });
    hosts
        .chain(tasks)
        .chain(faults)
        .chain(halves)
        .chain(steps)
        .collect::<Vec<_>>()
        .into_iter()
}

fn tasks_of(plan: &Plan) -> Vec<(usize, usize)> {
    let hosts = plan.hosts.iter().enumerate();
    hosts
        .flat_map(|(host, tasks)| (0..tasks.len()).map(move |task| (host, task)))
        .collect()
}

/// `None` where nothing would be left out.
fn without(plan: &Plan, leave_out: impl FnOnce(&mut Plan)) -> Option<Plan> {
    let mut smaller = plan.clone();
    leave_out(&mut smaller);
    (smaller != *plan).then_some(smaller)
}
