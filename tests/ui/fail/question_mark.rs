use redlock_rt::{Error, distributed_lock};

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

fn main() {}
