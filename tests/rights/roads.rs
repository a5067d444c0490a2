//! Rights that decide how a lock is taken and released, and rights that are missed late, as the front
//! page says.

use redlock_rt::{AclKind, Client, ErrorKind, Unlocked};
use tests::{eventually, within};

use crate::{DEADLINE, Stage, assert_denied, assert_said, rights};

const PAIRS: usize = 3;

/// The rights that a lock needs, with those of plain commands; `but`: changes to them.
fn rights_of_locks(but: &[&str]) -> Vec<String> {
    let mut all = rights(&[AclKind::FencedLock, AclKind::PlainCommands]);
    all.extend(but.iter().map(|&change| change.to_owned()));
    all
}

/// Takes and releases a lock some times, and counts the plain commands and the scripts.
async fn sent(stage: &Stage, client: &Client) -> [usize; 4] {
    let lock = client.rlock(&stage.world.name);
    for _ in 0..PAIRS {
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        let left: bool = stage.world.redis(&["EXISTS", &stage.world.name]).await;
        assert!(!left);
    }
    ["RESTORE", "HDEL", "PUBLISH", "EVALSHA"].map(|command| stage.proxy.count(command))
}

#[tokio::test]
async fn plain_commands_need_the_rights_to_restore_and_to_delete_a_field() {
    assert_said(
        "With `+restore` and `+hdel`, a free [`RLock`] or [`SpinLock`] is taken by one plain command. \
         HDEL releases them and a [`FencedLock`], with a PUBLISH behind it where waiters are told. \
         Without one of the two rights scripts do all that",
    );
    let mut stage = Stage::open("roads").await;
    for (but, expected) in [
        (&[][..], [PAIRS, PAIRS, PAIRS, 0]),
        // After one refusal all calls are scripts, and two of them are not known at first.
        (&["-restore"], [1, 0, 0, 2 * PAIRS + 2]),
        (&["-hdel"], [1, 1, 1, 2 * PAIRS - 1 + 2]),
        (&["-publish"], [PAIRS, PAIRS, PAIRS, 0]),
    ] {
        let client = stage.client(&rights_of_locks(but)).await;
        assert!(!client.rlock(&stage.world.name).is_locked().await.unwrap());
        let _: () = stage.world.redis(&["SCRIPT", "FLUSH"]).await;
        stage.proxy.mark();
        assert_eq!(sent(&stage, &client).await, expected, "{but:?}");
    }
    stage.end().await;
}

#[tokio::test]
async fn what_is_released_without_the_right_to_publish_is_found_by_polling() {
    assert_said(
        "Without SUBSCRIBE the waiters of the user poll. Without PUBLISH the waiters of other clients poll \
         for what the user releases.",
    );
    let mut stage = Stage::open("unheard").await;
    let waiting = stage.client(&rights_of_locks(&[])).await;
    let polling = stage.client(&rights_of_locks(&["-subscribe"])).await;
    for (waiting, but) in [
        (&waiting, &["-publish"][..]),
        (&waiting, &["-publish", "-hdel"]),
        (&polling, &[]),
    ] {
        let holding = stage.client(&rights_of_locks(but)).await;
        let guard = holding.rlock(&stage.world.name).lock().await.unwrap();
        let lock = waiting.rlock(&stage.world.name);
        let waiter = tokio::spawn(async move { lock.lock().await?.unlock().await });
        eventually(DEADLINE, async || waiting.stats().waiting == 1).await;
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        within(DEADLINE, waiter).await.unwrap().unwrap();
    }
    stage.end().await;
}

/// It was given out by RESTORE, and lost when its lease was over.
#[tokio::test]
async fn a_lock_was_given_out_that_the_user_may_not_renew() {
    assert_said(
        "[`Client::connect`] and each call fail at once with [`NoScripts`](ErrorKind::NoScripts), \
         [`Misconfigured`](ErrorKind::Misconfigured) or [`Denied`](ErrorKind::Denied), and the error names the command.",
    );
    let mut stage = Stage::open("no-renewal").await;
    let name = stage.world.name.clone();
    for (right, command) in [
        ("-script", "SCRIPT LOAD"),
        ("-evalsha", "EVALSHA"),
        ("-hget", "HGET"),
        ("-pttl", "PTTL"),
        ("-pexpire", "PEXPIRE"),
    ] {
        let client = stage.client(&rights_of_locks(&[right])).await;
        let denied = within(DEADLINE, client.rlock(&name).lock()).await;
        let told = tests::told(denied.as_ref().unwrap_err());
        assert!(
            told.contains(&format!("without {command} no lock")),
            "{told}"
        );
        assert_denied(denied, &name);
        let denied = stage.world.builder().connect().await.unwrap_err();
        assert_eq!(denied.kind(), ErrorKind::Denied, "{right}: {denied}");
    }
    stage.end().await;
}

/// What is asked for at the first connection need not be among the keys of the user.
#[tokio::test]
async fn a_user_of_few_keys_may_not_ask_for_the_key_that_is_not_there() {
    let mut stage = Stage::open("few-keys").await;
    let keys = format!("~{}", stage.world.name);
    let client = stage.client(&rights_of_locks(&[&keys])).await;
    sent(&stage, &client).await;
    stage.end().await;
}

#[tokio::test]
async fn without_the_right_to_increment_a_token_ahead_of_the_clock_is_none() {
    assert_said(
        "Without `+incr` a [`FencedLock`] is refused only if its last token is ahead of the server's \
         clock.",
    );
    let mut stage = Stage::open("no-incr").await;
    let name = stage.world.name.clone();
    let client = stage.client(&rights_of_locks(&["-incr"])).await;
    let lock = client.fenced_lock(&name);
    for _ in 0..PAIRS {
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    let counter = format!("redisson_lock_token:{{{name}}}");
    let ahead = "9000000000000000";
    let _: () = stage.world.redis(&["SET", &counter, ahead]).await;
    assert_denied(lock.lock().await, &name);
    let exists: bool = stage.world.redis(&["EXISTS", &name]).await;
    assert!(!exists, "nothing is made");
    let _: bool = stage.world.redis(&["DEL", &counter]).await;
    stage.end().await;
}

/// The release was refused after it had freed the lock.
#[tokio::test]
async fn without_a_right_to_its_channel_a_release_was_reported_as_failed() {
    let mut stage = Stage::open("silent").await;
    let client = stage.client(&rights_of_locks(&["resetchannels"])).await;
    sent(&stage, &client).await;
    let lock = client.rlock(&stage.world.name);
    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    drop(guard);
    stage.end().await;
}
