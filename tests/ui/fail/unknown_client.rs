use redlock_rt::{Error, distributed_lock};

struct Shop;

impl Shop {
    #[distributed_lock(key = "shop", client = self.locks)]
    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}
