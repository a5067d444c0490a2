//! x
use redlock_rt::*;
#[tokio::test]
async fn sizes() {
    let client = Client::embedded();
    let lock = client.rlock("a");
    eprintln!("lock {}", size_of_val(&lock.lock()));
    eprintln!("try_lock {}", size_of_val(&lock.try_lock()));
    eprintln!("is_locked {}", size_of_val(&lock.is_locked()));
    eprintln!("with {}", size_of_val(&lock.with(async |_g| {})));
    let big = [0u8; 1000];
    eprintln!(
        "with1000 {}",
        size_of_val(&lock.with(async |_g| {
            tokio::task::yield_now().await;
            big
        }))
    );
    let g = lock.lock().await.unwrap();
    eprintln!("reenter {}", size_of_val(&g.reenter()));
    eprintln!("lost {}", size_of_val(&g.lost()));
    eprintln!("run {}", size_of_val(&g.run(async {})));
    eprintln!(
        "run1000 {}",
        size_of_val(&g.run(async {
            tokio::task::yield_now().await;
            big
        }))
    );
    eprintln!("unlock {}", size_of_val(&g.unlock()));
}
