//! Orders: what is answered in each state of a sale.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{eventually, shared_server};

use super::world::{Instance, LONG, World, block_on, now, on_sale};

#[test]
fn an_order_is_placed_once_a_user_on_sqlite() {
    once_a_user(&World::sqlite());
}

#[test]
fn an_order_is_placed_once_a_user_on_postgres() {
    once_a_user(&World::postgres());
}

/// Ten requests of each of four users at the same moment, over two instances, for three vouchers.
fn once_a_user(world: &World) {
    let instances = [
        world.serve(&["--think", "20ms"]),
        world.serve(&["--think", "20ms"]),
    ];
    let voucher = instances[0].voucher(&on_sale("Tea", 3));
    let start = Barrier::new(40);
    let statuses: Vec<(i64, u16)> = thread::scope(|scope| {
        let requests: Vec<_> = (0..40_usize)
            .map(|request| {
                let (start, voucher, instance) = (&start, &voucher, &instances[request % 2]);
                let user = i64::try_from(request / 10).unwrap() + 1;
                scope.spawn(move || {
                    start.wait();
                    (user, instance.order(user, voucher).status)
                })
            })
            .collect();
        requests
            .into_iter()
            .map(|request| request.join().unwrap())
            .collect()
    });
    for user in 1..=4 {
        let placed = statuses.iter().filter(|end| **end == (user, 201)).count();
        assert!(placed <= 1, "user {user}: {statuses:?}");
    }
    let placed = statuses.iter().filter(|(_, status)| *status == 201).count();
    assert_eq!(placed, 3, "{statuses:?}");
    let others = statuses.iter().filter(|(_, status)| *status != 201);
    assert!(
        others
            .into_iter()
            .all(|(_, status)| [409, 423].contains(status)),
        "{statuses:?}"
    );
    let books = instances[1]
        .get(&format!("/api/vouchers/{voucher}/books"))
        .json();
    assert_eq!(books, json!({ "sold": 3, "buyers": 3, "duplicates": 0 }));
    let voucher = instances[1].get(&format!("/api/vouchers/{voucher}")).json();
    assert_eq!(voucher["sale"]["stock"], 0);
}

#[test]
fn each_state_of_a_sale_has_its_problem() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    let voucher = instance.voucher(&on_sale("Tea", 1));
    let order = instance.order(7, &voucher);
    assert_eq!(order.status, 201, "{order:?}");
    let id = order.json()["order_id"].as_str().unwrap().to_owned();
    // Version 7: ids sort by time.
    assert_eq!(id.as_bytes()[14], b'7', "{id}");
    instance.order(8, &voucher).is_problem(409, "sold-out");

    let voucher = instance.voucher(&on_sale("Rice", 2));
    assert_eq!(instance.order(7, &voucher).status, 201);
    instance
        .order(7, &voucher)
        .is_problem(409, "already-ordered");

    let mut later = on_sale("Later", 1);
    later["sale"]["begins_at"] = json!(now() + 1_000_000);
    let later = instance.order(7, &instance.voucher(&later));
    later.is_problem(409, "not-begun");
    assert!(later.json()["begins_at"].as_i64().unwrap() > now());

    let mut soon_over = on_sale("Soon over", 1);
    let ends_at = now() + 1500;
    soon_over["sale"]["ends_at"] = json!(ends_at);
    let soon_over = instance.voucher(&soon_over);
    block_on(eventually(LONG, async || now() >= ends_at));
    instance.order(7, &soon_over).is_problem(409, "over");

    let plain = instance.voucher(&json!({ "name": "Plain", "price_cents": 1 }));
    instance.order(7, &plain).is_problem(409, "not-on-sale");
    instance.order(7, "no-such-id").is_problem(404, "not-found");

    let mine = instance
        .as_user(7, "GET", "/api/voucher-orders", &Value::Null)
        .json();
    assert_eq!(mine.as_array().unwrap().len(), 2, "{mine}");
}

#[test]
fn two_sales_of_one_name_are_refused() {
    let world = World::sqlite();
    let instances = [world.serve(&[]), world.serve(&[])];
    instances[0].voucher(&on_sale("Tea", 3));
    instances[1]
        .post("/api/vouchers", &on_sale(" Tea ", 4))
        .is_problem(409, "name-taken");
    // And at the same moment.
    let start = Barrier::new(8);
    let mut statuses: Vec<u16> = thread::scope(|scope| {
        let requests: Vec<_> = (0..8)
            .map(|request| {
                let (start, instance) = (&start, &instances[request % 2]);
                scope.spawn(move || {
                    start.wait();
                    instance.post("/api/vouchers", &on_sale("Rice", 1)).status
                })
            })
            .collect();
        requests
            .into_iter()
            .map(|request| request.join().unwrap())
            .collect()
    });
    statuses.sort_unstable();
    assert_eq!(statuses[0], 201, "{statuses:?}");
    assert!(
        statuses[1..].iter().all(|status| *status == 409),
        "{statuses:?}"
    );
}

/// The line of the log with all of these words. It may come after the answer.
fn line_with(instance: &Instance, words: &[&str]) -> String {
    block_on(eventually(LONG, async || {
        let log = instance.log();
        let line = log
            .lines()
            .find(|line| words.iter().all(|word| line.contains(word)));
        line.map(str::to_owned)
            .ok_or_else(|| format!("no line with {words:?} in\n{log}"))
    }))
}

