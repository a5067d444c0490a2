use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>")]
async fn place(user_id: u64) -> Result<String, Error> {
    if user_id == 0 {
        return user_id;
    }
    Ok(user_id.to_string())
}

fn main() {}
