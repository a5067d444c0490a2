//! The call that ends a hold. That of a fair lock may give the lock to a waiter of this client.

use crate::engine::hold::Hold;
use crate::engine::news::News;
use crate::mutant;
use crate::wire::Call;

/// The call that ends a hold. `granting`: the one that was sent before, if it names waiters.
pub(super) fn end_of(hold: &Hold, granting: &mut Option<Call>, is_first: bool) -> Call {
    if let Some(call) = hold.min_hold_call() {
        return call;
    }
    if is_first {
        *granting = grant_of(hold);
    }
    match (&granting, hold.repeated) {
        (Some(call), _) => call.clone(),
        (None, true) => hold.recipe.withdraw(&hold.id),
        (None, false) => hold.recipe.release(&hold.id),
    }
}

/// The release that gives the lock to the next waiter in the queue, if that is one of this client.
fn grant_of(hold: &Hold) -> Option<Call> {
    let engine = &hold.engine;
    hold.recipe.queue()?;
    if engine.config.hand_over.is_zero() || engine.is_closing() {
        return None;
    }
    let waiters = engine.fair.next_in_line(hold.recipe.name());
    (!waiters.is_empty()).then_some(())?;
    hold.recipe.grant(&hold.id, &waiters)
}

/// The release that named waiters is over. `news`: what Redis has answered; `None`: nothing, or a refusal.
pub(super) fn granted(hold: &Hold, news: Option<&News>) {
    let (engine, name) = (&hold.engine, hold.recipe.name());
    let Some(news) = news else {
        return engine.fair.ask_next(name);
    };
    let News::Announced(announcement, sent) = news else {
        return;
    };
    let waiter = announcement.waiter.as_ref();
    let number = waiter.and_then(|waiter| engine.id.number_of(waiter));
    let told = !mutant::on("a_waiter_is_not_told_that_it_has_the_lock");
    if let (true, Some(number)) = (announcement.is_granted && told, number) {
        engine.fair.grant(name, number, *sent);
    }
}