#[test]
fn a_user_whose_lock_stays_taken_is_told_to_come_back() {
    let world = World::sqlite();
    let instance = world.serve(&["--think", "3s"]);
    let voucher = instance.voucher(&on_sale("Tea", 3));
    thread::scope(|scope| {
        let first = scope.spawn(|| instance.order(7, &voucher).status);
        block_on(eventually(LONG, async || {
            world.lock_is_taken("order:7").await
        }));
        let second = instance.order(7, &voucher);
        second.is_problem(423, "busy");
        assert_eq!(second.header("retry-after"), Some("1"));
        assert_eq!(first.join().unwrap(), 201);
    });
    let line = line_with(&instance, &["status=201", "lock="]);
    assert!(
        line.contains("lock=\"order:7\"") && line.contains("lock_wait_ms="),
        "{line}"
    );
    let refused = line_with(&instance, &["status=423"]);
    assert!(refused.contains("lock=\"order:7\""), "{refused}");

    // Without a lock there is none to name.
    let mut unlocked = on_sale("Rice", 1);
    unlocked["sale"]["lock"] = json!("off");
    let unlocked = instance.voucher(&unlocked);
    assert_eq!(instance.order(7, &unlocked).status, 201);
    let line = line_with(&instance, &["status=201", &format!("{unlocked}/seckill")]);
    assert!(
        !line.contains("lock=") && line.contains("lock_wait_ms="),
        "{line}"
    );
}

#[test]
fn a_sale_says_which_of_its_orders_are_slow() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    let mut slow = on_sale("Tea", 1);
    slow["sale"]["stall_one_in"] = json!(1);
    let (slow, fast) = (
        instance.voucher(&slow),
        instance.voucher(&on_sale("Rice", 1)),
    );
    let took = |voucher: &str| {
        let began = Instant::now();
        assert_eq!(instance.order(7, voucher).status, 201);
        began.elapsed()
    };
    assert!(took(&slow) >= Duration::from_millis(450));
    let told = |voucher: &str| instance.get(&format!("/api/vouchers/{voucher}")).json();
    assert_eq!(told(&slow)["sale"]["stall_one_in"], 1);
    assert_eq!(told(&fast)["sale"]["stall_one_in"], 0);
}

#[test]
fn what_takes_too_long_is_given_up_and_nothing_is_ordered() {
    let world = World::sqlite();
    let instance = world.serve(&["--think", "60s"]);
    let voucher = instance.voucher(&on_sale("Tea", 3));
    instance.order(7, &voucher).is_problem(503, "timed-out");
    block_on(eventually(LONG, async || {
        !world.lock_is_taken("order:7").await
    }));
    let books = instance
        .get(&format!("/api/vouchers/{voucher}/books"))
        .json();
    assert_eq!(books["sold"], 0);
}

#[test]
fn a_session_is_a_signed_cookie_of_any_instance() {
    let world = World::sqlite();
    let (one, other) = (world.serve(&[]), world.serve(&[]));
    let begun = one.post("/api/session", &json!({ "user_id": 7 }));
    assert_eq!(begun.json()["user_id"], 7);
    let cookie = begun
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    assert!(cookie.unwrap().contains("httponly") && cookie.unwrap().contains("samesite=strict"));
    // Heads are lower case here; the signature is not.
    let raw = one.call("POST", "/api/session", "", "{\"user_id\":7}");
    assert_eq!(raw.status, 200);
    let cookie = one.session(7);
    let who = other.call("GET", "/api/session", &format!("cookie: {cookie}\r\n"), "");
    assert_eq!((who.status, who.json()["user_id"].clone()), (200, json!(7)));

    for wrong in [
        String::new(),
        "cookie: seckill_session=7\r\n".to_owned(),
        format!("cookie: {}8\r\n", cookie),
        format!("cookie: {}\r\n", cookie.replace("session:7", "session:8")),
        "cookie: seckill_session=%00%ff\r\n".to_owned(),
        "x-user-id: 0\r\n".to_owned(),
        "x-user-id: me\r\n".to_owned(),
    ] {
        assert_ne!(wrong, format!("cookie: {cookie}\r\n"));
        let refused = other.call("POST", "/api/voucher-orders/x/seckill", &wrong, "");
        refused.is_problem(401, "no-session");
        assert!(refused.header("www-authenticate").is_some());
    }
}

#[test]
fn the_description_names_every_route() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    let description = instance.get("/openapi.json").json();
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() >= 14, "{paths:?}");
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path.replace("{id}", "none");
            let answer = instance.as_user(7, &method.to_uppercase(), &path, &json!({}));
            assert_ne!(answer.status, 405, "{method} {path}: {answer:?}");
            let known = operation["responses"].as_object().unwrap();
            let known = known.contains_key(&answer.status.to_string());
            assert!(known, "{method} {path} is not described: {answer:?}");
        }
    }
    for page in [
        "/",
        "/docs",
        "/app.js",
        "/docs.js",
        "/style.css",
        "/icon.svg",
    ] {
        let answer = instance.get(page);
        assert_eq!(answer.status, 200, "{page}: {answer:?}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self'"), "{page}: {policy}");
    }
}

#[test]
fn an_instance_that_is_to_end_answers_what_is_under_way_and_leaves_no_lock() {
    let world = World::sqlite();
    let mut instance = world.serve(&["--think", "500ms"]);
    let voucher = instance.voucher(&on_sale("Tea", 3));
    let request = format!(
        "POST /api/voucher-orders/{voucher}/seckill HTTP/1.1\r\nhost: x\r\nx-user-id: 7\r\n\
         connection: close\r\ncontent-length: 0\r\n\r\n"
    );
    let mut answer = instance.open(request.as_bytes());
    block_on(eventually(LONG, async || {
        world.lock_is_taken("order:7").await
    }));
    instance.terminate();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut answer, &mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 201"), "{text}");
    let status = instance.process.wait(LONG).unwrap();
    assert!(status.success(), "{status:?}\n{}", instance.log());
    assert_eq!(
        block_on(world.keys()),
        [""; 0],
        "keys of {:?}",
        shared_server().url()
    );
}
