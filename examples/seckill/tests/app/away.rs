//! Redis or the database goes away in the middle, and comes back.

use std::io::{BufRead, BufReader};
use std::thread;

use serde_json::{Value, json};
use sqlx::PgPool;
use tests::{Postgres, RedisServer, eventually};

use super::world::{LONG, World, block_on, on_sale};

#[test]
fn a_redis_that_is_away_is_told_and_nothing_is_ordered() {
    let redis = RedisServer::start();
    let mut world = World::sqlite();
    world.redis = redis.url();
    let instance = world.serve(&[]);
    let voucher = instance.voucher(&on_sale("Tea", 3));
    redis.kill();
    let refused = instance.order(7, &voucher);
    refused.is_problem(503, "locks-unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // What needs no lock is served.
    assert_eq!(instance.get("/api/vouchers").json()[0]["sale"]["stock"], 3);
    instance
        .post("/api/vouchers", &on_sale("Rice", 3))
        .is_problem(503, "locks-unavailable");
    redis.restart();
    block_on(eventually(LONG, async || {
        instance.order(7, &voucher).status == 201
    }));
    let books = instance
        .get(&format!("/api/vouchers/{voucher}/books"))
        .json();
    assert_eq!(books["sold"], 1);
    let names: Vec<Value> = instance
        .get("/api/vouchers")
        .json()
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn requests_do_not_wait_one_after_the_other_while_redis_is_away() {
    let redis = RedisServer::start();
    let mut world = World::sqlite();
    world.redis = redis.url();
    let instance = world.serve(&[]);
    let voucher = instance.voucher(&on_sale("Tea", 30));
    redis.kill();
    thread::scope(|scope| {
        let orders: Vec<_> = (1..=30)
            .map(|user| {
                scope.spawn({
                    let (instance, voucher) = (&instance, &voucher);
                    move || instance.order(user, voucher)
                })
            })
            .collect();
        for order in orders {
            // A wait of a second each would end with the time-out of a request.
            order.join().unwrap().is_problem(503, "locks-unavailable");
        }
    });
}

#[test]
fn a_database_that_goes_away_is_told_and_nothing_is_half_done() {
    let database = Postgres::start();
    let mut world = World::sqlite();
    world.database = database.create_database();
    let instance = world.serve(&["--database-timeout", "3s"]);
    let voucher = instance.voucher(&on_sale("Tea", 3));
    assert_eq!(instance.order(7, &voucher).status, 201);
    database.stop();
    for refused in [
        instance.order(8, &voucher),
        instance.get(&format!("/api/vouchers/{voucher}")),
        instance.post("/api/vouchers", &on_sale("Rice", 3)),
        instance.get("/health"),
    ] {
        refused.is_problem(503, "database-unavailable");
        assert!(refused.header("retry-after").is_some());
    }
    database.restart();
    block_on(eventually(LONG, async || {
        instance.get("/health").status == 200
    }));
    assert_eq!(instance.order(8, &voucher).status, 201);
    instance
        .order(7, &voucher)
        .is_problem(409, "already-ordered");
    let books = instance
        .get(&format!("/api/vouchers/{voucher}/books"))
        .json();
    assert_eq!(books, json!({ "sold": 2, "buyers": 2, "duplicates": 0 }));
}

#[test]
fn a_rush_without_its_database_told_its_viewers_what_the_database_had_said() {
    let database = Postgres::start();
    let mut world = World::sqlite();
    world.database = database.create_database();
    let instance = world.serve(&["--database-timeout", "3s", "--think", "1s"]);
    let voucher = instance.voucher(&on_sale("Tea", 1000));
    let asked = json!({
        "voucher_id": voucher, "users": 1000, "requests_per_user": 1, "concurrency": 1,
    });
    let rush = instance.post("/api/rushes", &asked).json();
    let request = format!(
        "GET /api/rushes/{}/events HTTP/1.1\r\nhost: x\r\n\r\n",
        rush["id"].as_str().unwrap()
    );
    let mut lines = BufReader::new(instance.open(request.as_bytes()))
        .lines()
        .map_while(Result::ok);
    lines.find(|line| line == "event: rush").unwrap();
    database.stop();
    lines.find(|line| line == "event: pause").unwrap();
    let reason = r#"data: {"reason":"the database is away; look whether it was done"}"#;
    assert_eq!(lines.next().as_deref(), Some(reason));
}

/// It was renewed for as long as the database did not answer, and nobody could settle.
#[test]
fn a_statement_that_hung_kept_the_lock_of_its_job() {
    let world = World::postgres();
    let instance = world.serve(&[]);
    block_on(async {
        let database = PgPool::connect(&world.database).await.unwrap();
        let mut other = database.begin().await.unwrap();
        sqlx::query("LOCK TABLE settlements IN ACCESS EXCLUSIVE MODE")
            .execute(&mut *other)
            .await
            .unwrap();
        eventually(LONG, async || {
            let hangs = "SELECT count(*) > 0 FROM pg_locks JOIN pg_database ON oid = database \
                         WHERE datname = current_database() AND NOT granted";
            sqlx::query_scalar::<_, bool>(hangs)
                .fetch_one(&database)
                .await
                .unwrap()
        })
        .await;
        let locks = world.locks().await;
        let lock = locks.fenced_lock("settlement");
        let hanging = lock.token().await.unwrap();
        // It was free, and is somebody's again.
        eventually(LONG, async || lock.token().await.unwrap() != hanging).await;
        other.rollback().await.unwrap();
    });
    assert_eq!(instance.get("/api/settlements").status, 200);
}
