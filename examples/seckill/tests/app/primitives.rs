//! The other primitives, where the shop has them.

use std::io::{BufRead, BufReader};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tests::eventually;

use super::world::{Instance, LONG, World, block_on, on_sale};

fn payments(flags: &[&str]) -> Instance {
    Instance::start(&[&["payments", "--port", "0"], flags].concat()).unwrap()
}

fn ordered(instance: &Instance, user: i64, voucher: &str) -> String {
    let order = instance.order(user, voucher);
    assert_eq!(order.status, 201, "{order:?}");
    order.json()["order_id"].as_str().unwrap().to_owned()
}

fn pay(instance: &Instance, user: i64, order: &str) -> super::world::Answer {
    let path = format!("/api/voucher-orders/{order}/payment");
    instance.as_user(user, "POST", &path, &Value::Null)
}

/// Two banks, of which the first one hangs, and an instance for each.
fn slow_and_quick(world: &World) -> ([Instance; 2], [Instance; 2]) {
    let banks = ["60s", "0"].map(|delay| payments(&["--delay", delay]));
    let shops = [0, 1].map(|bank: usize| {
        let url = format!("http://{}", banks[bank].address);
        world.serve(&["--payments", &url])
    });
    (banks, shops)
}

#[test]
fn a_list_has_what_another_instance_has_just_made() {
    let world = World::postgres();
    let (one, other) = (world.serve(&[]), world.serve(&[]));
    for number in 1..=20 {
        // Both have a copy at this moment.
        assert_eq!(one.get("/api/vouchers").status, 200);
        assert_eq!(other.get("/api/vouchers").status, 200);
        one.voucher(&on_sale(&format!("voucher {number}"), 1));
        let list = other.get("/api/vouchers").json();
        assert_eq!(list.as_array().unwrap().len(), number, "{list}");
    }
}

#[test]
fn four_payments_are_under_way_at_once_and_each_is_settled_once() {
    let stub = payments(&["--delay", "100ms"]);
    let url = format!("http://{}", stub.address);
    let world = World::sqlite();
    let instances = [
        world.serve(&["--payments", &url]),
        world.serve(&["--payments", &url]),
    ];
    let voucher = instances[0].voucher(&on_sale("Tea", 12));
    let orders: Vec<_> = (1..=12)
        .map(|user| (user, ordered(&instances[0], user, &voucher)))
        .collect();
    let start = Barrier::new(orders.len());
    thread::scope(|scope| {
        for (user, order) in &orders {
            let (start, instance) = (&start, &instances[usize::try_from(user % 2).unwrap()]);
            scope.spawn(move || {
                start.wait();
                let paid = pay(instance, *user, order);
                assert_eq!(paid.status, 200, "{paid:?}");
                assert!(paid.json()["paid_at"].is_i64(), "{paid:?}");
            });
        }
    });
    let books = stub.get("/payments").json();
    assert_eq!(books["paid"], 12);
    assert_eq!(books["most_at_once"], 4);
    let (user, order) = &orders[0];
    pay(&instances[0], *user, order).is_problem(409, "already-paid");
    pay(&instances[0], 99, order).is_problem(404, "not-found");

    let settled = || -> (i64, i64, Vec<i64>) {
        let all = instances[1].get("/api/settlements").json();
        let all = all.as_array().unwrap().clone();
        let sum = |field: &str| all.iter().map(|one| one[field].as_i64().unwrap()).sum();
        let tokens = all
            .iter()
            .map(|one| one["token"].as_i64().unwrap())
            .collect();
        (sum("orders"), sum("amount_cents"), tokens)
    };
    block_on(eventually(LONG, async || settled().0 >= 12));
    let (count, amount, tokens) = settled();
    assert_eq!((count, amount), (12, 12 * 500));
    assert!(
        tokens.is_sorted_by(|newer, older| newer > older),
        "{tokens:?}"
    );
}

