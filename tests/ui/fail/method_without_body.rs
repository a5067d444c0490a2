use redlock_rt::{Error, distributed_lock};

trait Shop {
    #[distributed_lock(key = "shop")]
    async fn close(&self) -> Result<(), Error>;
}

fn main() {}
