//! Functions that run once for a fire: what they must return, and what does not go with `once`.

use redlock_rt::{Error, Owner, distributed_lock};
use std::time::SystemTime;

#[distributed_lock(key = "nightly", once = fire)]
async fn says_nothing_of_not_being_run(fire: SystemTime) -> Result<u32, Error> {
    Ok(1)
}

#[distributed_lock(key = "nightly", once = "<fire>")]
async fn quoted(fire: SystemTime) -> Result<Option<u32>, Error> {
    Ok(None)
}

#[distributed_lock(key = "nightly", once = fire)]
async fn no_time(fire: u32) -> Result<Option<u32>, Error> {
    Ok(None)
}

#[distributed_lock(
    key = "nightly",
    once = fire,
    kind = fair,
    owner = owner,
    min_hold = "1s",
    on_timeout = skip,
    when = true,
)]
async fn much_at_once(fire: SystemTime, owner: Owner) -> Result<Option<u32>, Error> {
    Ok(None)
}

#[distributed_lock(keys = ["a", "b"], once = fire)]
async fn several(fire: SystemTime) -> Result<Option<u32>, Error> {
    Ok(None)
}

fn main() {}
