//! Two users swap their vouchers: both locks or none, and both orders or none.

use redlock_rt::distributed_lock;

use super::{Shop, ShopError};
use crate::store::{Order, Swap, Swapped};

impl Shop {
    /// Says that the user would give this order for another.
    pub(crate) async fn offer(&self, user_id: i64, order_id: &str) -> Result<Order, ShopError> {
        if self.store.offer(order_id, user_id).await? {
            self.order_of(user_id, order_id).await
        } else {
            Err(ShopError::NoSuchOrder)
        }
    }

    /// Gives an order of the user for one that is offered.
    pub(crate) async fn swap(
        &self,
        user_id: i64,
        order_id: &str,
        for_order_id: &str,
    ) -> Result<(), ShopError> {
        let mine = self.order_of(user_id, order_id).await?;
        let other = self.store.order(for_order_id).await?;
        let Some(other) = other.filter(|other| other.offered && other.user_id != user_id) else {
            return Err(ShopError::NotOffered);
        };
        self.swap_under_both(user_id, other.user_id, &mine, &other)
            .await
    }

    /// These are the locks of orders, so that neither user orders meanwhile. They are taken in one
    /// order whoever swaps with whom: two swaps the other way round do not wait for each other.
    #[distributed_lock(
        keys = ["order:<user_id>", "order:<other_id>"],
        wait = "1s",
        client = self.locks
    )]
    async fn swap_under_both(
        &self,
        user_id: i64,
        other_id: i64,
        mine: &Order,
        other: &Order,
    ) -> Result<(), ShopError> {
        let swap = Swap {
            order: &mine.id,
            of: user_id,
            with_order: &other.id,
            with_of: other_id,
        };
        match self.store.swap(&swap).await? {
            Swapped::Yes => Ok(()),
            Swapped::Changed => Err(ShopError::NotOffered),
            Swapped::Twice => Err(ShopError::SwappedTwice),
        }
    }
}
