//! Routes that go on: how a rush goes, and a visitor's place in the waiting room.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::stream::{self, Stream, StreamExt};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::App;
use super::id::Id;
use super::problem::Problem;
use super::session::{User, pass};
use crate::service::{RoomEvent, SAMPLE, ShopError};

/// Tells how a rush goes until nothing more is to come.
pub(super) async fn rush(
    State(app): State<App>,
    Id(id): Id,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    // An unknown rush is a problem and not a stream.
    app.shop.rush_state(&id).await?;
    let closing = app.closing.clone();
    // What happens between two events is in the second one.
    let mut ticks = interval(SAMPLE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let samples = stream::unfold(Some((app, id, ticks)), async |state| {
        let (app, id, mut ticks): (App, String, Interval) = state?;
        ticks.tick().await;
        let (event, done) = match app.shop.rush_sample(&id).await {
            Ok(state) => (event("rush", &*state), state.done),
            // The database may be back at the next sample.
            Err(error) => (event("pause", &reason(error)), false),
        };
        Some((Ok(event), (!done).then_some((app, id, ticks))))
    });
    Ok(Sse::new(until_closing(samples, closing)).keep_alive(KeepAlive::default()))
}

/// Lets a user wait for the pass that opens a sale.
pub(super) async fn room(
    State(app): State<App>,
    User(user): User,
    Id(voucher): Id,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let places = app.shop.enter(&voucher).await?;
    let closing = app.closing.clone();
    let events = stream::unfold(
        (places, app, voucher),
        move |(mut places, app, voucher)| async move {
            let told = places.recv().await?;
            let event = match told {
                RoomEvent::Admitted => {
                    let pass = pass(&app.key, &voucher, user);
                    event("admitted", &json!({ "pass": pass }))
                }
                RoomEvent::Position { before } => event("position", &json!({ "before": before })),
                RoomEvent::Closed(error) => event("closed", &reason(error)),
            };
            Some((Ok(event), (places, app, voucher)))
        },
    );
    Ok(Sse::new(until_closing(events, closing)).keep_alive(KeepAlive::default()))
}

/// What a browser may know of it.
fn reason(error: ShopError) -> Value {
    json!({ "reason": Problem::from(error).detail })
}

fn event(name: &str, data: &impl Serialize) -> Event {
    Event::default()
        .event(name)
        .json_data(data)
        .unwrap_or_else(|_| Event::default().event("pause"))
}

/// The stream, until the instance closes: it would otherwise be waited for.
fn until_closing<T>(
    events: impl Stream<Item = T>,
    mut closing: watch::Receiver<bool>,
) -> impl Stream<Item = T> {
    events.take_until(async move {
        // A sender that is gone closes too.
        let _ = closing.wait_for(|closing| *closing).await;
    })
}
