//! Paying an order: the payment service is slow and takes few calls at a time.

use redlock_rt::distributed_lock;

use super::{Shop, ShopError, now};
use crate::payment::Payments;
use crate::store::Order;

impl Shop {
    /// Pays an order of the user.
    pub(crate) async fn pay(&self, user_id: i64, order_id: &str) -> Result<Order, ShopError> {
        let payments = self.payments.as_ref().ok_or(ShopError::NoPayments)?;
        let order = self.order_of(user_id, order_id).await?;
        if order.paid_at.is_some() {
            return Err(ShopError::AlreadyPaid);
        }
        // The order's id is the payment's too: asked for twice, it is made once.
        self.call_payments(payments, &order).await?;
        self.store.paid(order_id, now()).await?;
        self.order_of(user_id, order_id).await
    }

    /// At most four calls at a time, over all instances. A permit of an instance that dies is free
    /// again after its lease.
    #[distributed_lock(
        key = "payments",
        kind = semaphore(limit = 4),
        wait = "2s",
        client = self.locks
    )]
    async fn call_payments(&self, payments: &Payments, order: &Order) -> Result<(), ShopError> {
        Ok(payments.pay(&order.id, order.price_cents).await?)
    }

    pub(super) async fn order_of(&self, user: i64, order_id: &str) -> Result<Order, ShopError> {
        let order = self.store.order(order_id).await?;
        order
            .filter(|order| order.user_id == user)
            .ok_or(ShopError::NoSuchOrder)
    }
}
