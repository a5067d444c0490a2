#![deny(deprecated)]

use std::borrow::Cow;

use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "<tenant>:<item>")]
async fn reserve(tenant: &str, item: Cow<'_, str>) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["<from>:<id>", "<to>:<from>"])]
async fn transfer(from: String, to: &String, id: u64) -> Result<(), Error> {
    Ok(())
}

fn main() {}
