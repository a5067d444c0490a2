//! What cannot be served says why, in one line, and ends with 2.

use std::{fs, thread};

use serde_json::json;
use tests::{RedisServer, eventually};

use super::world::{Instance, LONG, World, block_on};

#[track_caller]
fn refused(said: Result<Instance, String>, named: &str) {
    let said = said.expect_err("it serves");
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.contains("error: "))
        .collect();
    assert!(said.starts_with("Some(2)"), "{said}");
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains(named), "{named} is not in {said}");
}

#[test]
fn a_url_or_port_that_does_not_serve_is_named() {
    let world = World::sqlite();
    let serving = world.serve(&[]);
    let taken = serving.address.port().to_string();
    let gone = RedisServer::start();
    let nobody = gone.address().to_string();
    gone.kill();
    let with = |flag: &str, value: &str| {
        let mut arguments = vec!["serve", "--namespace", "start"];
        if flag != "--port" {
            arguments.extend(["--port", "0"]);
        }
        if flag != "--database" {
            arguments.extend(["--database", &world.database]);
        }
        Instance::start(&[arguments, vec![flag, value]].concat())
    };
    refused(
        with("--port", &taken),
        &format!("--port: cannot listen on 127.0.0.1:{taken}"),
    );
    refused(with("--port", "70000"), "--port");
    // An address that no machine has, for documentation.
    refused(with("--host", "192.0.2.1"), "--host: cannot listen on");
    refused(with("--redis", "not a url"), "--redis");
    refused(with("--redis", "http://localhost"), "--redis");
    refused(with("--redis", &format!("redis://{nobody}")), "--redis");
    refused(with("--database", "mysql://localhost/shop"), "--database");
    refused(with("--database", "postgres://localhost"), "--database");
    refused(with("--database", "/no/such/folder/shop.db"), "--database");
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("shop.txt");
    fs::write(&text, "what is no database ".repeat(50)).unwrap();
    refused(
        with("--database", &text.display().to_string()),
        "--database: file is not a database",
    );
    refused(
        with("--database", &format!("postgres://shop@{nobody}/shop")),
        "--database",
    );
    refused(with("--payments", "localhost"), "--payments");
    refused(with("--payments", "https://localhost"), "--payments");
    refused(with("--lock", "maybe"), "--lock");
}

#[test]
fn a_database_of_another_kind_was_shown_with_its_password() {
    for command in ["serve", "up"] {
        let database = "mysql://me:secret@localhost/shop";
        let said = Instance::start(&[command, "--port", "0", "--database", database]);
        assert!(!format!("{said:?}").contains("secret"), "{said:?}");
        refused(said, "--database: mysql://");
    }
}

#[test]
fn an_instance_makes_the_tables_under_a_lock() {
    let world = World::sqlite();
    let locks = block_on(world.locks());
    let guard = block_on(locks.rlock("migrate").lock()).unwrap();
    thread::scope(|scope| {
        let start = scope.spawn(|| world.serve(&[]));
        block_on(eventually(LONG, async || {
            assert!(!start.is_finished(), "it serves without the lock");
            world.waits_for("migrate").await
        }));
        block_on(guard.unlock()).unwrap();
        let instance = start.join().unwrap();
        assert_eq!(instance.get("/api/vouchers").json(), json!([]));
    });
}

#[test]
fn instances_that_start_at_once_make_the_tables_once() {
    for world in [World::sqlite(), World::postgres()] {
        let instances: Vec<Instance> = thread::scope(|scope| {
            let starts: Vec<_> = (0..6).map(|_| scope.spawn(|| world.serve(&[]))).collect();
            starts
                .into_iter()
                .map(|start| start.join().unwrap())
                .collect()
        });
        for instance in instances {
            assert_eq!(instance.get("/api/vouchers").json(), json!([]));
        }
    }
}

#[test]
fn an_instance_without_redis_has_an_engine_to_itself() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("shop.db").display().to_string();
    let instance = Instance::start(&["serve", "--port", "0", "--database", &database]).unwrap();
    assert_eq!(instance.get("/health").status, 200);
}
