//! Paying an order: the payment service is slow and takes few calls at a time.

use redlock_rt::distributed_lock;

use super::{Shop, ShopError, now};
use crate::client::CallError;
use crate::payment::{PaymentError, Payments};
use crate::store::Order;

impl Shop {
    /// Pays an order of the user.
    pub(crate) async fn pay(&self, user_id: i64, order_id: &str) -> Result<Order, ShopError> {
        let payments = self.payments.as_ref().ok_or(ShopError::NoPayments)?;
        let order = self.order_of(user_id, order_id).await?;
        // Without a permit, for which others may wait.
        if order.paid_at.is_some() {
            return Err(ShopError::AlreadyPaid);
        }
        self.call_payments(payments, &order).await?;
        let paid_at = now();
        // Nothing to note is left where another request of the user has paid it meanwhile.
        self.store.paid(order_id, paid_at).await?;
        Ok(Order {
            paid_at: Some(paid_at),
            offered: false,
            ..order
        })
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
        // From here on the order stays, and stays the user's: the money may be taken at any moment.
        if !self.store.paying(&order.id, order.user_id).await? {
            self.order_of(order.user_id, &order.id).await?;
            return Err(ShopError::AlreadyPaid);
        }
        // The order's id is the payment's too: asked for twice, it is made once.
        let paid = payments.pay(&order.id, order.price_cents).await;
        // After any other error it may be.
        if let Err(PaymentError::Declined | PaymentError::Unreachable(CallError::Connect)) = paid {
            self.store.declined(&order.id).await?;
        }
        Ok(paid?)
    }

    pub(super) async fn order_of(&self, user: i64, order_id: &str) -> Result<Order, ShopError> {
        let order = self.store.order(order_id).await?;
        order
            .filter(|order| order.user_id == user)
            .ok_or(ShopError::NoSuchOrder)
    }
}
