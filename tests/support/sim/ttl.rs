//! Another program sets how long a lock lives: its holder brings that back to its lease when it next renews.

use super::run::World;
use crate::history::{Mode, Ms, Violation};

/// Longer than any lease of a plan.
const LONG: Ms = 60_000;
/// A renewal comes after a third of the lease.
const RENEWED: Ms = 3;
/// Ways of a message for the renewal, and for the call that cuts what is too long.
const WAYS: Ms = 16;
/// How often this is looked at, and what the order of tasks adds.
const SLACK: Ms = 20;

/// See the module.
pub(super) struct SetTtl {
    key: String,
    server: usize,
    at: Ms,
    /// Who had it then.
    owners: Vec<String>,
}

impl World {
    /// Sets it so far, or takes it off.
    pub(super) fn set_ttl(&mut self, server: usize, thing: usize, to: Option<Ms>) {
        if !self.plan.things[thing].is_lock() {
            return;
        }
        let key = self.plan.things[thing].key(thing);
        let engine = &mut self.nodes[server].server;
        match to {
            Some(to) => engine.wipe(&["PEXPIRE", &key, &to.to_string()]),
            None => engine.wipe(&["PERSIST", &key]),
        }
        let owners = engine.list(&["HKEYS", &key]);
        let at = self.now;
        self.log.lock().history.ttls.push((at, key.clone()));
        self.ttls.retain(|one| one.key != key);
        self.ttls.push(SetTtl {
            key,
            server,
            at,
            owners,
        });
    }

    /// Whether another program keeps a lock that this owner had then, for longer than its release is repeated.
    pub(super) fn is_kept(&self, key: &str, owner: &str) -> bool {
        let mut kept = self.ttls.iter().filter(|one| one.key == key);
        kept.any(|one| one.owners.iter().any(|had| had == owner))
    }

    /// An operator deletes a lock that no lease ends.
    pub(super) fn mend_ttl(&mut self, server: usize, thing: usize) {
        let key = self.plan.things[thing].key(thing);
        if self.plan.things[thing].is_lock() && self.is_long(server, &key) {
            self.evict(server, &key);
        }
    }

    fn is_long(&self, server: usize, key: &str) -> bool {
        let server = &self.nodes[server].server;
        let exists = server.number(&["EXISTS", key]) == Some(1);
        exists
            && server
                .number(&["PTTL", key])
                .is_none_or(|lives| lives > LONG)
    }

    /// A lock that is too long although its holder has renewed it since.
    pub(super) fn look_at_ttls(&mut self) {
        let long = self
            .ttls
            .iter()
            .filter(|one| self.is_long(one.server, &one.key));
        let found: Vec<Violation> = long.filter_map(|one| self.is_left(one)).collect();
        self.ttls
            .retain(|one| !found.iter().any(|found| found.what.starts_with(&*one.key)));
        self.ghosts.extend(found);
    }

    fn is_left(&self, one: &SetTtl) -> Option<Violation> {
        let written = self.log.lock();
        let all = written.history.acquisitions.iter();
        let mut of_key = all.filter(|of| of.key == one.key && of.mode == Mode::Exclusive);
        let terms = &self.plan.terms;
        let holder = of_key.find_map(|of| {
            let grant = of
                .grant
                .as_ref()
                .filter(|grant| grant.ended.is_none() && grant.renewed)?;
            let mut owners = one.owners.iter();
            let had = owners.any(|owner| owner.trim_end_matches(":write") == grant.owner);
            let due =
                one.at.max(grant.at) + grant.longest()? / RENEWED + WAYS * terms.latency.1 + SLACK;
            // Whoever is lost, or not well, renews nothing.
            let well = grant.lost.is_none()
                && !self
                    .struck
                    .iter()
                    .any(|struck| struck.may_hinder(of.called));
            let mut foreign = written.history.foreign.iter();
            let ours = foreign.all(|one| one.process != of.process);
            (had && well && ours && self.now > due).then_some(&grant.owner)
        })?;
        let what = format!(
            "{}: {holder} renews it, and it lives for longer since {} ms",
            one.key, one.at
        );
        Some(Violation::new("ttl", self.now, what))
    }
}
