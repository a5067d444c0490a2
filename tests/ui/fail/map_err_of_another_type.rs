use redlock_rt::{Error, distributed_lock};

enum AppError {
    Locked,
}

fn locked(_: Error) -> String {
    "locked".to_owned()
}

#[distributed_lock(key = "order:<user_id>", map_err = locked)]
async fn place(user_id: u64) -> Result<(), AppError> {
    Err(AppError::Locked)
}

fn main() {}