#[test]
fn a_payment_that_fails_leaves_the_order_unpaid() {
    let stub = payments(&["--failures", "100", "--delay", "0"]);
    let url = format!("http://{}", stub.address);
    let world = World::sqlite();
    let instance = world.serve(&["--payments", &url]);
    let voucher = instance.voucher(&on_sale("Tea", 1));
    let order = ordered(&instance, 7, &voucher);
    pay(&instance, 7, &order).is_problem(502, "payment-failed");
    drop(stub);
    pay(&instance, 7, &order).is_problem(502, "payment-failed");
    let mine = instance
        .as_user(7, "GET", "/api/voucher-orders", &Value::Null)
        .json();
    assert_eq!(mine[0]["paid_at"], Value::Null);
    let without = world.serve(&[]);
    pay(&without, 7, &order).is_problem(503, "payments-unavailable");
}

/// User 8 had it then, with the money of user 7.
#[test]
fn an_order_was_given_away_while_it_was_paid() {
    let world = World::sqlite();
    let (banks, [slow, quick]) = slow_and_quick(&world);
    let (tea, rice) = (
        slow.voucher(&on_sale("Tea", 5)),
        slow.voucher(&on_sale("Rice", 5)),
    );
    let (mine, yours) = (ordered(&slow, 7, &tea), ordered(&slow, 8, &rice));
    let offer = || {
        let path = format!("/api/voucher-orders/{mine}/offer");
        assert_eq!(slow.as_user(7, "POST", &path, &Value::Null).status, 200);
    };
    offer();
    let swap = || {
        let path = format!("/api/voucher-orders/{yours}/swap");
        quick.as_user(8, "POST", &path, &json!({ "for_order_id": mine }))
    };
    thread::scope(|scope| {
        let paid = scope.spawn(|| pay(&slow, 7, &mine));
        block_on(eventually(LONG, async || {
            banks[0].get("/payments").json()["most_at_once"] == 1
        }));
        swap().is_problem(409, "not-offered");
        paid.join().unwrap().is_problem(502, "payment-failed");
    });
    // Nobody knows what the bank has done.
    swap().is_problem(409, "not-offered");
    let paid = pay(&quick, 7, &mine);
    assert_eq!(paid.status, 200, "{paid:?}");
    assert!(paid.json()["paid_at"].is_i64(), "{paid:?}");
    // What was offered was an order that was not paid.
    assert_eq!(paid.json()["offered"], false, "{paid:?}");
    swap().is_problem(409, "not-offered");
    offer();
    assert_eq!(swap().status, 200);
}

/// It was told to come back later, and others came later for it.
#[test]
fn a_paid_order_waited_for_a_call_to_the_bank() {
    let world = World::sqlite();
    let (banks, [slow, quick]) = slow_and_quick(&world);
    let tea = slow.voucher(&on_sale("Tea", 5));
    let orders = [1, 2, 3, 4, 5].map(|user| (user, ordered(&slow, user, &tea)));
    let (others, (user, mine)) = (&orders[..4], &orders[4]);
    assert_eq!(pay(&quick, *user, mine).status, 200);
    thread::scope(|scope| {
        for (user, order) in others {
            scope.spawn(|| pay(&slow, *user, order));
        }
        block_on(eventually(LONG, async || {
            banks[0].get("/payments").json()["most_at_once"] == 4
        }));
        pay(&quick, *user, mine).is_problem(409, "already-paid");
    });
}

#[test]
fn two_users_swap_their_vouchers() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    let (tea, rice) = (
        instance.voucher(&on_sale("Tea", 5)),
        instance.voucher(&on_sale("Rice", 5)),
    );
    let (mine, yours) = (ordered(&instance, 7, &tea), ordered(&instance, 8, &rice));
    let swap = |user: i64, order: &str, other: &str| {
        let path = format!("/api/voucher-orders/{order}/swap");
        instance.as_user(user, "POST", &path, &json!({ "for_order_id": other }))
    };
    swap(7, &mine, &yours).is_problem(409, "not-offered");
    let offer = |user: i64, order: &str| {
        let path = format!("/api/voucher-orders/{order}/offer");
        instance.as_user(user, "POST", &path, &Value::Null)
    };
    offer(7, &yours).is_problem(404, "not-found");
    assert_eq!(offer(8, &yours).json()["offered"], true);
    swap(9, &mine, &yours).is_problem(404, "not-found");
    assert_eq!(swap(7, &mine, &yours).status, 200);
    let of = |user: i64| {
        let all = instance
            .as_user(user, "GET", "/api/voucher-orders", &Value::Null)
            .json();
        all[0]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!((of(7), of(8)), (yours.clone(), mine.clone()));
    // User 8 has tea now, and would have it twice.
    instance.order(8, &tea).is_problem(409, "already-ordered");
    let more = ordered(&instance, 8, &rice);
    assert_eq!(offer(7, &yours).status, 200);
    assert_eq!(offer(8, &mine).status, 200);
    let twice = swap(7, &yours, &mine);
    assert_eq!(of(8), more, "{twice:?}");
    twice.is_problem(409, "swapped-twice");
}

