//! The description of the API (OpenAPI 3.1), which `/docs` shows.

use axum::Json;
use serde_json::{Map, Value, json};

/// A method of a path, what it does, the status when it worked, and those of its problems.
type Operation = (
    &'static str,
    &'static str,
    &'static str,
    Option<&'static str>,
    u16,
    &'static [u16],
);

const OPERATIONS: [Operation; 18] = [
    (
        "post",
        "/api/session",
        "Begin a session; the cookie is signed",
        Some("Login"),
        200,
        &[400, 413, 415, 422],
    ),
    (
        "get",
        "/api/session",
        "Whose session it is",
        None,
        200,
        &[401],
    ),
    (
        "get",
        "/api/vouchers",
        "List the vouchers, newest first",
        None,
        200,
        &[503],
    ),
    (
        "post",
        "/api/vouchers",
        "Create a voucher, with a flash sale if you like",
        Some("NewVoucher"),
        201,
        &[400, 409, 413, 415, 422, 423, 503],
    ),
    (
        "get",
        "/api/vouchers/{id}",
        "Get one voucher with its stock",
        None,
        200,
        &[404, 503],
    ),
    (
        "get",
        "/api/vouchers/{id}/books",
        "What the orders table says of a voucher",
        None,
        200,
        &[404, 503],
    ),
    (
        "get",
        "/api/vouchers/{id}/waiting-room",
        "Wait for a pass (server-sent events position, admitted, closed)",
        None,
        200,
        &[401, 404, 409],
    ),
    (
        "post",
        "/api/voucher-orders/{id}/seckill",
        "Order the voucher with this id",
        None,
        201,
        &[401, 403, 404, 409, 423, 503],
    ),
    (
        "get",
        "/api/voucher-orders",
        "List your orders",
        None,
        200,
        &[401, 503],
    ),
    (
        "post",
        "/api/voucher-orders/{id}/payment",
        "Pay your order with this id",
        None,
        200,
        &[401, 402, 404, 409, 423, 502, 503],
    ),
    (
        "post",
        "/api/voucher-orders/{id}/offer",
        "Offer your order with this id for a swap",
        None,
        200,
        &[401, 404, 503],
    ),
    (
        "post",
        "/api/voucher-orders/{id}/swap",
        "Swap your order with this id for one that is offered",
        Some("Swap"),
        200,
        &[400, 401, 404, 409, 415, 422, 423, 503],
    ),
    (
        "get",
        "/api/settlements",
        "List the newest settlements",
        None,
        200,
        &[503],
    ),
    (
        "get",
        "/api/instances",
        "List the instances that serve",
        None,
        200,
        &[503],
    ),
    (
        "post",
        "/api/rushes",
        "Begin a rush on all instances",
        Some("NewRush"),
        201,
        &[400, 404, 409, 413, 415, 422, 503],
    ),
    (
        "get",
        "/api/rushes/{id}",
        "How far a rush is",
        None,
        200,
        &[404, 503],
    ),
    (
        "get",
        "/api/rushes/{id}/events",
        "The same ten times a second (server-sent events rush, pause)",
        None,
        200,
        &[404, 503],
    ),
    (
        "get",
        "/health",
        "Whether this instance can serve",
        None,
        200,
        &[503],
    ),
];

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The body is no JSON",
        401 => "There is no session, or not one of this shop",
        402 => "The payment was declined",
        403 => "This sale is entered through its waiting room",
        404 => "There is nothing of this id",
        409 => "Not in this state: sold out, already ordered, not begun, over, name taken, …",
        413 => "The body is too large",
        415 => "The content type is not application/json",
        422 => "A field makes no sense",
        423 => "The lock stayed taken; try again after Retry-After seconds",
        502 => "The payment service failed",
        _ => "Locks or the database cannot be had; try again after Retry-After seconds",
    }
}

fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer", "format": "int64" });
    let yes = json!({ "type": "boolean" });
    json!({
        "Problem": {
            "description": "RFC 9457",
            "type": "object",
            "required": ["type", "title", "status", "detail"],
            "properties": { "type": text, "title": text, "status": number, "detail": text },
        },
        "Login": { "type": "object", "properties": { "user_id": number } },
        "NewVoucher": {
            "type": "object",
            "required": ["name", "price_cents"],
            "properties": {
                "name": text,
                "price_cents": number,
                "sale": {
                    "type": "object",
                    "required": ["stock", "begins_at", "ends_at"],
                    "properties": {
                        "stock": number,
                        "begins_at": { "type": "integer", "description": "Milliseconds since 1970" },
                        "ends_at": { "type": "integer", "description": "Milliseconds since 1970" },
                        "lock": { "enum": ["off", "setnx", "setnx-ttl", "token", "rlock", "fenced"] },
                        "waiting_room": yes,
                        "stall_one_in": number,
                    },
                },
            },
        },
        "Swap": {
            "type": "object",
            "required": ["for_order_id"],
            "properties": { "for_order_id": text },
        },
        "NewRush": {
            "type": "object",
            "required": ["voucher_id", "users", "requests_per_user", "concurrency"],
            "properties": {
                "voucher_id": text,
                "users": number,
                "requests_per_user": number,
                "concurrency": number,
            },
        },
    })
}

/// The description.
pub(super) async fn document() -> Json<Value> {
    let mut paths: Map<String, Value> = Map::new();
    for (method, path, summary, body, worked, problems) in OPERATIONS {
        let mut responses = Map::new();
        responses.insert(worked.to_string(), json!({ "description": "It was done" }));
        for problem in problems {
            responses.insert(
                problem.to_string(),
                json!({
                    "description": meaning(*problem),
                    "content": { "application/problem+json": {
                        "schema": { "$ref": "#/components/schemas/Problem" },
                    } },
                }),
            );
        }
        let mut operation = json!({ "summary": summary, "responses": responses });
        if path.contains("{id}") {
            operation["parameters"] = json!([
                { "name": "id", "in": "path", "required": true, "schema": { "type": "string" } },
            ]);
        }
        if let Some(body) = body {
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/json": {
                    "schema": { "$ref": format!("#/components/schemas/{body}") },
                } },
            });
        }
        paths.entry(path).or_insert_with(|| json!({}))[method] = operation;
    }
    Json(json!({
        "openapi": "3.1.0",
        "info": { "title": "Flash sale", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": schemas() },
    }))
}
