//! The task that beats.

use std::sync::Arc;

use futures::future::join_all;

use super::{Room, Rooms};
use crate::clock;
use crate::connection::{Caller, Connection, Delivery, Fault};
use crate::wire::Beat;

/// Runs until the rooms are closed.
pub(crate) async fn run(rooms: Arc<Rooms>, connection: Arc<Connection>) {
    while !rooms.signal.is_closed() {
        let (due, next) = rooms.due(clock::now());
        if due.is_empty() {
            tokio::select! {
                () = rooms.signal.notified() => {}
                () = clock::sleep_until(next.unwrap_or_else(clock::now)), if next.is_some() => {}
            }
            continue;
        }
        join_all(due.iter().map(|room| beat(room, &connection))).await;
    }
}

async fn beat(room: &Room, connection: &Connection) {
    let Some(call) = room.beat(clock::now()) else {
        return;
    };
    let asked = Delivery::default().attempt(connection, || call, None).await;
    let Some(asked) = asked else {
        return;
    };
    let told = asked.and_then(|reply| Beat::decode(reply).map_err(Fault::from));
    match told {
        Ok(beat) => room.told(&beat, clock::now()),
        Err(fault) => {
            tracing::debug!(lock = room.name().as_str(), ?fault, "beat failed");
            match fault.is_passing_for(Caller::Beat) {
                true => room.untold(clock::now()),
                false => room.refused(clock::now()),
            }
        }
    }
}
