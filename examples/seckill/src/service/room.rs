//! The waiting room in front of a sale: first come, first served, over all instances.

use std::sync::Arc;
use std::time::Duration;

use redlock_rt::{LockOptions, Owner};
use tokio::sync::mpsc;

use super::{Shop, ShopError};

/// How often a visitor's place is looked up.
const LOOK: Duration = Duration::from_millis(250);

/// What a visitor is told.
#[derive(Debug)]
pub(crate) enum RoomEvent {
    /// So many are served before this visitor.
    Position { before: u64 },
    /// The visitor may order.
    Admitted,
    /// The room is closed: locks cannot be had.
    Closed(ShopError),
}

impl Shop {
    /// Enters the waiting room of a sale. Dropping the receiver leaves the queue.
    ///
    /// The fair lock is held for the pace at which visitors are let in, and by nobody in particular:
    /// the pass that a visitor gets is what opens the sale.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        voucher_id: &str,
    ) -> Result<mpsc::Receiver<RoomEvent>, ShopError> {
        self.sale(voucher_id).await?;
        // One event at a time: no place is looked up before the last one was read.
        let (events, receiver) = mpsc::channel(1);
        let (shop, voucher_id) = (Arc::clone(self), voucher_id.to_owned());
        tokio::spawn(async move {
            tokio::select! {
                () = events.closed() => {}
                last = shop.queue(&voucher_id, &events) => {
                    // A visitor that has gone needs no pass.
                    let _ = events.send(last).await;
                }
            }
        });
        Ok(receiver)
    }

    /// Waits in the queue, tells the visitor's place, and returns how that ended.
    async fn queue(&self, voucher_id: &str, events: &mpsc::Sender<RoomEvent>) -> RoomEvent {
        let door = self.locks.fair_lock(format!("door:{voucher_id}"));
        let me = Owner::new();
        let options = LockOptions::new()
            .wait(None)
            .owner(&me)
            .min_hold(self.config.pace);
        let places = async {
            let mut last = None;
            loop {
                if let Ok(Some(before)) = door.position(&me).await
                    && last.replace(before) != Some(before)
                {
                    let _ = events.send(RoomEvent::Position { before }).await;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            entered = door.lock_with(options) => match entered {
                Ok(guard) => {
                    drop(guard);
                    RoomEvent::Admitted
                }
                Err(error) => RoomEvent::Closed(error.into()),
            },
            never = places => never,
        }
    }

    /// How many are in the waiting room.
    pub(crate) async fn room_len(&self, voucher_id: &str) -> Result<u64, ShopError> {
        Ok(self
            .locks
            .fair_lock(format!("door:{voucher_id}"))
            .queue_len()
            .await?)
    }
}
