//! A process that ends while it holds a lock or a permit.
//!
//!     leaver URL NAME WHAT RUNTIME END
//!
//! WHAT is `guard`, `nested` (two guards of one hold), `many` (that many locks), `permit` or `latch`
//! (a pending count-down); RUNTIME is `current` or `workers`. END is how the process ends: `drop` (the
//! end of `main`), `exit` (a drop, then `process::exit`), `dedicated` (`drop`, with a separate thread
//! for the client), `flush` (the same with `flush_on_drop`) or `shutdown`.

use std::{any::Any, env, error::Error, time::Duration};

use redlock_rt::{Client, Shutdown};
use tokio::runtime::Builder;

const MANY: usize = 500;
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [url, name, what, runtime, end] = &arguments[..] else {
        return Err("usage: leaver URL NAME WHAT RUNTIME END".into());
    };
    let mut builder = Client::builder().url(url);
    if matches!(end.as_str(), "dedicated" | "flush") {
        builder = builder.dedicated_thread(true);
    }
    if end == "flush" {
        builder = builder.flush_on_drop(PATIENCE);
    }
    let runtime = match runtime.as_str() {
        "current" => Builder::new_current_thread().enable_all().build()?,
        "workers" => Builder::new_multi_thread().enable_all().build()?,
        other => return Err(format!("no such runtime: {other}").into()),
    };
    runtime.block_on(async {
        let client = builder.connect().await?;
        let held = hold(&client, name, what).await?;
        match end.as_str() {
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

async fn hold(client: &Client, name: &str, what: &str) -> Result<Box<dyn Any>, Box<dyn Error>> {
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
