//! What the shop does by itself, on whichever instance comes first.

use redlock_rt::distributed_lock;

use super::{Shop, ShopError, millis, new_id, now};
use crate::store::Settlement;

impl Shop {
    /// Settles what was paid; `None` where another instance is at it.
    ///
    /// An instance that is paused in here for longer than its lease would settle beside the next one.
    /// It sends its token with what it writes, and the database refuses the smaller one.
    #[distributed_lock(
        key = "settlement",
        kind = fenced,
        token = token,
        wait = "0s",
        on_timeout = skip,
        client = self.locks
    )]
    pub(crate) async fn settle(&self) -> Result<Option<Settlement>, ShopError> {
        let token = i64::try_from(token).unwrap_or(i64::MAX);
        let settled = self.store.settle(&new_id(), token, now()).await?;
        match &settled {
            None => tracing::warn!(token, "settled by somebody with a newer lock"),
            Some(done) if done.orders > 0 => {
                tracing::info!(token, orders = done.orders, "orders settled");
            }
            Some(_) => {}
        }
        Ok(settled)
    }

    /// Ends the sales that have been over for long enough, once in ten seconds over all instances.
    ///
    /// It is done before the last instance asks; `min_hold` keeps that one out.
    #[distributed_lock(
        key = "prune",
        wait = "0s",
        min_hold = "10s",
        on_timeout = skip,
        client = self.locks
    )]
    pub(crate) async fn prune(&self) -> Result<Option<(u64, u64)>, ShopError> {
        let ended_before = now().saturating_sub(millis(self.config.keep));
        let (sales, orders) = self
            .change_catalogue(async || self.store.prune(ended_before).await)
            .await?;
        if sales > 0 {
            tracing::info!(sales, orders, "expired sales removed");
        }
        Ok(Some((sales, orders)))
    }

    /// The newest settlements.
    pub(crate) async fn settlements(&self) -> Result<Vec<Settlement>, ShopError> {
        Ok(self.store.settlements().await?)
    }
}
