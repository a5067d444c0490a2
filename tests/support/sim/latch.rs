//! What a task does with a latch.

use std::time::Duration;

use super::act::Host;
use super::log::LatchEntry;
use crate::history::{LatchAct, LatchCall, Ms};

impl Host {
    pub(super) fn latch_call(&self, process: u32, key: &str, act: LatchAct) -> LatchEntry {
        let call = LatchCall {
            process,
            key: key.to_owned(),
            called: self.clock.now(),
            act,
            over: None,
            returned: None,
        };
        self.log.latch(&self.clock, call)
    }

    pub(super) async fn count_down(&self, thing: usize, by_guard: bool) {
        let key = self.plan.things[thing].key(thing);
        let (client, process) = self.client();
        let latch = client.count_down_latch(&key);
        self.line(format!("h{} counts {key} down", self.place));
        let call = self.latch_call(process, &key, LatchAct::CountDown);
        if by_guard {
            drop(latch.count_down_guard());
            return;
        }
        let response = self.terms().response;
        let left = self
            .timed(process, "count_down", response, latch.count_down())
            .await;
        call.returned(left.ok());
    }

    pub(super) async fn wait(&self, thing: usize, wait: Option<Ms>) {
        let key = self.plan.things[thing].key(thing);
        let (client, process) = self.client();
        let latch = client.count_down_latch(&key);
        let call = self.latch_call(process, &key, LatchAct::Wait);
        let waiting = latch.wait_with(wait.map(Duration::from_millis));
        let opened = match wait {
            Some(wait) => self.timed(process, "wait for a latch", wait, waiting).await,
            None => waiting.await,
        };
        call.returned(opened.ok().map(|_| 0));
    }

    pub(super) async fn look_at_latch(&self, key: &str) {
        let (client, process) = self.client();
        let call = self.latch_call(process, key, LatchAct::Look);
        let latch = client.count_down_latch(key);
        let response = self.terms().response;
        let left = self.timed(process, "count", response, latch.count()).await;
        call.returned(left.ok());
    }
}
