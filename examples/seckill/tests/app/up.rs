//! Several instances with a front, rushes over HTTP, and what breaks in the middle of them.

use std::collections::HashSet;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use redlock_rt::Client;
use serde_json::{Value, json};
use tests::{RedisServer, eventually};

use super::world::{Instance, LONG, World, block_on, on_sale};

fn up(world: &World, flags: &[&str]) -> Instance {
    let own = ["up", "--port", "0", "--database", &world.database];
    Instance::start(&[&own, flags].concat()).unwrap_or_else(|said| panic!("not up: {said}"))
}

pub(crate) fn seckill(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seckill"))
        .args(arguments)
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

fn rush(target: &str, flags: &[&str]) -> (Value, Output) {
    let own = ["rush", "--json", "--http", target];
    let output = seckill(&[&own, flags].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {output:?}"));
    (summary, output)
}

fn url(instance: &Instance) -> String {
    format!("http://{}", instance.address)
}

#[test]
fn the_front_hands_requests_to_all_instances_and_survives_one_that_dies() {
    let world = World::sqlite();
    let front = up(&world, &["--instances", "3", "--chaos"]);
    let names = || -> HashSet<String> {
        let name = |_| {
            let answer = front.get("/health");
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()["instance"].as_str().unwrap().to_owned()
        };
        (0..9).map(name).collect()
    };
    let before = names();
    assert_eq!(before.len(), 3, "{before:?}");
    let faults = front.get("/chaos").json();
    let faults: Vec<_> = faults["faults"].as_array().unwrap().iter().collect();
    assert_eq!(faults.len(), 4, "{faults:?}");
    let killed = front.post("/chaos/kill", &json!({}));
    assert_eq!(killed.status, 200, "{killed:?}");
    // Nobody is refused meanwhile, and the third is back soon, as somebody else.
    block_on(eventually(LONG, async || {
        let now = names();
        now.len() == 3 && now != before
    }));
    for nothing in ["/chaos/nothing", "/chaos/%ff"] {
        front.post(nothing, &json!({})).is_problem(404, "not-found");
    }
    front.get("/chaos/kill").is_problem(405, "no-such-method");
}

#[test]
fn without_chaos_nothing_can_be_broken() {
    let world = World::sqlite();
    let front = up(&world, &["--instances", "1"]);
    assert_eq!(front.get("/chaos").json(), json!({ "faults": [] }));
    front
        .post("/chaos/kill", &json!({}))
        .is_problem(404, "not-found");
}

#[test]
fn an_order_is_paid_at_the_stub_that_up_has_started() {
    let pay = |flags: &[&str]| {
        let world = World::sqlite();
        let front = up(&world, flags);
        let voucher = front.voucher(&on_sale("Tea", 1));
        let cookie = format!("cookie: {}\r\n", front.session(7));
        let order = front.call(
            "POST",
            &format!("/api/voucher-orders/{voucher}/seckill"),
            &cookie,
            "",
        );
        assert_eq!(order.status, 201, "{order:?}\n{}", front.log());
        let order = order.json()["order_id"].as_str().unwrap().to_owned();
        let path = format!("/api/voucher-orders/{order}/payment");
        (front.call("POST", &path, &cookie, ""), front)
    };
    let (paid, mut front) = pay(&["--instances", "2"]);
    assert_eq!(paid.status, 200, "{paid:?}");
    assert!(paid.json()["paid_at"].is_i64(), "{paid:?}");
    let log = front.log();
    let stub = log
        .lines()
        .find_map(|line| line.split_once("payments go to http://"));
    let stub = stub.unwrap_or_else(|| panic!("no stub in {log}")).1;
    assert!(std::net::TcpStream::connect(stub).is_ok(), "{stub}");
    // As a crash does: nobody tells the stub.
    front.process.kill();
    block_on(eventually(LONG, async || {
        std::net::TcpStream::connect(stub).is_err()
    }));

    let (failed, _front) = pay(&["--instances", "1", "--payment-failures", "100"]);
    failed.is_problem(502, "payment-failed");
}

#[test]
fn up_names_what_is_wrong_with_an_address() {
    let world = World::sqlite();
    let gone = RedisServer::start();
    let nobody = gone.url();
    gone.kill();
    for (flag, value) in [
        ("--redis", &*nobody),
        ("--redis", "http://localhost"),
        ("--database", "/no/such/folder/shop.db"),
        ("--payments", "https://localhost"),
        ("--payment-failures", "101"),
    ] {
        let mut arguments = vec!["up", "--port", "0", "--instances", "1", flag, value];
        if flag != "--database" {
            arguments.extend(["--database", &world.database]);
        }
        let said = Instance::start(&arguments).expect_err("it is up");
        assert!(said.starts_with("Some(2)"), "{flag} {value}: {said}");
        assert!(said.contains(flag), "{flag} {value}: {said}");
    }
}

#[test]
fn a_redis_that_is_somebody_elses_is_paused_and_never_restarted() {
    let redis = RedisServer::start();
    let mut world = World::sqlite();
    world.redis = redis.url();
    let front = up(
        &world,
        &["--redis", &world.redis, "--chaos", "--instances", "2"],
    );
    let offered = front.get("/chaos").json();
    let names: Vec<_> = offered["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["kill", "pause"]);
    assert!(offered["remark"].as_str().unwrap().contains("--redis"));
    for fault in ["restart-with-data", "restart-without-data"] {
        front
            .post(&format!("/chaos/{fault}"), &json!({}))
            .is_problem(409, "not-ours");
    }
    let flags = ["--users", "5", "--fault", "restart-with-data@1ms"];
    let refused = seckill(&[&["rush", "--http", &url(&front)], &flags[..]].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("where it runs"), "{said}");

    thread::scope(|scope| {
        let struck = scope.spawn(|| front.post("/chaos/pause", &json!({})));
        block_on(eventually(LONG, async || {
            let asked = async {
                let mut connection = redis.connect().await.ok()?;
                redis::cmd("PING").exec_async(&mut connection).await.ok()
            };
            let still = tokio::time::timeout(Duration::from_millis(300), asked).await;
            still.is_err()
        }));
        assert_eq!(struck.join().unwrap().status, 200);
    });
    block_on(async {
        let mut connection = redis.connect().await.unwrap();
        let ping = redis::cmd("PING").exec_async(&mut connection).await;
        ping.unwrap();
    });
    let flags = ["--users", "60", "--stock", "60", "--fault", "pause@50ms"];
    let (summary, output) = rush(&url(&front), &flags);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(summary["duplicates"], 0);

    redis.kill();
    front
        .post("/chaos/pause", &json!({}))
        .is_problem(502, "redis-refused");
}

#[test]
fn instances_end_with_the_process_that_started_them() {
    let world = World::sqlite();
    let mut front = up(&world, &["--instances", "2"]);
    let addresses: Vec<String> = front
        .get("/api/instances")
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            one["url"]
                .as_str()
                .unwrap()
                .trim_start_matches("http://")
                .to_owned()
        })
        .collect();
    assert_eq!(addresses.len(), 2);
    // As a crash does: nobody tells them.
    front.process.kill();
    for address in addresses {
        block_on(eventually(LONG, async || {
            std::net::TcpStream::connect(&address).is_err()
        }));
    }
}

#[test]
fn a_rush_over_http_comes_out_right() {
    let world = World::postgres();
    let instances = [world.serve(&[]), world.serve(&[])];
    let targets = format!("{},{}", url(&instances[0]), url(&instances[1]));
    let (summary, output) = rush(&targets, &["--users", "80", "--stock", "30"]);
    // On a machine that stands still for a second, requests give up their wait for a lock, and it says so.
    let patient = summary["ends"]["busy"].as_u64().unwrap_or(0) * 100 <= 240;
    assert_eq!(output.status.success(), patient, "{output:?}");
    assert_eq!(summary["requests"], 240);
    assert_eq!(summary["ends"]["ordered"], 30);
    assert_eq!(summary["sold"], 30);
    assert_eq!(
        (&summary["duplicates"], &summary["oversold"]),
        (&json!(0), &json!(0))
    );
    assert!(summary["latency_p99_us"].as_u64() >= summary["latency_p50_us"].as_u64());
    // Standard error is a pipe here, so not even a progress bar.
    assert_eq!(output.stderr.is_empty(), patient, "{output:?}");

    let (summary, _) = rush(
        &targets,
        &["--users", "80", "--stock", "80", "--lock", "off"],
    );
    assert!(summary["duplicates"].as_u64() >= Some(1), "{summary}");
}

#[test]
fn a_rush_says_what_is_wrong_with_its_target() {
    let nobody = RedisServer::start();
    let gone = format!("http://{}", nobody.address());
    nobody.kill();
    let world = World::sqlite();
    let serving = url(&world.serve(&[]));
    for (target, flags, named) in [
        (&*gone, &[][..], "no connection"),
        ("localhost", &[], "expected http://HOST:PORT"),
        ("", &[], "expected http://HOST:PORT"),
        ("https://localhost", &[], "--http https://localhost"),
        (&serving, &["--fault", "kill"], "--fault"),
        (&serving, &["--fault", "kill@soon"], "--fault"),
        (&serving, &["--instances", "2"], "--instances"),
    ] {
        let output = seckill(&[&["rush", "--http", target], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{target}: {output:?}");
        assert!(said.contains(named), "{named} is not in {said}");
    }
    let alone = seckill(&["rush", "--fault", "kill@1s"]);
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
}

/// A rush with something broken in the middle: requests may fail, and nobody has two vouchers.
#[track_caller]
fn holds(lock: &str, fault: &str, stall_one_in: &str) {
    let world = World::sqlite();
    let flags = ["--chaos", "--think", "20ms", "--stall-one-in", stall_one_in];
    let front = up(&world, &flags);
    let flags = [
        "--users", "150", "--stock", "450", "--lock", lock, "--fault", fault,
    ];
    let (summary, output) = rush(&url(&front), &flags);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        (&summary["duplicates"], &summary["oversold"]),
        (&json!(0), &json!(0))
    );
    let ends = summary["ends"].as_object().unwrap();
    let ended: u64 = ends.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(ended, 450, "{summary}");
}

#[test]
fn nobody_has_two_when_an_instance_is_killed() {
    holds("rlock", "kill@300ms", "20");
}

#[test]
fn nobody_has_two_when_redis_stands_still() {
    holds("rlock", "pause@300ms", "20");
}

#[test]
fn nobody_has_two_when_redis_restarts_with_its_data() {
    holds("rlock", "restart-with-data@300ms", "20");
}

#[test]
fn nobody_has_two_under_a_token_when_redis_loses_its_data() {
    // So many slow orders that some are under way when their locks are forgotten.
    holds("fenced", "restart-without-data@300ms", "2");
}

/// What the fault does to a plain lock, without the chance that is in a rush.
#[test]
fn a_holder_whose_lock_is_forgotten_is_refused_by_its_fence_and_by_nothing_else() {
    for (lock, second, orders) in [("fenced", 409, 1), ("rlock", 201, 2)] {
        let world = World::sqlite();
        // Sooner over than the next renewal, by which the holder would notice.
        let slow = world.serve(&["--think", "1s"]);
        let fast = world.serve(&[]);
        let mut asked = on_sale("Tea", 5);
        asked["sale"]["lock"] = json!(lock);
        let voucher = slow.voucher(&asked);
        thread::scope(|scope| {
            let first = scope.spawn(|| slow.order(7, &voucher));
            // It has looked whether there is an order, and found none.
            block_on(eventually(LONG, async || {
                slow.log().contains("thinking about an order")
            }));
            block_on(world.forget_lock("order:7"));
            assert_eq!(fast.order(7, &voucher).status, 201);
            let first = first.join().unwrap();
            assert_eq!(first.status, second, "{lock}: {first:?}");
            if lock == "fenced" {
                first.is_problem(409, "overtaken");
            }
        });
        let books = fast.get(&format!("/api/vouchers/{voucher}/books")).json();
        assert_eq!(books["sold"], orders, "{lock}");
    }
}

#[test]
fn nobody_has_two_when_a_real_redis_restarts_from_its_log() {
    let redis = RedisServer::options().aof().start();
    let mut world = World::sqlite();
    world.redis = redis.url();
    let instances = [
        world.serve(&["--think", "20ms", "--stall-one-in", "20"]),
        world.serve(&["--think", "20ms", "--stall-one-in", "20"]),
    ];
    let targets = format!("{},{}", url(&instances[0]), url(&instances[1]));
    let voucher = instances[0].voucher(&on_sale("Tea", 1));
    let flags = ["--users", "150", "--stock", "450"];
    let (summary, _) = thread::scope(|scope| {
        let rushing = scope.spawn(|| rush(&targets, &flags));
        let sells = async || instances[0].get("/api/vouchers").json()[0]["sale"]["stock"] != 450;
        let newest = async || instances[0].get("/api/vouchers").json()[0]["id"] != voucher.as_str();
        block_on(eventually(LONG, async || newest().await && sells().await));
        redis.kill();
        redis.restart();
        rushing.join().unwrap()
    });
    assert_eq!(
        (&summary["duplicates"], &summary["oversold"]),
        (&json!(0), &json!(0))
    );
    assert!(summary["sold"].as_u64() >= Some(1), "{summary}");
}

/// A page of another origin flushed Redis and killed instances: a form can be sent anywhere.
#[test]
fn a_foreign_page_broke_things() {
    let world = World::sqlite();
    let front = up(&world, &["--instances", "1", "--chaos"]);
    let name = || front.get("/health").json()["instance"].clone();
    let before = name();
    let own = front.address.to_string();
    let strike = |host: &str, headers: &str| {
        let request = format!(
            "POST /chaos/kill HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\
             content-length: 2\r\n\r\n{{}}"
        );
        front.raw(request.as_bytes())
    };
    let json = "content-type: application/json\r\n";
    for foreign in [
        "http://shop.example",
        "http://127.0.0.1:1",
        "null",
        "https://127.0.0.1",
    ] {
        let headers = format!("{json}origin: {foreign}\r\n");
        strike(&own, &headers).is_problem(403, "foreign-page");
    }
    // A name of a foreign zone that leads to this machine.
    let renamed = format!("{json}origin: http://shop.example\r\n");
    for headers in [json, &renamed] {
        strike("shop.example", headers).is_problem(403, "foreign-page");
    }
    for kind in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/json2\r\n",
    ] {
        strike(&own, kind).is_problem(415, "no-json");
    }
    assert_eq!(name(), before);
    let struck = strike(&own, &format!("{json}origin: http://{own}\r\n"));
    assert_eq!(struck.status, 200, "{struck:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn passwords_were_in_the_process_list() {
    let world = World::sqlite();
    let front = up(&world, &["--instances", "1"]);
    let instance = front.get("/health").json()["instance"].clone();
    let pid = instance.as_str().unwrap().split('-').next().unwrap();
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let environment = read("environ");
    let redis = environment
        .split('\0')
        .find_map(|one| one.strip_prefix("SECKILL_REDIS="));
    let url = url::Url::parse(redis.unwrap()).unwrap();
    let password = url.password().unwrap();
    assert_eq!(password.len(), 32);
    assert!(!read("cmdline").contains(password));
    // The engine is one of this shop alone.
    let place = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let error = block_on(Client::connect(&format!("redis://{place}"))).unwrap_err();
    assert_eq!(error.kind(), redlock_rt::ErrorKind::Denied, "{error}");
}
