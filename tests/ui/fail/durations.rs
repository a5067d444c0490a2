use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", wait = "")]
async fn duration_empty(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", wait = "1.5s")]
async fn duration_fraction(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", wait = "-1s")]
async fn duration_negative(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", max_hold = "99999999999999999999h")]
async fn duration_overflow(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lease = "1min")]
async fn duration_unit(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", wait = 10)]
async fn duration_without_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", wait = "10")]
async fn duration_without_unit(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lease = "900us")]
async fn lease_below_a_millisecond(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lease = forever)]
async fn lease_forever(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lease = "10s", lease = "20s")]
async fn lease_twice(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lease = "0s")]
async fn lease_zero(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lease = "30s", max_hold = "10s")]
async fn max_hold_below_lease(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lease = "10s", max_hold = "1m", renew = false)]
async fn max_hold_never_reached(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", max_hold = none)]
async fn max_hold_none(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", max_hold = "1m", wait = "1s", max_hold = "2m")]
async fn max_hold_twice(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", max_hold = "0s")]
async fn max_hold_zero(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", min_hold = "2m", max_hold = "1m")]
async fn min_hold_above_max_hold(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", min_hold = "1s", kind = read)]
async fn min_hold_of_a_read_lock(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", min_hold = "1s", kind = semaphore(limit = 3))]
async fn min_hold_of_a_semaphore(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", min_hold = "0s")]
async fn min_hold_zero(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lease = "10s", renew = "10s")]
async fn renew_as_long_as_lease(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", renew = "yes")]
async fn renew_is_no_bool(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", renew = none)]
async fn renew_none(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", renew = true, renew = false)]
async fn renew_twice(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", renew = 3s)]
async fn renew_without_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", renew = "0s")]
async fn renew_zero(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", wait = "forever")]
async fn wait_forever_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", wait = forever, on_timeout = skip)]
async fn wait_forever_with_on_timeout(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", wait = true)]
async fn wait_is_a_bool(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", wait = none)]
async fn wait_none(user_id: u64) -> Result<(), Error> { Ok(()) }

fn main() {}
