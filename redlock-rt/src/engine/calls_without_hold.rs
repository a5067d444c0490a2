//! Calls without a hold.

use std::sync::Arc;

use super::announcement::News;
use super::engine::ClientEngine;
use crate::clock;
use crate::connection::{Caller, Delivery, Fault, To};
use crate::error::{Error, ErrorKind};
use crate::name::LockName;
use crate::wire::{Call, LockRecipe, Malformed, NOTED, Operation, Reply, Slot, was_done};

/// What to do with a call whose reply was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The call changes nothing, and is sent again.
    Read,
    /// The call sets a state, and is sent again.
    Always,
    /// The call is sent again only if it cannot have run.
    UnlessRun,
}

impl ClientEngine {
    /// Sends a call that changes nothing. `read`: reads the reply.
    pub(crate) async fn ask<T>(
        self: &Arc<Self>,
        action: &'static str,
        name: &LockName,
        call: Call,
        read: impl FnOnce(Reply) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        self.send(action, name, call, Repeat::Read, read).await
    }

    /// A slot of each server. `pattern`: for the error.
    pub(crate) async fn slots_of_servers(
        self: &Arc<Self>,
        action: &'static str,
        pattern: &LockName,
    ) -> Result<Vec<Slot>, Error> {
        self.ensure_open(action, pattern)?;
        let slots = self.nodes.slot_of_each().await;
        slots.map_err(|fault| fault.into_error(action).named(pattern.as_arc()))
    }

    /// Sends a call without a hold, and waits for its reply.
    ///
    /// # Cancel safety
    ///
    /// The call may or may not run.
    pub(crate) async fn send<T>(
        self: &Arc<Self>,
        action: &'static str,
        name: &LockName,
        call: Call,
        repeat: Repeat,
        read: impl FnOnce(Reply) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let to = self.to(name);
        self.send_to(to, action, name, call, repeat, read).await
    }

    /// The same to any server. `name`: for the error.
    pub(crate) async fn send_to<T>(
        self: &Arc<Self>,
        to: To<'_>,
        action: &'static str,
        name: &LockName,
        call: Call,
        repeat: Repeat,
        read: impl FnOnce(Reply) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let mut delivery = Delivery::default();
        let reply = self.transmit(action, name, to, &call, repeat, &mut delivery);
        let mut reply = reply.await?;
        if let Some(channel) = call.channel() {
            let news;
            (reply, news) = News::split(reply, &delivery);
            self.ended_on(channel, &news);
        }
        let named = |fault: Fault| fault.into_error(action).named(name.as_arc());
        delivery.read(Ok(reply), read).map_err(named)
    }

    /// Frees a lock of any holder. Sent once: a repeat could free the lock of a later holder.
    ///
    /// # Cancel safety
    ///
    /// The call may or may not run.
    pub(crate) async fn force_release(
        self: &Arc<Self>,
        action: &'static str,
        recipe: &dyn LockRecipe,
    ) -> Result<bool, Error> {
        let mut delivery = Delivery::default();
        let (call, once) = (recipe.force_release(), Repeat::UnlessRun);
        self.end_chain(recipe);
        let to = self.to(recipe.name());
        let reply = self.transmit(action, recipe.name(), to, &call, once, &mut delivery);
        let reply = reply.await;
        self.end_chain(recipe);
        let (reply, news) = News::split(reply?, &delivery);
        self.ended(recipe, &news);
        let named = |fault: Fault| fault.into_error(action).named(recipe.name().as_arc());
        delivery.read(Ok(reply), was_done).map_err(named)
    }

    async fn transmit(
        self: &Arc<Self>,
        action: &'static str,
        name: &LockName,
        to: To<'_>,
        call: &Call,
        repeat: Repeat,
        delivery: &mut Delivery,
    ) -> Result<Reply, Error> {
        self.ensure_open(action, name)?;
        let (mut fault, mut tries): (Option<Fault>, _) = (None, 0);
        let until = self.patience(clock::now());
        let caller = match repeat {
            Repeat::Read | Repeat::Always => Caller::Call,
            Repeat::UnlessRun => Caller::CallOnce,
        };
        let outcome = loop {
            let attempt = delivery.attempt(to, || call.clone(), Some(until));
            match attempt.await {
                Some(Err(passing)) if passing.is_passing_for(caller) => {
                    let Some(pause) = self.config.timeouts.retry.next(&mut tries) else {
                        break Some(Err(passing));
                    };
                    let again = clock::after(clock::now(), pause);
                    let answered = !passing.is_of_dialing();
                    fault = Some(passing);
                    // A try that ends early would leave the outcome unknown.
                    if clock::after(again, pause) >= until {
                        break None;
                    }
                    if answered {
                        clock::sleep_until(again).await;
                    }
                }
                outcome => break outcome,
            }
        };
        let fault = match outcome {
            Some(Ok(reply)) => return Ok(reply),
            Some(Err(last)) => last,
            None => fault.unwrap_or_else(|| self.no_answer(name)),
        };
        // A call that waits for room has not run, and never will.
        delivery.recall();
        // A refusal says nothing about what was sent before.
        let is_unknown = delivery.is_open() && repeat != Repeat::Read && !fault.is_nonsense();
        let error = match fault.into_error(action) {
            error if is_unknown => error.known_as(ErrorKind::OutcomeUnknown),
            error => error,
        };
        Err(error.named(name.as_arc()))
    }

    /// Creates an id for a call. Redis keeps the id until the call is certainly not repeated any
    /// more.
    pub(crate) fn operation(&self) -> Operation {
        let now = clock::now();
        Operation {
            id: self.id.hold_id(self.next_number()),
            noted: NOTED.max((self.patience(now) - now) * 4),
        }
    }
}
