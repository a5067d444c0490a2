//! The same tests on SQLite and on PostgreSQL.

use ::tests::{RedisServer, eventually, shared_postgres};
use tempfile::TempDir;

use super::*;

/// A machine with much else to do takes its time to connect.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Makes a module with each test on both databases.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                let shop = super::sqlite_shop().await;
                super::$test(&shop).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                let shop = super::postgres_shop().await;
                super::$test(&shop).await;
            })*
        }
    };
}

on_both! {
    sells_no_more_than_there_is
    nothing_but_the_lock_keeps_a_user_from_ordering_twice
    a_raised_fence_keeps_out_who_came_before
    two_vouchers_of_one_name_are_refused
    a_voucher_is_listed_with_its_sale
    expired_sales_go_with_their_unpaid_orders
    a_swap_hands_over_both_orders_or_none
    an_order_under_way_was_bought_behind_a_swap
    an_order_was_removed_or_given_away_while_it_was_paid
    a_paid_order_was_given_for_an_unpaid_one
    a_settlement_counts_each_paid_order_once
    tables_are_made_once
    a_share_of_a_rush_is_taken_once
    a_share_was_taken_twice_at_once
}

/// A database, two stores of it as two instances have, and what it stands in.
struct TestShop {
    store: Store,
    other: Store,
    _directory: Option<TempDir>,
}

async fn sqlite_shop() -> TestShop {
    let directory = tempfile::tempdir().unwrap();
    let url = DatabaseUrl::file(&directory.path().join("shop.db")).unwrap();
    open(&url, Some(directory)).await
}

async fn postgres_shop() -> TestShop {
    open(&shared_postgres().create_database().parse().unwrap(), None).await
}

async fn open(url: &DatabaseUrl, directory: Option<TempDir>) -> TestShop {
    let store = Store::open(url, TIMEOUT).await.unwrap();
    store.migrate().await.unwrap();
    TestShop {
        store,
        other: Store::open(url, TIMEOUT).await.unwrap(),
        _directory: directory,
    }
}

/// A voucher on sale from 1000 to 2000.
async fn on_sale(store: &Store, id: &str, stock: i64) {
    let voucher = Voucher {
        id: id.to_owned(),
        name: format!("voucher {id}"),
        price_cents: 250,
        sale: Some(Sale {
            stock_at_start: stock,
            stock,
            begins_at: 1000,
            ends_at: 2000,
            lock: "rlock".to_owned(),
            waiting_room: true,
            stall_one_in: 8,
        }),
    };
    assert!(store.create_voucher(&voucher, 500).await.unwrap());
}

async fn buy(store: &Store, voucher: &str, user: i64) -> Bought {
    buy_as(store, &format!("{voucher}-{user}"), voucher, user, None).await
}

async fn buy_as(
    store: &Store,
    id: &str,
    voucher: &str,
    user: i64,
    fence: Option<(&str, i64)>,
) -> Bought {
    let order = NewOrder {
        id,
        voucher_id: voucher,
        user_id: user,
        placed_at: 1500,
        fence,
    };
    store.buy(&order).await.unwrap()
}

/// Two vouchers on sale, and these orders of them, by voucher and user.
async fn two_on_sale(store: &Store, orders: &[(&str, i64)]) {
    for voucher in ["a", "b"] {
        on_sale(store, voucher, 5).await;
    }
    for (voucher, user) in orders {
        assert_eq!(buy(store, voucher, *user).await, Bought::Yes);
    }
}

/// Of the first user's order for the other's.
async fn swap(
    store: &Store,
    (order, of): (&str, i64),
    (with_order, with_of): (&str, i64),
) -> Swapped {
    let swap = Swap {
        order,
        of,
        with_order,
        with_of,
    };
    store.swap(&swap).await.unwrap()
}

async fn stock(store: &Store, voucher: &str) -> i64 {
    store
        .voucher(voucher)
        .await
        .unwrap()
        .unwrap()
        .sale
        .unwrap()
        .stock
}

async fn sells_no_more_than_there_is(shop: &TestShop) {
    let (store, other) = (&shop.store, &shop.other);
    on_sale(store, "a", 2).await;
    assert!(!store.has_order("a", 7).await.unwrap());
    assert_eq!(buy(store, "a", 7).await, Bought::Yes);
    assert!(other.has_order("a", 7).await.unwrap());
    assert_eq!(buy(other, "a", 8).await, Bought::Yes);
    assert_eq!(buy(store, "a", 9).await, Bought::SoldOut);
    assert!(!store.has_order("a", 9).await.unwrap());
    assert_eq!(
        store.books("a").await.unwrap(),
        Books { sold: 2, buyers: 2 }
    );
    assert_eq!(stock(other, "a").await, 0);
    assert_eq!(store.books("b").await.unwrap(), Books::default());
}

