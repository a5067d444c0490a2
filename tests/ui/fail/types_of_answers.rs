use redlock_rt::{Error, distributed_lock};

struct Receipt;

enum AppError {
    Locked,
}

async fn untold(user_id: u64) -> u64 {
    user_id
}

fn not_async(user_id: u64) -> Result<u64, Error> {
    Ok(user_id)
}

async fn busy(user_id: u64) -> Result<u64, Error> {
    Ok(user_id)
}

async fn with_a_number(user_id: u64, _: u32) -> Result<u64, Error> {
    Ok(user_id)
}

fn text_of(_: Error) -> String {
    "locked".to_owned()
}

fn text_of_io(_: std::io::Error) -> String {
    "locked".to_owned()
}

#[distributed_lock(key = "order:<user_id>", on_timeout = call(untold))]
async fn call_of_another_type(user_id: u64) -> Result<u64, Error> { Ok(user_id) }

#[distributed_lock(key = "order:<user_id>", on_timeout = call(not_async))]
async fn call_of_sync_function(user_id: u64) -> Result<u64, Error> { Ok(user_id) }

#[distributed_lock(key = "order:<user_id>", on_timeout = call(busy))]
async fn call_with_fewer_parameters(user_id: u64, item: String) -> Result<u64, Error> { Ok(user_id) }

#[distributed_lock(key = "order:<user_id>", on_timeout = call(with_a_number))]
async fn call_with_other_parameters(user_id: u64, item: String) -> Result<u64, Error> { Ok(user_id) }

#[distributed_lock(key = "order:<user_id>", map_err = |error| error.to_string())]
async fn map_err_closure_of_another_type(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", map_err = text_of)]
async fn map_err_of_another_type(user_id: u64) -> Result<(), AppError> { Err(AppError::Locked) }

#[distributed_lock(key = "order:<user_id>", map_err = text_of_io)]
async fn map_err_takes_something_else(user_id: u64) -> Result<(), String> { Ok(()) }

#[distributed_lock(key = "order:<user_id>")]
async fn missing_from(user_id: u64) -> Result<(), AppError> { Ok(()) }

#[distributed_lock(key = "order:<user_id>", on_timeout = skip)]
async fn skip_without_default(user_id: u64) -> Result<Receipt, Error> { Ok(Receipt) }

#[distributed_lock(key = "order:<user_id>", on_unavailable = value(Ok("none")))]
async fn value_of_another_result(user_id: u64) -> Result<u64, Error> { Ok(user_id) }

#[distributed_lock(key = "order:<user_id>", on_timeout = value(user_id))]
async fn value_of_another_type(user_id: u64) -> Result<u64, Error> { Ok(user_id) }

fn main() {}
