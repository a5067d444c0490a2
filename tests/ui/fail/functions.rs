use std::pin::Pin;

use redlock_rt::{Error, distributed_lock};

// As `#[async_trait]` leaves a pattern.
#[distributed_lock(key = "order:<id>")]
fn boxed_by_another_attribute(__arg0: (u64, u64)) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    Box::pin(async move {
        let (_id, _) = __arg0;
        Ok(())
    })
}

#[distributed_lock(key = "order:<user_id>")]
const fn const_fn(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id>")]
extern "C" fn extern_fn(user_id: u64) {}

mod method_without_body {
    use super::*;

    trait Shop {
        #[distributed_lock(key = "shop")]
        async fn close(&self) -> Result<(), Error>;
    }
}

#[distributed_lock(key = "order:<user_id>")]
fn not_async(user_id: u64) -> Result<(), Error> { Ok(()) }

mod on_impl {
    use super::*;

    struct Order;

    #[distributed_lock(key = "order")]
    impl Order {}
}

mod on_struct {
    use super::*;

    #[distributed_lock(key = "order")]
    struct Order;
}

#[distributed_lock(key = "order:<user_id>")]
fn returns_box_early(user_id: u64) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    if user_id == 0 {
        return Box::pin(async { Ok(()) });
    }
    Box::pin(async move { Ok(()) })
}

mod returns_box_of_another {
    use super::*;

    #[distributed_lock(key = "order:<user_id>")]
    fn place(user_id: u64) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
        Box::pin(inner(user_id))
    }

    async fn inner(_: u64) -> Result<(), Error> {
        Ok(())
    }
}

#[distributed_lock(key = "order:<user_id>")]
fn returns_box_of_nothing(user_id: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {})
}

#[distributed_lock(key = "order:<user_id>")]
fn returns_future(user_id: u64) -> impl Future<Output = Result<(), Error>> {
    async { Ok(()) }
}

#[distributed_lock(key = "order:<user_id>")]
async fn returns_iterator(user_id: u64) -> Result<impl Iterator<Item = u64>, Error> {
    Ok(0..user_id)
}

#[distributed_lock(key = "order:<user_id>")]
async fn returns_nothing(user_id: u64) {}

#[distributed_lock(key = "order:<user_id>")]
async fn returns_tuple(user_id: u64) -> (u64, u64) {
    (user_id, 1)
}

fn main() {}
