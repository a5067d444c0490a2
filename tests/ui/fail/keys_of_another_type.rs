use redlock_rt::{Error, distributed_lock};

struct User;

#[distributed_lock(keys = users)]
async fn place(users: Vec<User>) -> Result<(), Error> {
    Ok(())
}

fn main() {}
