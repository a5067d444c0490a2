//! The client of a function under the attribute that names no client.

use redlock_rt::{
    Client, Error, default_client, distributed_lock, set_default_client, with_default_client,
};

/// The client that held the lock.
#[distributed_lock(key = "order:7")]
async fn place_order() -> Result<Option<String>, Error> {
    tokio::task::yield_now().await;
    Ok(uuid())
}

fn uuid() -> Option<String> {
    default_client().map(|client| client.uuid().to_owned())
}

/// One test, since the whole process has one default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tests_in_parallel_changed_the_default_client_under_each_other() {
    let error = place_order().await.unwrap_err();
    assert!(error.to_string().contains("with_default_client"), "{error}");

    let global = Client::embedded();
    assert!(set_default_client(global.clone()).is_none());
    let test = async |number: usize| {
        let client = Client::embedded();
        let own = Some(client.uuid().to_owned());
        with_default_client(client.clone(), async {
            for _ in 0..100 {
                assert_eq!(place_order().await.unwrap(), own, "test {number}");
            }
            // The innermost one applies, until it ends.
            let inner = Client::embedded();
            let inners = Some(inner.uuid().to_owned());
            assert_eq!(
                with_default_client(inner, place_order()).await.unwrap(),
                inners
            );
            assert_eq!(place_order().await.unwrap(), own);
            // A spawned task inherits nothing.
            let spawned = tokio::spawn(async { uuid() }).await.unwrap();
            assert_eq!(spawned.as_deref(), Some(global.uuid()));
            assert_eq!(client.stats().held, 0);
        })
        .await;
    };
    futures::future::join_all((0..8).map(test)).await;
    assert_eq!(place_order().await.unwrap().as_deref(), Some(global.uuid()));
}
