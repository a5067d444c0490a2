//! What makes no sense is refused with its reason, and nothing is half done.

use serde_json::json;

use super::world::{JSON, World, now, on_sale};

#[test]
fn a_voucher_that_makes_no_sense_is_refused_with_its_field() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    let cases = [
        ("/name", json!(""), "name"),
        ("/name", json!("  "), "name"),
        ("/name", json!("x".repeat(81)), "name"),
        ("/price_cents", json!(-1), "price_cents"),
        ("/sale/stock", json!(-1), "sale.stock"),
        ("/sale/stock", json!(1_000_001), "sale.stock"),
        ("/sale/ends_at", json!(1), "sale.ends_at"),
        ("/sale/begins_at", json!(now() + 7_200_000), "sale.ends_at"),
        ("/sale/lock", json!("maybe"), "sale.lock"),
    ];
    for (place, value, field) in cases {
        let mut asked = on_sale("Tea", 3);
        match asked.pointer_mut(place) {
            Some(there) => *there = value,
            None => asked["sale"]["lock"] = value,
        }
        let refused = instance.post("/api/vouchers", &asked);
        refused.is_problem(422, "invalid");
        assert_eq!(refused.json()["errors"][0]["field"], field, "{refused:?}");
    }
    let over = json!({ "name": "Tea", "price_cents": 1, "sale": {
        "stock": 1, "begins_at": now() - 2000, "ends_at": now() - 1000,
    }});
    instance
        .post("/api/vouchers", &over)
        .is_problem(422, "invalid");
    assert_eq!(instance.get("/api/vouchers").json(), json!([]));
}

#[test]
fn a_body_that_is_none_is_refused() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    let post = |body: &str| instance.call("POST", "/api/vouchers", "", body);
    post("").is_problem(400, "no-json");
    post("{\"name\":").is_problem(400, "no-json");
    post("[1]").is_problem(422, "invalid");
    post("{\"name\":7}").is_problem(422, "invalid");
    post("{\"name\":\"Tea\",\"price_cents\":1,\"colour\":1}").is_problem(422, "invalid");
    post(&format!("{{\"name\":\"{}\"}}", "x".repeat(20_000))).is_problem(413, "too-large");
    // Without a length, in pieces.
    let piece = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    let request = format!(
        "POST /api/vouchers HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n{JSON}\
         connection: close\r\n\r\n{}0\r\n\r\n",
        piece.repeat(5)
    );
    instance
        .raw(request.as_bytes())
        .is_problem(413, "too-large");
    assert_eq!(instance.get("/api/vouchers").json(), json!([]));
}

/// A browser sends other types for any page, without asking.
#[test]
fn a_foreign_page_could_open_sales_and_begin_rushes() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    let post = |path: &str, kind: &str, body: &str| {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{kind}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        instance.raw(request.as_bytes())
    };
    let sale = on_sale("Tea", 3).to_string();
    for kind in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/json2\r\n",
    ] {
        post("/api/vouchers", kind, &sale).is_problem(415, "no-json");
        post("/api/rushes", kind, "{}").is_problem(415, "no-json");
    }
    assert_eq!(instance.get("/api/vouchers").json(), json!([]));
    let kind = "content-type: application/json; charset=utf-8\r\n";
    assert_eq!(post("/api/vouchers", kind, &sale).status, 201);
}

/// PostgreSQL has no text with this character, and none that is not UTF-8.
#[test]
fn a_text_that_no_database_takes_is_refused() {
    let world = World::postgres();
    let instance = world.serve(&[]);
    for name in ["a\0b", "\0"] {
        instance
            .post("/api/vouchers", &on_sale(name, 1))
            .is_problem(422, "invalid");
    }
    for id in ["%00", "%ff", "a%00b"] {
        instance
            .get(&format!("/api/vouchers/{id}"))
            .is_problem(404, "not-found");
        instance
            .get(&format!("/api/rushes/{id}"))
            .is_problem(404, "not-found");
        instance.order(7, id).is_problem(404, "not-found");
    }
    let swap = json!({ "for_order_id": "\0" });
    let order = "/api/voucher-orders/00000000-0000-7000-8000-000000000000/swap";
    instance
        .as_user(7, "POST", order, &swap)
        .is_problem(422, "invalid");
    assert_eq!(instance.get("/health").status, 200);
}

#[test]
fn an_unknown_page_or_method_is_a_problem_too() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    instance.get("/api/nothing").is_problem(404, "not-found");
    instance
        .get("/api/vouchers/none")
        .is_problem(404, "not-found");
    instance
        .get("/api/vouchers/none/books")
        .is_problem(404, "not-found");
    instance
        .get("/api/rushes/none")
        .is_problem(404, "not-found");
    instance
        .get("/api/rushes/none/events")
        .is_problem(404, "not-found");
    instance
        .call("DELETE", "/api/vouchers", "", "")
        .is_problem(405, "no-such-method");
}

#[test]
fn a_rush_that_makes_no_sense_is_refused() {
    let world = World::sqlite();
    let instance = world.serve(&[]);
    let voucher = instance.voucher(&on_sale("Tea", 3));
    let asked = json!({
        "voucher_id": voucher, "users": 10, "requests_per_user": 3, "concurrency": 8,
    });
    for (field, value) in [
        ("users", 0),
        ("users", 100_001),
        ("requests_per_user", 0),
        ("concurrency", -1),
    ] {
        let mut asked = asked.clone();
        asked[field] = json!(value);
        let refused = instance.post("/api/rushes", &asked);
        refused.is_problem(422, "invalid");
        assert_eq!(refused.json()["errors"][0]["field"], field);
    }
    let mut unknown = asked;
    unknown["voucher_id"] = json!("none");
    instance
        .post("/api/rushes", &unknown)
        .is_problem(404, "not-found");
}
