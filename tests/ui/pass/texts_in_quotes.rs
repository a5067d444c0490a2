//! Keys from which each value can be told.

#![deny(warnings)]
#![allow(dead_code)]

use redlock_rt::{Error, distributed_lock};

pub struct Order {
    pub id: String,
}

#[distributed_lock(key = "<tenant:?>:<item>")]
pub async fn reserve(tenant: &str, item: String) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "<shelf>:<item>:<item>")]
pub async fn restock(shelf: u32, item: &str) -> Result<(), Error> {
    Ok(())
}

/// The types of fields are not known to the attribute.
#[distributed_lock(key = "<tenant>:<order.id>")]
pub async fn ship(tenant: &str, order: &Order) -> Result<(), Error> {
    Ok(())
}

/// The key is that of another service.
#[allow(deprecated)]
#[distributed_lock(key = "<tenant>:<item>")]
pub async fn shared(tenant: &str, item: &str) -> Result<(), Error> {
    Ok(())
}

fn main() {}
