use redlock_rt::{Client, Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", crate = "redlock_rt")]
async fn crate_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", wait = "1s", wait = "2s")]
async fn duplicate_option(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", kind = fenced, guard = held, token = held)]
async fn guard_and_token_of_one_name(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", guard = user_id)]
async fn guard_hides_a_parameter(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", guard = mut held)]
async fn guard_is_a_pattern(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", guard = "held")]
async fn guard_is_no_name(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", guard = held)]
#[distributed_lock(key = "user:<user_id>", guard = held)]
async fn guard_twice_in_two_attributes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", client = self.)]
async fn half_written(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>" wait = "1s")]
async fn missing_comma(user_id: u64) -> Result<(), Error> { Ok(()) }

mod option_awaits {
    use super::*;

    async fn locks() -> Client {
        loop {}
    }

    #[distributed_lock(key = "report", client = locks().await)]
    async fn report() -> Result<(), Error> {
        Ok(())
    }
}

#[distributed_lock(key = "order:<user_id>", condition = user_id > 0)]
async fn option_condition(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", fail_strategy = skip)]
async fn option_fail_strategy(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", lockType = FAIR)]
async fn option_lock_type(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", leaseTime = "1s")]
async fn option_of_another_library(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", renew)]
async fn option_without_value(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", waits = "1s")]
async fn unknown_option(user_id: u64) -> Result<(), Error> { Ok(()) }

fn main() {}