/// Enters the waiting room, and returns the lines of the stream.
fn enter(instance: &Instance, voucher: &str, user: i64) -> impl Iterator<Item = String> {
    let request = format!(
        "GET /api/vouchers/{voucher}/waiting-room HTTP/1.1\r\nhost: x\r\nx-user-id: {user}\r\n\r\n"
    );
    BufReader::new(instance.open(request.as_bytes()))
        .lines()
        .map_while(Result::ok)
}

#[test]
fn a_sale_with_a_waiting_room_is_entered_by_a_pass() {
    let world = World::sqlite();
    let instance = world.serve(&["--pace", "1500ms"]);
    let mut asked = on_sale("Tea", 5);
    asked["sale"]["waiting_room"] = json!(true);
    let voucher = instance.voucher(&asked);
    instance.order(7, &voucher).is_problem(403, "no-pass");

    let enter = |user| enter(&instance, &voucher, user);
    let pass_of = |lines: &mut dyn Iterator<Item = String>| -> (String, Vec<String>) {
        let mut places = Vec::new();
        for line in lines {
            let Some(data) = line.strip_prefix("data: ") else {
                continue;
            };
            let event: Value = serde_json::from_str(data).unwrap();
            match event["pass"].as_str() {
                Some(pass) => return (pass.to_owned(), places),
                None => places.push(data.to_owned()),
            }
        }
        panic!("the room closed after {places:?}");
    };
    let (first, _) = pass_of(&mut enter(7));
    // The door is shut for the pace, so these two are seen in the queue.
    let mut second = enter(8);
    let place = second.find(|line| line.starts_with("data: ")).unwrap();
    assert!(place.contains("\"before\":0"), "{place}");
    let (third, places) = pass_of(&mut enter(9));
    assert!(places[0].contains("\"before\":1"), "{places:?}");
    let (second, _) = pass_of(&mut second);

    let order = |user: i64, pass: &str| {
        let headers = format!("x-user-id: {user}\r\nx-waiting-room-pass: {pass}\r\n");
        let path = format!("/api/voucher-orders/{voucher}/seckill");
        instance.call("POST", &path, &headers, "")
    };
    order(7, &second).is_problem(403, "no-pass");
    order(7, "made-up").is_problem(403, "no-pass");
    for (user, pass) in [(7, &first), (8, &second), (9, &third)] {
        assert_eq!(order(user, pass).status, 201);
    }
}

#[test]
fn a_visitor_who_goes_away_leaves_the_queue() {
    let world = World::sqlite();
    // Nobody else is let in for as long as this test may take.
    let instance = world.serve(&["--pace", "3600s"]);
    let voucher = instance.voucher(&on_sale("Tea", 5));
    let enter = |user| enter(&instance, &voucher, user);
    let told = |lines: &mut dyn Iterator<Item = String>, what: &str| {
        let until = Instant::now() + LONG;
        // A stream that says nothing new is kept alive by an empty line now and then.
        let line = lines
            .take_while(|_| Instant::now() < until)
            .find(|line| line.contains(what));
        line.unwrap_or_else(|| panic!("never told {what}"))
    };
    told(&mut enter(7), "admitted");
    let mut second = enter(8);
    told(&mut second, "\"before\":0");
    let mut third = enter(9);
    told(&mut third, "\"before\":1");
    drop(second);
    told(&mut third, "\"before\":0");
}

