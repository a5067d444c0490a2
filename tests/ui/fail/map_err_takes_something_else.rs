use redlock_rt::distributed_lock;

fn locked(_: std::io::Error) -> String {
    "locked".to_owned()
}

#[distributed_lock(key = "order:<user_id>", map_err = locked)]
async fn place(user_id: u64) -> Result<(), String> {
    Ok(())
}

fn main() {}
