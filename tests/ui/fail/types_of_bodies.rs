use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>")]
async fn body_returns_another_type(user_id: u64) -> Result<String, Error> { Ok(user_id) }

#[distributed_lock(key = "order:<user_id>")]
async fn body_returns_nothing(user_id: u64) -> Result<(), Error> {
    user_id + 1;
}

#[distributed_lock(key = "order:<user_id>")]
async fn early_return_of_another_type(user_id: u64) -> Result<String, Error> {
    if user_id == 0 {
        return user_id;
    }
    Ok(user_id.to_string())
}

mod question_mark {
    use super::*;

    struct AppError;

    impl From<Error> for AppError {
        fn from(_: Error) -> Self {
            Self
        }
    }

    #[distributed_lock(key = "order:<text>")]
    async fn parse(text: &str) -> Result<u64, AppError> {
        Ok(text.parse::<u64>()?)
    }
}

#[distributed_lock(key = "order:<user_id>")]
async fn returns_no_result(user_id: u64) -> Option<u64> {
    Some(user_id)
}

fn main() {}
