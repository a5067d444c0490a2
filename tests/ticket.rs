//! Holds that go to another process.

use std::{
    fmt::Debug,
    time::{Duration, SystemTime},
};

use redlock_rt::{
    Adoptable, Client, ClientBuilder, ConvertError, ErrorKind, Fenced, GuardState, LockGuard,
    LockOptions, Owner, Reentrant, Shutdown, Ticket, Unlocked, embedded::Engine,
};
use tests::{DEADLINE, Proxy, World, calls, eventually, shared_server, unique, within};

const LEASE: Duration = Duration::from_secs(3);
/// No renewal is due before the end of the test.
const LONG: Duration = Duration::from_secs(600);

fn ticket<K: Adoptable>(guard: LockGuard<K>) -> Ticket {
    guard
        .into_ticket()
        .map_err(ConvertError::into_error)
        .unwrap()
}

#[track_caller]
fn assert_refused<T: Debug>(adopted: Result<T, redlock_rt::Error>) {
    let error = adopted.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotOwner, "{error}");
    assert!(error.to_string().starts_with("adopt lock"), "{error}");
}

/// Two clients of one embedded engine.
fn pair(settings: impl Fn(ClientBuilder) -> ClientBuilder) -> [Client; 2] {
    let engine = Engine::new();
    [(); 2].map(|()| {
        settings(Client::builder().embedded(&engine))
            .build()
            .unwrap()
    })
}

/// The worker renews it under its own id and its own namespace, and the web handler's hold is no more.
#[tokio::test]
async fn a_hold_goes_on_in_another_client() {
    let world = World::on(&shared_server(), "goes-on").await;
    let (namespace, name) = world.name.split_once(':').unwrap();
    let web = world.client_with(|builder| builder.namespace(namespace).lease(LEASE));
    let worker = world.client_with(|builder| builder.namespace("worker").lease(LEASE));
    for fenced in [true, false] {
        let before = SystemTime::now();
        let made = match fenced {
            true => ticket(web.fenced_lock(name).lock().await.unwrap()),
            false => ticket(web.rlock(name).lock().await.unwrap()),
        };
        assert_eq!(web.stats().held, 0);
        let ticket: Ticket = made.to_string().parse().unwrap();
        assert_eq!(ticket.name(), world.name);
        assert_eq!(ticket.owner().client(), web.uuid());
        let left = ticket.deadline().duration_since(before).unwrap();
        assert!(left > LEASE / 2 && left < LEASE * 2, "{left:?}");
        let holder = web.rlock(name).holder().await.unwrap();
        assert_eq!(holder.as_ref(), Some(ticket.owner()));

        let (owner, valid, released) = match fenced {
            true => {
                let guard = worker.adopt::<Fenced>(&ticket).await.unwrap();
                assert!(guard.token() > ticket.token().unwrap());
                tokio::time::sleep(LEASE + LEASE / 2).await;
                let state = guard.is_valid();
                (guard.hold_id().clone(), state, guard.unlock().await)
            }
            false => {
                assert_eq!(ticket.token(), None);
                let guard = worker.adopt::<Reentrant>(&ticket).await.unwrap();
                (
                    guard.hold_id().clone(),
                    guard.is_valid(),
                    guard.unlock().await,
                )
            }
        };
        assert_eq!(owner.client(), worker.uuid());
        assert_eq!((valid, released.unwrap()), (true, Unlocked::Released));
    }
    world.forget_thefts().await;
    world.assert_clean().await;
}

