use redlock_rt::{Error, distributed_lock};

struct User;

struct Order {
    id: u64,
}

impl Order {
    fn number(&self) -> u64 {
        7
    }
}

#[distributed_lock(key = "order:<user:e>")]
async fn format_of_another_type(user: &str) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user>")]
async fn generic_not_display<T>(user: T) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = user)]
async fn key_expression_not_display(user: User) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = user_id)]
async fn keys_cannot_be_iterated(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(keys = users)]
async fn keys_of_another_type(users: Vec<User>) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<order.ids>")]
async fn misspelled_field(order: Order) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<order.numbers()>")]
async fn misspelled_method(order: Order) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<order.user>")]
async fn no_such_field(order: Order) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user_id.name()>")]
async fn no_such_method(user_id: u64) -> Result<(), Error> { Ok(()) }

#[distributed_lock(key = "order:<user>")]
async fn not_display(user: User) -> Result<(), Error> { Ok(()) }

fn main() {}
