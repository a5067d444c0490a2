//! What a listener hears of its client.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use redlock_rt::{
    Client, Event, Events, GuardState, LockEvent, LockOptions, LostReason, PermitOptions, Quorum,
    ServerEvent, Shutdown,
};
use tests::{DEADLINE, RedisServer, eventually, trace_init, unique, within};
use tokio::task::block_in_place;
use tokio::time::sleep;

async fn next(events: &mut Events) -> Event {
    let event = within(DEADLINE, events.next()).await;
    event.expect("the client has not ended")
}

/// The next event, which is one of this lock.
async fn of_lock(events: &mut Events, lock: &str) -> LockEvent {
    match next(events).await {
        Event::Lock { name, what, .. } if *name == *lock => what,
        event => panic!("{event:?}, not of {lock}"),
    }
}

async fn of_server(events: &mut Events) -> ServerEvent {
    match next(events).await {
        Event::Server { what, .. } => what,
        event => panic!("{event:?}"),
    }
}

#[tokio::test]
async fn what_happens_to_a_lock_is_heard_in_its_order() {
    trace_init();
    let client = Client::embedded();
    // Nobody listens yet.
    let _ = client.rlock("before").lock().await.unwrap();
    let mut events = client.events();
    let lock = client.rlock("a");
    let guard = lock.lock().await.unwrap();
    let inner = guard.reenter().await.unwrap();
    drop(inner);
    guard.unlock().await.unwrap();
    assert_eq!(of_lock(&mut events, "a").await, LockEvent::Acquired);
    assert_eq!(of_lock(&mut events, "a").await, LockEvent::Released);

    let often = LockOptions::new().renew(Duration::from_millis(20));
    let guard = lock.lock_with(often).await.unwrap();
    assert_eq!(of_lock(&mut events, "a").await, LockEvent::Acquired);
    assert!(lock.force_unlock().await.unwrap());
    let lost = LockEvent::Lost(LostReason::Deleted);
    assert_eq!(of_lock(&mut events, "a").await, lost);
    drop(guard);

    let brief = Duration::from_millis(30);
    let ends = LockOptions::new().lease(brief).max_hold(brief);
    let guard = lock.lock_with(ends).await.unwrap();
    assert_eq!(of_lock(&mut events, "a").await, LockEvent::Acquired);
    let lost = LockEvent::Lost(LostReason::MaxHold);
    assert_eq!(of_lock(&mut events, "a").await, lost);
    drop(guard);

    let guard = lock.lock().await.unwrap();
    assert_eq!(of_lock(&mut events, "a").await, LockEvent::Acquired);
    let waits = LockOptions::new().wait(brief);
    lock.lock_with(waits).await.unwrap_err();
    assert_eq!(of_lock(&mut events, "a").await, LockEvent::TimedOut);
    // Whoever tries does not wait.
    assert!(lock.try_lock().await.unwrap().is_none());
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let lost = LockEvent::Lost(LostReason::ShutDown);
    assert_eq!(of_lock(&mut events, "a").await, lost);
    assert_eq!(within(DEADLINE, events.next()).await, None, "the end");
    assert_eq!(within(DEADLINE, client.events().next()).await, None);
    drop(guard);
}

