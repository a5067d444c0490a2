use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<item.into_boxed_str()>")]
async fn place(item: String) -> Result<String, Error> {
    Ok(item)
}

fn main() {}