async fn nothing_but_the_lock_keeps_a_user_from_ordering_twice(shop: &TestShop) {
    let store = &shop.store;
    on_sale(store, "a", 5).await;
    let (first, second) = (
        store.has_order("a", 7).await.unwrap(),
        shop.other.has_order("a", 7).await.unwrap(),
    );
    assert!(!first && !second);
    assert_eq!(buy_as(store, "1", "a", 7, None).await, Bought::Yes);
    assert_eq!(buy_as(&shop.other, "2", "a", 7, None).await, Bought::Yes);
    assert_eq!(
        store.books("a").await.unwrap(),
        Books { sold: 2, buyers: 1 }
    );
}

async fn a_raised_fence_keeps_out_who_came_before(shop: &TestShop) {
    let (early, late) = (&shop.store, &shop.other);
    on_sale(early, "a", 5).await;
    assert!(early.raise_fence("order:7", 10).await.unwrap());
    assert!(!early.has_order("a", 7).await.unwrap());
    assert!(late.raise_fence("order:7", 11).await.unwrap());
    assert!(!late.has_order("a", 7).await.unwrap());

    let stale = buy_as(early, "1", "a", 7, Some(("order:7", 10))).await;
    assert_eq!((stale, stock(early, "a").await), (Bought::Stale, 5));
    let current = buy_as(late, "2", "a", 7, Some(("order:7", 11))).await;
    assert_eq!((current, stock(early, "a").await), (Bought::Yes, 4));
    assert!(!early.raise_fence("order:7", 10).await.unwrap());
    // A re-entry has the same token, so the same token may raise it again.
    assert!(late.raise_fence("order:7", 11).await.unwrap());
}

async fn two_vouchers_of_one_name_are_refused(shop: &TestShop) {
    on_sale(&shop.store, "a", 5).await;
    let again = Voucher {
        id: "b".to_owned(),
        name: "voucher a".to_owned(),
        price_cents: 1,
        sale: None,
    };
    assert!(!shop.other.create_voucher(&again, 600).await.unwrap());
    assert_eq!(shop.store.voucher("b").await.unwrap(), None);
    // The transaction that failed left its connection in order.
    on_sale(&shop.other, "c", 1).await;
}

async fn a_voucher_is_listed_with_its_sale(shop: &TestShop) {
    let store = &shop.store;
    on_sale(store, "a", 5).await;
    let plain = Voucher {
        id: "b".to_owned(),
        name: "without a sale".to_owned(),
        price_cents: 9,
        sale: None,
    };
    assert!(store.create_voucher(&plain, 501).await.unwrap());
    let listed = shop.other.vouchers().await.unwrap();
    assert_eq!(
        listed
            .iter()
            .map(|voucher| &*voucher.id)
            .collect::<Vec<_>>(),
        ["b", "a"]
    );
    assert_eq!(listed[0].sale, None);
    let sale = listed[1].sale.as_ref().unwrap();
    assert_eq!((sale.stock, sale.begins_at, sale.ends_at), (5, 1000, 2000));
    assert!(sale.waiting_room);
    assert_eq!((sale.stall_one_in, &*sale.lock), (8, "rlock"));
    assert_eq!(store.voucher("a").await.unwrap().as_ref(), Some(&listed[1]));
}

async fn expired_sales_go_with_their_unpaid_orders(shop: &TestShop) {
    let store = &shop.store;
    on_sale(store, "a", 5).await;
    for user in [7, 8, 9] {
        assert_eq!(buy(store, "a", user).await, Bought::Yes);
    }
    assert!(store.paid("a-7", 1600).await.unwrap());
    assert!(!store.paid("a-7", 1700).await.unwrap());
    assert!(store.paying("a-9", 9).await.unwrap());
    assert_eq!(store.prune(2000).await.unwrap(), (0, 0));
    assert_eq!(store.prune(2001).await.unwrap(), (1, 1));
    assert_eq!(store.voucher("a").await.unwrap().unwrap().sale, None);
    assert_eq!(
        store.order("a-7").await.unwrap().unwrap().paid_at,
        Some(1600)
    );
    assert_eq!(store.order("a-8").await.unwrap(), None);
    // It stayed for ever, and was payable: its sale was gone when the bank declined.
    store.declined("a-9").await.unwrap();
    assert_eq!(store.prune(2001).await.unwrap(), (0, 1));
}

