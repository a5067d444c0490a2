use redlock_rt::distributed_lock;

struct AppError;

#[distributed_lock(key = "order:<user_id>")]
async fn place(user_id: u64) -> Result<(), AppError> {
    Ok(())
}

fn main() {}