#[tokio::test]
async fn an_event_has_the_kind_and_the_whole_name() {
    trace_init();
    let engine = redlock_rt::embedded::Engine::new();
    let builder = Client::builder().embedded(&engine).namespace("app");
    let client = builder.build().unwrap();
    let mut events = client.events();
    let semaphore = client.semaphore("s").limit(3);
    let two = PermitOptions::new().permits(2);
    let _permits = semaphore.acquire_with(two).await.unwrap();
    let Event::Lock {
        name, kind, what, ..
    } = next(&mut events).await
    else {
        panic!("of a lock");
    };
    assert_eq!(
        (&*name, kind, what),
        ("app:s", "semaphore", LockEvent::Acquired)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doubt_and_an_outage_are_heard() {
    trace_init();
    let server = RedisServer::start();
    let builder = Client::builder().url(&server.url());
    let builder = builder.response_timeout(Duration::from_millis(200));
    let client = builder.connect().await.unwrap();
    let name = unique("doubt");
    let often = LockOptions::new().renew(Duration::from_millis(20));
    let guard = client.rlock(&name).lock_with(often).await.unwrap();
    let is_suspect = async || matches!(guard.state(), GuardState::Suspect { .. });
    let mut events = client.events();
    server.pause();
    eventually(DEADLINE, is_suspect).await;
    server.resume();
    eventually(DEADLINE, async || !is_suspect().await).await;
    guard.unlock().await.unwrap();
    let mut of_lock = Vec::new();
    let mut of_server = Vec::new();
    while of_lock.last() != Some(&LockEvent::Released) || of_server.len() < 2 {
        // The outage ends with the first call that is answered once the connection is back.
        let _ = client.rlock(unique("other")).lock().await.unwrap();
        match next(&mut events).await {
            Event::Lock { name: of, what, .. } if *of == *name => of_lock.push(what),
            Event::Lock { .. } => {}
            Event::Server {
                what, server: at, ..
            } => {
                assert_eq!(*at, server.address().to_string());
                of_server.push(what);
            }
            event => panic!("{event:?}"),
        }
    }
    let expected = [
        LockEvent::Suspect,
        LockEvent::ValidAgain,
        LockEvent::Released,
    ];
    assert_eq!(of_lock, expected);
    // The server that does not answer is given up, and connected to anew.
    assert_eq!(of_server, [ServerEvent::Lost, ServerEvent::Back]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_process_is_heard_of() {
    trace_init();
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let mut events = client.events();
    block_in_place(|| server.restart());
    assert_eq!(of_server(&mut events).await, ServerEvent::Lost);
    let guard = client.rlock(unique("back")).lock().await.unwrap();
    assert_eq!(of_server(&mut events).await, ServerEvent::Failover);
    assert_eq!(of_server(&mut events).await, ServerEvent::Back);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_slow_listener_is_told_how_much_it_has_missed() {
    trace_init();
    let client = Client::embedded();
    let (mut slow, mut quick) = (client.events(), client.events());
    for number in 0..1000 {
        let lock = client.rlock(number.to_string());
        lock.lock().await.unwrap().unlock().await.unwrap();
        let name = number.to_string();
        assert_eq!(of_lock(&mut quick, &name).await, LockEvent::Acquired);
        assert_eq!(of_lock(&mut quick, &name).await, LockEvent::Released);
    }
    assert_eq!(next(&mut slow).await, Event::Missed(2000 - 1024));
    for number in 488..1000 {
        let name = number.to_string();
        assert_eq!(of_lock(&mut slow, &name).await, LockEvent::Acquired);
        assert_eq!(of_lock(&mut slow, &name).await, LockEvent::Released);
    }
    drop(client);
    assert_eq!(
        within(DEADLINE, slow.next()).await,
        None,
        "it keeps no client"
    );
}

/// Holds that are handed over between tasks, and those that are released, never overlap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_one_lock_are_heard_one_after_the_other() {
    const TASKS: usize = 8;
    const EACH: usize = 50;
    trace_init();
    let client = Client::embedded();
    let events = client.events();
    let tasks = (0..TASKS).map(|_| {
        let lock = client.rlock("chain");
        tokio::spawn(async move {
            for _ in 0..EACH {
                drop(lock.lock().await.unwrap());
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let heard: Vec<_> = events.take(2 * TASKS * EACH).collect().await;
    for (index, event) in heard.into_iter().enumerate() {
        let expected = &[LockEvent::Acquired, LockEvent::Released][index % 2];
        match event {
            Event::Lock { what, .. } => assert_eq!(&what, expected, "{index}"),
            event => panic!("{event:?}"),
        }
    }
}

/// Each server was asked in a try of its own, which was called a wait that is over.
#[tokio::test(start_paused = true)]
async fn a_body_that_waits_for_another_one_of_its_redlock_is_no_time_out() {
    let clients = [(); 3].map(|()| Client::embedded());
    let mut events = clients.each_ref().map(Client::events);
    let lock = Quorum::new(clients.clone()).unwrap().redlock("siblings");
    let sibling = || lock.with(async |_| sleep(Duration::from_millis(200)).await);
    let both = lock.with(async |_| tokio::join!(sibling(), sibling()));
    let (one, two) = within(DEADLINE, both).await.unwrap();
    one.and(two).unwrap();
    for events in &mut events {
        while let Some(Some(event)) = events.next().now_or_never() {
            let timed_out = LockEvent::TimedOut;
            assert!(!matches!(event, Event::Lock { what, .. } if what == timed_out));
        }
    }
}
