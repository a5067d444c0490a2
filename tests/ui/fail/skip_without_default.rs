use redlock_rt::{Error, distributed_lock};

struct Receipt;

#[distributed_lock(key = "order:<user_id>", on_timeout = skip)]
async fn place(user_id: u64) -> Result<Receipt, Error> {
    Ok(Receipt)
}

fn main() {}