async fn a_swap_hands_over_both_orders_or_none(shop: &TestShop) {
    let store = &shop.store;
    two_on_sale(store, &[("a", 7), ("b", 8), ("a", 9)]).await;
    let owner = async |order: &str| store.order(order).await.unwrap().unwrap().user_id;
    let first = async || swap(store, ("a-7", 7), ("b-8", 8)).await;
    assert_eq!(first().await, Swapped::Changed);
    assert_eq!((owner("a-7").await, owner("b-8").await), (7, 8));
    assert!(!store.offer("b-8", 7).await.unwrap());
    assert!(store.offer("b-8", 8).await.unwrap());
    assert_eq!(first().await, Swapped::Yes);
    assert_eq!((owner("a-7").await, owner("b-8").await), (8, 7));
    assert!(!store.order("b-8").await.unwrap().unwrap().offered);

    // User 9 has an order of the same voucher as user 8 has now.
    assert!(store.offer("a-9", 9).await.unwrap());
    let second = swap(store, ("b-8", 7), ("a-9", 9)).await;
    assert_eq!(second, Swapped::Yes);
    assert_eq!(buy_as(store, "a-9b", "a", 9, None).await, Bought::Yes);
    assert!(store.offer("a-7", 8).await.unwrap());
    let back = swap(store, ("b-8", 9), ("a-7", 8)).await;
    assert_eq!(back, Swapped::Twice);
    assert_eq!((owner("b-8").await, owner("a-7").await), (9, 8));
}

/// It had looked before the swap, and its user had two of one voucher.
async fn an_order_under_way_was_bought_behind_a_swap(shop: &TestShop) {
    let store = &shop.store;
    two_on_sale(store, &[("a", 8), ("b", 7)]).await;
    assert!(store.offer("a-8", 8).await.unwrap());
    assert!(shop.other.raise_fence("order:7", 41).await.unwrap());
    assert!(!shop.other.has_order("a", 7).await.unwrap());
    let swapped = swap(store, ("b-7", 7), ("a-8", 8)).await;
    assert_eq!(swapped, Swapped::Yes);
    let late = buy_as(&shop.other, "late", "a", 7, Some(("order:7", 41))).await;
    assert_eq!((late, stock(store, "a").await), (Bought::Stale, 4));
    // User 8 had no fence.
    for user in ["order:7", "order:8"] {
        assert!(store.raise_fence(user, 42).await.unwrap());
    }
}

/// The money was taken, and its order was gone or another's.
async fn an_order_was_removed_or_given_away_while_it_was_paid(shop: &TestShop) {
    let store = &shop.store;
    two_on_sale(store, &[("a", 7), ("b", 8)]).await;
    let both = [("a-7", 7), ("b-8", 8)];
    for (order, user) in both {
        assert!(store.offer(order, user).await.unwrap());
    }
    assert!(!store.paying("a-7", 8).await.unwrap());
    // Two calls: one ends, and the other may still take the money.
    assert!(store.paying("a-7", 7).await.unwrap());
    assert!(store.paying("a-7", 7).await.unwrap());
    store.declined("a-7").await.unwrap();
    for (mine, other) in [(both[0], both[1]), (both[1], both[0])] {
        let swapped = swap(&shop.other, mine, other).await;
        assert_eq!(swapped, Swapped::Changed);
    }
    assert_eq!(store.prune(2001).await.unwrap(), (2, 1));
    assert_eq!(store.order("b-8").await.unwrap(), None);
    assert_eq!(store.order("a-7").await.unwrap().unwrap().user_id, 7);
    assert!(store.paid("a-7", 1600).await.unwrap());
    assert!(!store.paying("a-7", 7).await.unwrap());
}

/// Its owner had offered it before it was paid.
async fn a_paid_order_was_given_for_an_unpaid_one(shop: &TestShop) {
    let store = &shop.store;
    two_on_sale(store, &[("a", 7), ("b", 8)]).await;
    assert!(store.offer("a-7", 7).await.unwrap());
    assert!(store.paying("a-7", 7).await.unwrap());
    assert!(store.paid("a-7", 1600).await.unwrap());
    let take = async || swap(&shop.other, ("b-8", 8), ("a-7", 7)).await;
    assert_eq!(take().await, Swapped::Changed);
    // Its owner may offer it again.
    assert!(store.offer("a-7", 7).await.unwrap());
    assert_eq!(take().await, Swapped::Yes);
}

