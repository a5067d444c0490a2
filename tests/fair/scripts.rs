//! The scripts alone, where no client says when they run.

use std::time::Duration;

use redis::Value;
use tests::{RedissonClient, script_text};

use crate::stage::Stage;

const S: Duration = Duration::from_secs(1);
/// A client of ours that nobody runs.
const OURS: &str = "0f8fad5b-d9cb-8fa1-a165-70867728950e";

fn owner(number: u64) -> String {
    format!("{OURS}:{number}")
}

impl Stage {
    fn notes_key(&self) -> String {
        format!("redlock_fair:{{{}}}", self.name)
    }

    async fn script(&self, text: &str, args: &[&str]) -> Value {
        let [queue, deadlines] = [self.queue_key(), self.deadlines_key()];
        let (notes, channel) = (
            self.notes_key(),
            format!("redisson_lock__channel:{{{}}}", self.name),
        );
        let keys = ["EVAL", text, "4", &self.name, &queue, &deadlines, &notes];
        let common = ["PUBLISH", "redlock_wake", &channel, "300000"];
        self.redis(&[&keys[..], &common, args].concat()).await
    }

    /// Takes the lock, or queues.
    async fn acquires(&self, number: u64) -> Value {
        let args = ["30000", &owner(number), "600000", "0"];
        self.script(&script_text("fair_acquire"), &args).await
    }

    /// Releases the lock, and names these.
    async fn releases(&self, number: u64, named: &[u64]) -> Value {
        let mut args = vec![owner(number)];
        args.extend(named.iter().flat_map(|one| [owner(*one), "30000".into()]));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.script(&script_text("fair_release"), &args).await
    }

    async fn left_of(&self, owner: &str) -> f64 {
        self.deadline(owner).await.unwrap() - self.now().await
    }

    async fn end(self) {
        let keys = [
            self.name.clone(),
            self.queue_key(),
            self.deadlines_key(),
            self.notes_key(),
        ];
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let _: i64 = self.redis(&[&["DEL"][..], &keys].concat()).await;
        self.assert_clean().await;
    }
}

/// Says that this waiter has the lock.
fn granted(reply: i64, number: u64) -> Value {
    let text = Value::BulkString(owner(number).into_bytes());
    Value::Array(vec![Value::Int(reply), Value::Int(2), text])
}

#[tokio::test]
async fn only_the_next_waiter_is_given_the_lock_and_a_repeat_finds_it_there() {
    let stage = Stage::open("fair-script").await;
    assert_eq!(stage.acquires(1).await, Value::Nil);
    for number in 2..=4 {
        stage.acquires(number).await;
    }
    assert_eq!(stage.releases(1, &[4, 2]).await, granted(1, 2));
    assert_eq!(stage.queue().await, [owner(3), owner(4)]);
    assert_eq!(stage.releases(1, &[4, 2]).await, granted(-1, 2));
    assert_eq!(stage.acquires(2).await, Value::Nil, "it has it");
    // The next one is not named.
    let woken = Value::BulkString(owner(3).into_bytes());
    let woken = Value::Array(vec![Value::Int(1), Value::Int(1), woken]);
    assert_eq!(stage.releases(2, &[4]).await, woken);
    let locked: i64 = stage.redis(&["EXISTS", &stage.name]).await;
    assert_eq!(locked, 0);
    stage.end().await;
}

/// The owner's late call had queued it again.
#[tokio::test]
async fn a_repeated_release_left_its_owner_in_the_queue() {
    let stage = Stage::open("fair-repeat").await;
    assert_eq!(stage.acquires(1).await, Value::Nil);
    stage.acquires(2).await;
    stage.acquires(3).await;
    assert_eq!(stage.releases(1, &[2]).await, granted(1, 2));
    stage.acquires(1).await;
    assert_eq!(stage.queue().await, [owner(3), owner(1)]);
    assert_eq!(stage.releases(1, &[2]).await, granted(-1, 2));
    assert_eq!(stage.queue().await, [owner(3)]);
    stage.end().await;
}

/// The waiter has had the lock by itself, and keeps it locked for its shortest hold.
#[tokio::test]
async fn a_late_release_lengthened_the_shortest_hold_of_another() {
    let stage = Stage::open("fair-min-hold").await;
    assert_eq!(stage.acquires(2).await, Value::Nil);
    let queue = stage.queue_key();
    let field = owner(2);
    let kept = ["2000", "", "PUBLISH", "redlock_wake"];
    let script = script_text("lock_min_hold");
    let call = ["EVAL", &script, "2", &stage.name, &queue, &field];
    let kept: i64 = stage.redis(&[&call[..], &kept].concat()).await;
    assert_eq!(kept, 2);
    assert_eq!(stage.releases(1, &[2]).await, granted(-1, 2));
    let left: i64 = stage.redis(&["PTTL", &stage.name]).await;
    assert!(left <= 2000, "{left} ms");
    stage.end().await;
}

/// A waiter of ours near its deadline was given a new one before the waiter of Redisson behind it was
/// looked at: the wait of that one, 60 s, was then taken for none.
#[tokio::test]
async fn a_java_waiter_behind_an_old_one_of_ours_lost_its_wait() {
    let stage = Stage::open("fair-aged").await;
    let java = RedissonClient::connect(&stage.url).await.unwrap();
    let java = java.fair_lock(&stage.name);
    assert_eq!(stage.acquires(1).await, Value::Nil);
    stage.acquires(2).await;
    stage.acquires(3).await;
    let now = stage.now().await;
    let (deadlines, near) = (stage.deadlines_key(), format!("{:.0}", now + 50_000.0));
    for number in [2, 3] {
        let args = ["ZADD", &deadlines, "XX", &near, &owner(number)];
        let _: i64 = stage.redis(&args).await;
    }
    let began = format!("{:.0}", now - 700_000.0);
    let args = ["HSET", &stage.notes_key(), "began", &began];
    let _: i64 = stage.redis(&args).await;
    assert!(java.attempt(1, Some(60 * S)).await.unwrap().is_some());
    for (giver, next) in [(1, 2), (2, 3)] {
        assert_eq!(stage.releases(giver, &[next]).await, granted(1, next));
        let left = stage.left_of(&java.owner(1)).await;
        assert!(
            left > 50_000.0 && left <= 60_001.0,
            "{left} ms behind {next}"
        );
    }
    stage.end().await;
}
