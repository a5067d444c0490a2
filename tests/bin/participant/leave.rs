//! A process that ends while it holds a lock or a permit.
//!
//! WHAT is `guard`, `nested` (two guards of one hold), `many` (that many locks), `permit` or `latch`
//! (a pending count-down); RUNTIME is `current` or `workers`. END is how the process ends: `drop` (the
//! end of `main`), `exit` (a drop, then `process::exit`), `dedicated` (`drop`, with a separate thread
//! for the client), `flush` (the same with `flush_on_drop`) or `shutdown`.

use std::{any::Any, time::Duration};

use redlock_rt::{Client, Shutdown};
use tokio::runtime::Builder;

use super::Failure;

const MANY: usize = 500;
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run(
    url: &str,
    name: &str,
    what: &str,
    runtime: &str,
    end: &str,
) -> Result<(), Failure> {
    let mut builder = Client::builder().url(url);
    if matches!(end, "dedicated" | "flush") {
        builder = builder.dedicated_thread(true);
    }
    if end == "flush" {
        builder = builder.flush_on_drop(PATIENCE);
    }
    let runtime = match runtime {
        "current" => Builder::new_current_thread().enable_all().build()?,
        "workers" => Builder::new_multi_thread().enable_all().build()?,
        other => return Err(format!("no such runtime: {other}").into()),
    };
    runtime.block_on(async {
        let client = builder.connect().await?;
        let held = hold(&client, name, what).await?;
        match end {
            "shutdown" => {
                drop(held);
                client.shutdown(Shutdown::Drain(PATIENCE)).await?;
            }
            "exit" => {
                drop(held);
                std::process::exit(0);
            }
            // The guard is dropped before the client, like locals.
            _ => drop(held),
        }
        Ok(())
    })
}

async fn hold(client: &Client, name: &str, what: &str) -> Result<Box<dyn Any>, Failure> {
    Ok(match what {
        "guard" => Box::new(client.rlock(name).lock().await?),
        "nested" => {
            let guard = client.rlock(name).lock().await?;
            // The fields of a tuple are dropped in order: the inner one first.
            Box::new((guard.reenter().await?, guard))
        }
        "many" => {
            let mut guards = Vec::new();
            for number in 0..MANY {
                guards.push(client.rlock(format!("{name}:{number}")).lock().await?);
            }
            Box::new(guards)
        }
        "permit" => Box::new(client.semaphore(name).acquire().await?),
        "latch" => Box::new(client.count_down_latch(name).count_down_guard()?),
        other => return Err(format!("nothing to hold: {other}").into()),
    })
}
