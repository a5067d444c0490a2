use redlock_rt::{Error, distributed_lock};

struct User;

#[distributed_lock(key = user)]
async fn place(user: User) -> Result<(), Error> {
    Ok(())
}

fn main() {}
