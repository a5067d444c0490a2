use redlock_rt::{Error, distributed_lock};

#[distributed_lock(key = "order:<user_id>", on_timeout = call(busy))]
async fn call_of_unknown_function(user_id: u64) -> Result<u64, Error> { Ok(user_id) }

#[distributed_lock(key = user.key)]
async fn key_expression_unknown(user_id: u64) -> Result<(), Error> { Ok(()) }

mod unknown_client {
    use super::*;

    struct Shop;

    impl Shop {
        #[distributed_lock(key = "shop", client = self.locks)]
        async fn close(&self) -> Result<(), Error> {
            Ok(())
        }
    }
}

fn main() {}
