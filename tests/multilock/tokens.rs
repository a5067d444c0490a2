//! The fencing tokens of parts that have tokens.

use redlock_rt::{MultiLock, Part};
use tests::{ask, assert_clean, within};

use crate::{DEADLINE, client, names};

#[tokio::test]
async fn each_fenced_part_has_its_token() {
    let (server, prefix, names) = names("tokens");
    let client = client(&server);
    let [a, b, c] = &names;
    let fenced = [a, c].map(|name| client.fenced_lock(name).token_ttl(DEADLINE * 6));
    let lock = MultiLock::new([
        Part::from(&fenced[1]),
        Part::from(client.rlock(b)),
        Part::from(&fenced[0]),
    ]);
    let mut last = [0, 0];
    for _ in 0..3 {
        let guard = within(DEADLINE, lock.lock()).await.unwrap();
        let tokens = guard.tokens();
        // In the order of the locks, not in that of the call.
        let [(first, of_first), (second, of_second)] = tokens[..] else {
            panic!("{tokens:?}");
        };
        assert_eq!([first, second], [a, c]);
        for (lock, token) in fenced.iter().zip([of_first, of_second]) {
            assert_eq!(lock.token().await.unwrap(), Some(token));
        }
        assert!(of_first > last[0] && of_second > last[1], "they grow");
        last = [of_first, of_second];
        // The token of the hold, so the same after re-entry.
        let inner = guard.reenter().await.unwrap();
        assert_eq!(inner.tokens(), tokens);
        inner.unlock().await.unwrap();
        guard.unlock().await.unwrap();
    }
    let plain = client.multi_lock([a, b]).lock().await.unwrap();
    assert!(plain.tokens().is_empty());
    plain.unlock().await.unwrap();
    let redis = server.connect().await.unwrap();
    for name in [a, c] {
        let key = format!("redisson_lock_token:{{{name}}}");
        let removed: usize = ask(&redis, &["DEL", &key]).await;
        assert_eq!(removed, 1);
    }
    assert_clean(&server, &prefix, [&client]).await;
}
