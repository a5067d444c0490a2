use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<text>")]
async fn parse(text: &str) -> Result<u64, Error> {
    Ok(text.parse::<u64>()?)
}

fn main() {}
