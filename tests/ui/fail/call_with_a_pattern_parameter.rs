use redlock_rt::{Error, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:<id>", on_timeout = call(busy))]
async fn place(Order { id }: Order) -> Result<(), Error> {
    Ok(())
}

fn main() {}
