use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", on_timeout = call(busy(user_id)))]
async fn call_of_a_call(user_id: u64) -> Result<(), Error> { Ok(()) }

mod call_with_a_pattern_parameter {
    use super::*;

    struct Order {
        id: u64,
    }

    #[distributed_lock(key = "order:<id>", on_timeout = call(busy))]
    async fn place(Order { id }: Order) -> Result<(), Error> {
        Ok(())
    }
}

#[distributed_lock(key = "order", on_unavailable = call(busy))]
async fn call_with_an_unnamed_parameter(_: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = call)]
async fn call_without_path(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", guard = held, when = user_id > 0)]
async fn guard_with_when(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", map_err = "AppError::Lock")]
async fn map_err_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", map_err = AppError::lock("busy"))]
async fn map_err_is_a_call(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_lost = "finish")]
async fn on_lost_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_lost = ignore)]
async fn on_lost_unknown(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = default)]
async fn on_timeout_default(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = fail)]
async fn on_timeout_fail(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = ignore)]
async fn on_timeout_ignore(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = "skip")]
async fn on_timeout_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = crate::busy)]
async fn on_timeout_is_a_path(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = Ok(()))]
async fn on_timeout_is_a_value(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = run_unlocked)]
async fn on_timeout_runs_unlocked(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = throw)]
async fn on_timeout_throw(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = skp)]
async fn on_timeout_unknown(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_unavailable = proceed)]
async fn on_unavailable_runs_unlocked(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_unavailable = retry)]
async fn on_unavailable_unknown(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = skip)]
async fn skip_returns_nothing(user_id: u64) {}

#[distributed_lock(key = "order:<user_id>", on_timeout = skip(()))]
async fn skip_with_arguments(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = value())]
async fn value_of_nothing(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = value)]
async fn value_without_expression(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", when = "user_id > 0")]
async fn when_in_quotes(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", when = 1)]
async fn when_is_a_number(user_id: u64) -> Result<(), Error> { Ok(()) }

fn main() {}