#[tokio::test]
async fn a_ticket_is_adopted_once() {
    let [web, worker] = pair(|builder| builder);
    let ticket = ticket(web.rlock("once").lock().await.unwrap());
    let calls = (0..8).map(|_| worker.adopt::<Reentrant>(&ticket));
    let outcomes = futures::future::join_all(calls).await;
    let (won, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    refused.into_iter().for_each(assert_refused);
    // Also of the client that made it, and when the adopter has gone.
    assert_refused(web.adopt::<Reentrant>(&ticket).await);
    drop(won);
    eventually(DEADLINE, async || {
        !web.rlock("once").is_locked().await.unwrap()
    })
    .await;
    assert_refused(worker.adopt::<Reentrant>(&ticket).await);
    assert!(!web.rlock("once").is_locked().await.unwrap());
}

/// A waiter of the client that made it, which heard of no release, has it when its lease is over.
#[tokio::test(start_paused = true)]
async fn a_ticket_that_nobody_adopts_ends_with_its_lease() {
    let [web, worker] = pair(|builder| builder.lease(LEASE).poll_interval(LONG));
    let lock = web.fenced_lock("never");
    let guard = lock.lock().await.unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(DEADLINE, async || web.stats().waiting == 1).await;
    let began = tokio::time::Instant::now();
    let ticket = ticket(guard);
    let next = within(DEADLINE, waiting).await.unwrap();
    assert!(
        began.elapsed() <= LEASE + Duration::from_millis(100),
        "{:?}",
        began.elapsed()
    );
    assert!(next.token() > ticket.token().unwrap());
    assert_refused(worker.adopt::<Fenced>(&ticket).await);
    assert!(next.is_valid());
    next.unlock().await.unwrap();
    // It is refused, too, where the lock is free.
    assert_refused(worker.adopt::<Fenced>(&ticket).await);
    assert!(web.fenced_lock("never").holder().await.unwrap().is_none());
}

/// A waiter goes on waiting until the adopter gives it back.
#[tokio::test]
async fn a_waiter_has_it_after_the_adopter() {
    let [web, worker] = pair(|builder| builder.lease(LONG).poll_interval(LONG));
    let lock = web.rlock("after");
    let guard = lock.lock().await.unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(DEADLINE, async || web.stats().subscriptions == 1).await;
    let ticket = ticket(guard);
    let guard = worker.adopt::<Reentrant>(&ticket).await.unwrap();
    assert!(!waiting.is_finished());
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiting).await.unwrap();
    guard.unlock().await.unwrap();
}

/// It waited for the end of the lease that the first holder had.
#[tokio::test(start_paused = true)]
async fn a_waiter_slept_through_the_end_of_a_lease_that_an_adopter_made_shorter() {
    let [web, waits] = pair(|builder| builder.lease(LONG).poll_interval(LONG));
    let guard = web.rlock("shorter").lock().await.unwrap();
    let lock = waits.rlock("shorter");
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(DEADLINE, async || waits.stats().subscriptions == 1).await;
    tokio::time::sleep(LEASE).await;
    let options = LockOptions::new().lease(LEASE).renew(false);
    let adopted = web.adopt_with::<Reentrant>(&ticket(guard), options).await;
    let began = tokio::time::Instant::now();
    ticket(adopted.unwrap());
    drop(waiting.await.unwrap());
    assert!(began.elapsed() < LEASE * 2, "{:?}", began.elapsed());
}