async fn a_settlement_counts_each_paid_order_once(shop: &TestShop) {
    let store = &shop.store;
    on_sale(store, "a", 5).await;
    for user in [7, 8, 9] {
        assert_eq!(buy(store, "a", user).await, Bought::Yes);
    }
    for order in ["a-7", "a-8"] {
        assert!(store.paid(order, 1600).await.unwrap());
    }
    let first = store.settle("s1", 5, 1700).await.unwrap().unwrap();
    assert_eq!((first.orders, first.amount_cents), (2, 500));
    let nothing = store.settle("s2", 6, 1800).await.unwrap().unwrap();
    assert_eq!(nothing.orders, 0);
    assert!(store.paid("a-9", 1900).await.unwrap());
    // An empty one is not written, and raises no fence.
    let second = shop.other.settle("s3", 7, 2000).await.unwrap().unwrap();
    assert_eq!((second.orders, second.amount_cents), (1, 250));
    assert_eq!(store.settle("s4", 6, 2100).await.unwrap(), None);
    assert_eq!(store.settlements().await.unwrap(), [second, first]);
}

async fn tables_are_made_once(shop: &TestShop) {
    on_sale(&shop.store, "a", 5).await;
    shop.other.migrate().await.unwrap();
    assert!(shop.store.voucher("a").await.unwrap().is_some());
}

async fn a_share_of_a_rush_is_taken_once(shop: &TestShop) {
    let store = &shop.store;
    on_sale(store, "a", 5).await;
    for (instance, seen_at) in [("one", 100), ("two", 200), ("old", 50)] {
        store.beat(instance, "http://x", seen_at).await.unwrap();
    }
    store.beat("one", "http://x", 201).await.unwrap();
    let instances: Vec<_> = store.instances(200).await.unwrap();
    let ids: Vec<_> = instances.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["one", "two"]);
    let rush = Rush {
        voucher_id: "a".to_owned(),
        users: 10,
        requests_per_user: 3,
        concurrency: 4,
        begun_at: 300,
    };
    store.begin_rush("r", &rush, &ids).await.unwrap();
    let share = store.take_share("two").await.unwrap().unwrap();
    assert_eq!((&*share.rush_id, share.part, share.parts), ("r", 1, 2));
    assert_eq!(store.take_share("two").await.unwrap(), None);
    assert_eq!(store.take_share("old").await.unwrap(), None);
    store.report("r", "two", "{}", true, 400).await.unwrap();
    // One that was given up came behind it, and the share was never done.
    store.report("r", "two", "", false, 401).await.unwrap();
    let parts = shop.other.parts("r").await.unwrap();
    assert_eq!((parts[0].done, parts[1].done), (false, true));
    assert_eq!((&*parts[1].report, parts[1].reported_at), ("{}", 400));
    store.leave("two").await.unwrap();
    assert_eq!(store.instances(200).await.unwrap().len(), 1);
}

/// As by two instances of one name, which drove it both.
async fn a_share_was_taken_twice_at_once(shop: &TestShop) {
    on_sale(&shop.store, "a", 5).await;
    let rush = Rush {
        voucher_id: "a".to_owned(),
        users: 10,
        requests_per_user: 3,
        concurrency: 4,
        begun_at: 300,
    };
    for round in 0..50 {
        let (id, instances) = (round.to_string(), ["one".to_owned()]);
        shop.store.begin_rush(&id, &rush, &instances).await.unwrap();
        let taken = futures::join!(shop.store.take_share("one"), shop.other.take_share("one"));
        let taken = [taken.0.unwrap(), taken.1.unwrap()];
        assert_eq!(taken.iter().flatten().count(), 1, "{round}: {taken:?}");
    }
}

