use redlock_rt::{Client, Error, distributed_lock};

async fn locks() -> Client {
    loop {}
}

#[distributed_lock(key = "report", client = locks().await)]
async fn report() -> Result<(), Error> {
    Ok(())
}

fn main() {}