/// The numbers that a chain of hand-overs has in reserve are less than the adopter's token.
#[tokio::test]
async fn a_chain_of_hand_overs_ends_with_a_ticket() {
    let [web, worker] = pair(|builder| builder.hand_over(LEASE / 3).lease(LONG));
    let lock = web.fenced_lock("chain");
    let wait = || {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    // The first finds that others want it, so the next acquisition has numbers in reserve.
    drop(lock.lock().await.unwrap());
    let first = lock.lock().await.unwrap();
    let waiting = [wait(), wait(), wait()];
    eventually(DEADLINE, async || web.stats().waiting == 3).await;
    first.unlock().await.unwrap();
    let [second, third, fourth] = waiting;
    let second = within(DEADLINE, second).await.unwrap();
    second.unlock().await.unwrap();
    let third = within(DEADLINE, third).await.unwrap();
    let (last, owner) = (third.token(), third.hold_id().clone());
    let ticket = ticket(third);
    assert_eq!((ticket.token(), ticket.owner()), (Some(last), &owner));
    assert!(!fourth.is_finished());
    let adopted = worker.adopt::<Fenced>(&ticket).await.unwrap();
    let token = adopted.token();
    assert!(token > last);
    adopted.unlock().await.unwrap();
    let fourth = within(DEADLINE, fourth).await.unwrap();
    assert!(fourth.token() > token && *fourth.hold_id() != owner);
}

#[tokio::test]
async fn a_guard_that_cannot_go_is_given_back() {
    let [web, _] = pair(|builder| builder.lease(LONG));
    let lock = web.rlock("stays");
    let guard = lock.lock().await.unwrap();
    let second = guard.reenter().await.unwrap();
    let refused = guard.into_ticket().unwrap_err();
    assert!(refused.error().is_bad_input(), "{refused}");
    let guard = refused.into_guard();
    assert!(guard.is_valid() && guard.hold_count() == 2);
    second.unlock().await.unwrap();
    ticket(guard);
    assert!(lock.force_unlock().await.unwrap());

    let options = LockOptions::new().min_hold(LONG / 2);
    let guard = lock.lock_with(options).await.unwrap();
    let refused = guard.into_ticket().unwrap_err();
    assert!(refused.error().is_bad_input(), "{refused}");
    drop(refused);
    assert!(lock.force_unlock().await.unwrap());

    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    assert!(guard.extend(LONG).await.unwrap_err().is_lost());
    let refused = guard.into_ticket().unwrap_err();
    assert!(refused.error().is_lost() && refused.error().lost_reason().is_some());
    drop(refused);

    let guard = lock.lock().await.unwrap();
    web.shutdown(Shutdown::ReleaseAll).await.unwrap();
    assert!(guard.into_ticket().unwrap_err().error().is_shut_down());
}

/// A shut-down releases what its client holds, and a ticket is not that.
#[tokio::test]
async fn the_end_of_its_client_leaves_it() {
    let [web, worker] = pair(|builder| builder.dedicated_thread(true).flush_on_drop(LONG));
    let ticket_of = async |name| ticket(web.rlock(name).lock().await.unwrap());
    let (one, other) = (ticket_of("one").await, ticket_of("other").await);
    within(DEADLINE, web.shutdown(Shutdown::Drain(LONG)))
        .await
        .unwrap();
    let guard = worker.adopt::<Reentrant>(&one).await.unwrap();
    drop(web);
    guard.unlock().await.unwrap();
    assert!(worker.adopt::<Reentrant>(&other).await.unwrap().is_valid());
}

#[tokio::test]
async fn a_ticket_that_was_stolen_or_freed_is_refused() {
    let world = World::on(&shared_server(), "stolen-ticket").await;
    let (web, worker) = (world.client(), world.client());
    let lock = web.rlock(&world.name);
    let ticket_of = async || ticket(lock.lock().await.unwrap());
    let made = ticket_of().await;
    assert!(web.rlock(&world.name).force_unlock().await.unwrap());
    assert_refused(worker.adopt::<Reentrant>(&made).await);
    let made = ticket_of().await;
    let thief = worker.rlock(&world.name).steal("stuck").await.unwrap();
    assert_refused(worker.adopt::<Reentrant>(&made).await);
    assert!(thief.is_valid());
    thief.unlock().await.unwrap();
    world.forget_thefts().await;
    world.assert_clean().await;
}

/// A renewal or an extension that is on its way when the ticket is made changes nothing of the adopter's hold.
#[tokio::test]
async fn what_is_on_its_way_changes_nothing() {
    let server = shared_server();
    let mut world = World::on(&server, "on-its-way").await;
    let worker = world.client_with(|builder| builder.lease(LONG / 2));
    let proxy = Proxy::to(&server);
    world.clients_connect_to(proxy.url());
    let web = world.client_with(|builder| builder.lease(LEASE));
    let lock = web.rlock(&world.name);
    drop(lock.lock().await.unwrap());
    // Loads the script.
    let other = web.rlock(unique("other")).lock().await.unwrap();
    other.extend(LONG).await.unwrap();
    other.unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    let renewal = proxy.hold_request(calls("renew").mentioning(&world.name));
    within(DEADLINE, renewal.reached()).await;
    let update = calls("rlock_update").mentioning(&world.name);
    let extension = proxy.hold_request(update.clone());
    {
        let mut extending = Box::pin(guard.extend(LONG));
        tokio::select! {
            biased;
            _ = &mut extending => panic!("it is held up"),
            () = within(DEADLINE, extension.reached()) => {}
        }
    }
    let adopted = worker.adopt::<Reentrant>(&ticket(guard)).await.unwrap();
    renewal.open();
    extension.open();
    proxy.wait_for_answer(update).await;
    proxy
        .wait_for_answer(calls("renew").mentioning(&world.name))
        .await;
    let ttl = world.ttl().await.unwrap();
    assert!(ttl > LONG / 4 && ttl <= LONG / 2, "{ttl:?}");
    let holder = worker.rlock(&world.name).holder().await.unwrap();
    assert_eq!(holder.as_ref(), Some(adopted.hold_id()));
    assert_eq!(adopted.unlock().await.unwrap(), Unlocked::Released);
    world.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_adopter_chooses_its_terms() {
    let [web, worker] = pair(|builder| builder.lease(LONG));
    let ticket = ticket(
        web.fenced_lock("terms")
            .token_ttl(LONG)
            .lock()
            .await
            .unwrap(),
    );
    let wrong = [
        LockOptions::new().lease(Duration::ZERO),
        LockOptions::new().lease(LONG * 2),
        LockOptions::new().owner(&Owner::new()),
    ];
    for options in wrong {
        let refused = worker.adopt_with::<Fenced>(&ticket, options).await;
        assert!(refused.unwrap_err().is_bad_input());
    }
    let error = worker.adopt::<Reentrant>(&ticket).await.unwrap_err();
    assert!(error.is_bad_input(), "{error}");
    let options = LockOptions::new().lease(LEASE).max_hold(LEASE * 2);
    let guard = worker.adopt_with::<Fenced>(&ticket, options).await.unwrap();
    // The last token lives for as long as the first holder's handle says.
    tokio::time::sleep(LEASE).await;
    assert!(guard.is_valid());
    within(DEADLINE, guard.lost()).await;
    assert!(matches!(guard.state(), GuardState::Lost(_)));
    tokio::time::sleep(LONG).await;
    assert_eq!(worker.fenced_lock("terms").token().await.unwrap(), None);
}

#[tokio::test]
async fn no_answer_is_told_from_a_lock_that_is_gone() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let settings = |builder: ClientBuilder| builder.response_timeout(Duration::from_millis(100));
    let worker = settings(Client::builder().url(&proxy.url()))
        .build()
        .unwrap();
    let web = Client::connect(&server.url()).await.unwrap();
    let name = unique("no-answer");
    let ticket = ticket(web.rlock(&name).lock().await.unwrap());
    proxy.go_silent();
    let error = worker.adopt::<Reentrant>(&ticket).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    proxy.resume();
    let _ = worker.adopt::<Reentrant>(&ticket).await;
    web.rlock(&name).force_unlock().await.unwrap();
}

#[tokio::test]
async fn a_ticket_is_the_same_behind_its_text() {
    let [web, _] = pair(|builder| builder);
    for lock in 0..20 {
        let made = ticket(web.rlock(lock.to_string()).lock().await.unwrap());
        assert_eq!(made.to_string().parse::<Ticket>().unwrap(), made);
    }
}

/// Whatever comes in a header: it is a ticket that is written as it was read, or bad input.
#[tokio::test]
async fn a_text_of_any_kind_is_read_without_a_panic() {
    let [web, _] = pair(|builder| builder);
    let guard = web.fenced_lock("{a}.b/ä").token_ttl(LONG).lock().await;
    let good: Vec<char> = ticket(guard.unwrap()).to_string().chars().collect();
    let mut random = fastrand::Rng::with_seed(7);
    let odd = "0123456789abcdefxyz-_:.~%+ \0\u{feff}äß\u{10ffff}{}";
    let odd: Vec<char> = odd.chars().collect();
    for _ in 0..100_000 {
        let mut text = good.clone();
        for _ in 0..random.usize(1..4) {
            if text.is_empty() {
                break;
            }
            let at = random.usize(..text.len());
            let other = odd[random.usize(..odd.len())];
            match random.u8(..5) {
                0 => drop(text.remove(at)),
                1 => text.truncate(at),
                2 => text.insert(at, other),
                3 => text.extend_from_within(at..),
                _ => text[at] = other,
            }
        }
        let text: String = text.into_iter().collect();
        match text.parse::<Ticket>() {
            Ok(read) => assert_eq!(read.to_string(), text),
            Err(error) => assert!(error.is_bad_input(), "{text}: {error}"),
        }
    }
}