#[test]
fn a_room_that_closed_told_its_visitors_the_names_of_locks() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    let voucher = instance.voucher(&on_sale("Tea", 5));
    let door = format!("door:{voucher}");
    let latch = block_on(world.locks()).count_down_latch(&door);
    assert!(block_on(latch.try_set_count(1)).unwrap());
    let told = enter(&instance, &voucher, 7).find_map(|line| {
        let data = line.strip_prefix("data: ")?;
        Some(data.to_owned())
    });
    let reason = r#"{"reason":"locks cannot be had; nothing was done"}"#;
    assert_eq!(told.as_deref(), Some(reason));
    block_on(world.forget_lock(&door));
}

#[test]
fn expired_sales_are_pruned_by_one_instance() {
    let world = World::sqlite();
    let instances = [world.serve(&["--keep", "0"]), world.serve(&["--keep", "0"])];
    let mut asked = on_sale("Tea", 5);
    asked["sale"]["ends_at"] = json!(super::world::now() + 1000);
    let voucher = instances[0].voucher(&asked);
    let path = format!("/api/vouchers/{voucher}");
    block_on(eventually(LONG, async || {
        instances[1].get(&path).json()["sale"].is_null()
    }));
    // It is done, and yet the lock is kept: nobody else does it again for ten seconds.
    assert!(block_on(world.lock_is_taken("prune")));
    let pruned = |instance: &Instance| instance.log().matches("expired sales removed").count();
    block_on(eventually(LONG, async || {
        pruned(&instances[0]) + pruned(&instances[1]) == 1
    }));
}

#[test]
fn a_rush_runs_on_all_instances_and_is_told_to_its_end() {
    let world = World::postgres();
    let instances = [world.serve(&[]), world.serve(&[]), world.serve(&[])];
    let voucher = instances[0].voucher(&on_sale("Tea", 20));
    let asked = json!({
        "voucher_id": voucher, "users": 60, "requests_per_user": 3, "concurrency": 24,
    });
    let begun = instances[1].post("/api/rushes", &asked);
    assert_eq!(begun.status, 201, "{begun:?}");
    let id = begun.json()["id"].as_str().unwrap().to_owned();
    // The stream ends with the rush.
    let events = instances[2].get(&format!("/api/rushes/{id}/events"));
    assert_eq!(events.status, 200);
    let state = instances[0].get(&format!("/api/rushes/{id}")).json();
    assert_eq!(state["done"], true, "{state}");
    assert_eq!(
        (&state["requests"], &state["ended"]),
        (&json!(180), &json!(180))
    );
    assert_eq!((&state["sold"], &state["stock"]), (&json!(20), &json!(0)));
    assert_eq!(
        (&state["duplicates"], &state["oversold"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(state["ends"]["ordered"], 20);
    let driven = state["instances"].as_array().unwrap();
    assert_eq!(driven.len(), 3);
    assert!(
        driven
            .iter()
            .all(|one| one["state"] == "done" && one["ended"] == 60),
        "{state}"
    );
    let last = events
        .text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("data: "))
        .unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["done"], &last["sold"]), (&json!(true), &json!(20)));
}

#[test]
fn two_thousand_requests_are_told_in_at_most_twenty_events_a_second() {
    let world = World::sqlite();
    let instances = [world.serve(&[]), world.serve(&[])];
    let voucher = instances[0].voucher(&on_sale("Tea", 50));
    let asked = json!({
        "voucher_id": voucher, "users": 1000, "requests_per_user": 2, "concurrency": 64,
    });
    let begun = instances[0].post("/api/rushes", &asked).json();
    let began = Instant::now();
    let id = begun["id"].as_str().unwrap();
    let told = instances[1].get(&format!("/api/rushes/{id}/events"));
    let seconds = began.elapsed().as_secs_f64();
    let states: Vec<Value> = told
        .text
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    // The first and the last one come at any time.
    let (told, most) = (states.len() as f64, 20.0 * seconds + 2.0);
    assert!(told <= most, "{told} in {seconds} s");
    let last = states.last().unwrap();
    assert_eq!(
        (&last["done"], &last["ended"]),
        (&json!(true), &json!(2000))
    );
    assert_eq!(
        (&last["sold"], &last["duplicates"]),
        (&json!(50), &json!(0))
    );
}
