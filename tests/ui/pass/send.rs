//! The future is `Send` as it was without the attribute.

use std::rc::Rc;

use redlock_rt::{Error, distributed_lock};

struct Id(u64);

impl Id {
    /// Part of a key, gone before anything is awaited.
    fn text(&self) -> Rc<str> {
        self.0.to_string().into()
    }
}

#[distributed_lock(key = "order:<id.text()>")]
async fn place(id: Id, items: &mut Vec<String>) -> Result<usize, Error> {
    let len = {
        let local = Rc::new(items.len());
        *local
    };
    std::future::ready(()).await;
    items.clear();
    Ok(len)
}

#[distributed_lock(key = "boxed")]
async fn boxed_error() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    std::future::ready(()).await;
    Ok(())
}

fn is_send(_: impl Send) {}

fn main() {
    is_send(place(Id(1), &mut Vec::new()));
    is_send(boxed_error());
}