/// PostgreSQL ended one of them: each had a row that the other waited for. Swaps took their own order first, and
/// jobs what they met first in the table.
#[tokio::test]
async fn a_swap_and_a_job_waited_for_each_other() {
    for is_paid in [true, false] {
        for [mine, other] in [[("1", 9), ("3", 7)], [("3", 7), ("1", 9)]] {
            let shop = postgres_shop().await;
            let store = &shop.store;
            on_sale(store, "a", 5).await;
            // They are met in this order.
            for (id, user) in [("3", 7), ("2", 8), ("1", 9)] {
                assert_eq!(buy_as(store, id, "a", user, None).await, Bought::Yes);
                assert!(!is_paid || store.paid(id, 1600).await.unwrap());
                assert!(store.offer(id, user).await.unwrap());
            }
            let mut gate = store.pool.begin().await.unwrap();
            let close = sqlx::query("UPDATE orders SET offered = 0 WHERE id = '2'");
            close.execute(&mut *gate).await.unwrap();
            let job = async {
                match is_paid {
                    true => assert!(store.settle("s", 5, 1700).await.unwrap().is_some()),
                    false => assert_eq!(store.prune(2001).await.unwrap(), (1, 3)),
                }
            };
            let swap = async {
                waiting(store, 1).await;
                let swapped = swap(&shop.other, mine, other).await;
                assert_eq!(swapped == Swapped::Yes, is_paid);
            };
            let open = async {
                waiting(store, 2).await;
                gate.commit().await.unwrap();
            };
            futures::join!(job, swap, open);
        }
    }
}

/// Waits until so many wait for rows.
async fn waiting(store: &Store, many: i64) {
    let waiting = async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(&store.pool)
        .await
        .unwrap();
        waiting == many
    };
    eventually(TIMEOUT, waiting).await;
}

/// A request that went away had begun it. What others did on its connection was never committed.
#[tokio::test]
async fn a_payment_was_noted_in_a_transaction_that_nobody_ended() {
    let shop = postgres_shop().await;
    let (store, pool) = (&shop.store, &shop.store.pool);
    on_sale(&shop.other, "a", 5).await;
    assert_eq!(buy(&shop.other, "a", 7).await, Bought::Yes);
    let idle = async || pool.num_idle() > 0 && pool.num_idle() == pool.size() as usize;
    eventually(TIMEOUT, idle).await;
    let mut connections = Vec::new();
    while let Some(mut connection) = pool.try_acquire() {
        let begin = sqlx::query("BEGIN").execute(&mut *connection).await;
        begin.unwrap();
        connections.push(connection);
    }
    assert!(!connections.is_empty());
    drop(connections);
    eventually(TIMEOUT, idle).await;
    assert!(store.paid("a-7", 1600).await.unwrap());
    let seen = shop.other.order("a-7").await.unwrap().unwrap();
    assert_eq!(seen.paid_at, Some(1600));
}

#[tokio::test]
async fn settings_of_sqlite_are_those_of_a_server() {
    let shop = sqlite_shop().await;
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
        .fetch_one(&shop.store.pool)
        .await
        .unwrap();
    let pragma = async |statement: &'static str| -> i64 {
        sqlx::query_scalar(statement)
            .fetch_one(&shop.store.pool)
            .await
            .unwrap()
    };
    let (synchronous, busy) = (
        pragma("PRAGMA synchronous").await,
        pragma("PRAGMA busy_timeout").await,
    );
    assert_eq!((journal.as_str(), synchronous, busy), ("wal", 1, 5_000));
}

/// As when several instances start at once on a new file, and one of them is the first to write.
#[tokio::test]
async fn instances_that_start_at_once_found_a_new_database_locked() {
    let directory = tempfile::tempdir().unwrap();
    let url = DatabaseUrl::file(&directory.path().join("shop.db")).unwrap();
    sqlx::any::install_drivers(&[sqlx::sqlite::any::DRIVER, sqlx::postgres::any::DRIVER]).ok();
    let mut first = AnyConnection::connect(url.as_str()).await.unwrap();
    first.execute("BEGIN IMMEDIATE").await.unwrap();
    let store = Store::open(&url, TIMEOUT).await.unwrap();
    store.ping().await.unwrap();
    first.execute("ROLLBACK").await.unwrap();
    store.migrate().await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_not_there_is_told_at_once() {
    let missing = shared_postgres().url("nobody_made_this");
    let error = Store::open(&missing.parse().unwrap(), TIMEOUT)
        .await
        .unwrap_err();
    assert!(!error.is_unavailable(), "{error:?}");
    assert!(error.to_string().contains("nobody_made_this"), "{error}");

    let nobody = RedisServer::start();
    let url = format!("postgres://shop@{}/shop", nobody.address());
    nobody.kill();
    let error = Store::open(&url.parse().unwrap(), TIMEOUT)
        .await
        .unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
}
