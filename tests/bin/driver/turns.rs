//! The commands of one owner run one after the other, in the order in which they were read.

use std::{pin::Pin, sync::Arc, task::Poll};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// The queue of one owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<()>>);

/// A place in the queue; given up when dropped.
pub(crate) enum Turn {
    Come(OwnedMutexGuard<()>),
    Waiting(Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send>>),
}

impl Turns {
    /// Takes the next place.
    ///
    /// The order of the mutex is that of the first polls. Tasks of several threads would poll in any
    /// order, so the first poll is here.
    pub(crate) async fn queue(&self) -> Turn {
        let mut turn: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(self.0.clone().lock_owned());
        match futures::poll!(&mut turn) {
            Poll::Ready(guard) => Turn::Come(guard),
            Poll::Pending => Turn::Waiting(turn),
        }
    }
}

impl Turn {
    /// Waits for the turn, which lasts as long as the guard.
    pub(crate) async fn come(self) -> OwnedMutexGuard<()> {
        match self {
            Self::Come(guard) => guard,
            Self::Waiting(turn) => turn.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn turns_come_in_the_order_of_the_queue() {
        let turns = Turns::default();
        let (first, second, third) = (
            turns.queue().await,
            turns.queue().await,
            turns.queue().await,
        );
        let mut third = Box::pin(third.come());
        assert!(
            (&mut third).now_or_never().is_none(),
            "asked first, not its turn"
        );
        let mut second = Box::pin(second.come());
        assert!((&mut second).now_or_never().is_none());
        drop(first.come().await);
        assert!((&mut third).now_or_never().is_none());
        drop(second.await);
        third.await;
    }

    #[tokio::test]
    async fn a_place_given_up_lets_nobody_overtake() {
        let turns = Turns::default();
        let (first, second, third) = (
            turns.queue().await,
            turns.queue().await,
            turns.queue().await,
        );
        drop(second);
        let mut third = Box::pin(third.come());
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        third.await;
    }
}
