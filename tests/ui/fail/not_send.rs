use redlock_rt::{Error, distributed_lock};

use std::rc::Rc;

#[distributed_lock(key = "order:<user_id>")]
async fn place(user_id: u64) -> Result<(), Error> {
    let own = Rc::new(user_id);
    std::future::ready(()).await;
    drop(own);
    Ok(())
}

fn is_send(_: impl Send) {}

fn main() {
    is_send(place(1));
}
