//! Other processes: a holder that dies or stops, a Redisson client, a server that is gone.

use tests::{Driver, RedisServer, RedissonClient, RedissonUnlock, shared_server, unique, within};

use crate::{DEADLINE, PROGRAM, connected};

#[tokio::test]
async fn a_paused_holder_has_lost_its_lock_when_it_goes_on() {
    let name = unique("paused");
    let mut driver = connected().await;
    driver.ok(&format!("lock {name} a 300")).await;
    driver.pause();
    let client = RedissonClient::connect(&shared_server().url())
        .await
        .unwrap();
    assert!(
        within(DEADLINE, client.rlock(&name).lock(1, None))
            .await
            .unwrap()
    );
    driver.resume();
    assert_eq!(driver.ok(&format!("held {name} a")).await, "false");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "lost"
    );
    assert_eq!(
        client.rlock(&name).unlock(1).await.unwrap(),
        RedissonUnlock::Freed
    );
}

#[tokio::test]
async fn a_server_that_is_gone_is_unavailable() {
    let server = RedisServer::start();
    let driver = Driver::start(PROGRAM);
    driver.ok(&format!("connect {}", server.url())).await;
    server.kill();
    assert_eq!(
        driver.call("trylock n a 200").await.err_kind(),
        "unavailable"
    );
    server.restart();
    assert_eq!(driver.ok("trylock n a 20000").await, "true");
}
