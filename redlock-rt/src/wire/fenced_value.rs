//! A value in Redis, with a second key for the last fencing token that was seen.

use std::time::Duration;

use super::keys;
use super::reply::{Malformed, Reply};
use super::script::{Call, millis, script};
use crate::name::LockName;

script!(EXEC = "fenced_exec");

/// The result of a write.
#[derive(Debug, PartialEq)]
pub(crate) enum FencedWrite {
    Done(Reply),
    /// This newer token was seen.
    Stale(String),
    /// The caller's script ended with this error.
    Raised(String),
}

/// [`was_run`] reads the reply. Must not be repeated once it may have run, unless `script` may run again.
/// `fence_ttl`: how long Redis keeps the token; `None`: for ever.
pub(crate) fn exec(
    key: &LockName,
    script: &str,
    args: &[&str],
    token: u64,
    fence_ttl: Option<Duration>,
) -> Call {
    let call = Call::new(&EXEC)
        .key(key.as_str())
        .key(&keys::fence(key))
        .number(token)
        .number(fence_ttl.map_or(0, millis))
        .arg(script);
    args.iter().fold(call, |call, arg| call.arg(arg))
}

/// Reads the reply to [`exec`].
pub(crate) fn was_run(reply: Reply) -> Result<FencedWrite, Malformed> {
    let Reply::List(items) = reply else {
        return Err(Malformed(reply));
    };
    match <[Reply; 2]>::try_from(items) {
        Ok([Reply::Int(1), reply]) => Ok(FencedWrite::Done(reply)),
        Ok([Reply::Int(0), Reply::Text(last)]) => Ok(FencedWrite::Stale(last)),
        Ok([Reply::Int(2), Reply::Text(error)]) => Ok(FencedWrite::Raised(error)),
        Ok(other) => Err(Malformed(Reply::List(other.into()))),
        // A Lua list ends before the first nil.
        Err(items) if items == [Reply::Int(1)] => Ok(FencedWrite::Done(Reply::Nil)),
        Err(items) => Err(Malformed(Reply::List(items))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::script::headers::assert_agrees;

    #[test]
    fn calls_agree_with_the_headers() {
        let key = LockName::new(None, "n").unwrap();
        let minute = Some(Duration::from_secs(60));
        for (ttl, text) in [(minute, "60000"), (None, "0")] {
            let exec = exec(&key, "return 1", &["a"], 7, ttl);
            assert_eq!(
                exec.texts(),
                ["n", "redlock_fence:{n}", "7", text, "return 1", "a"]
            );
            assert_agrees(&exec);
        }
    }

    #[test]
    fn a_reply_of_a_script_does_not_count_as_a_refusal() {
        let done = |reply| Ok(FencedWrite::Done(reply));
        let list = Reply::List;
        let (one, zero) = (Reply::Int(1), Reply::Int(0));
        assert_eq!(was_run(list(vec![one.clone()])), done(Reply::Nil));
        assert_eq!(
            was_run(list(vec![one.clone(), zero.clone()])),
            done(zero.clone())
        );
        let last = Reply::Text("9".into());
        let pair = vec![zero.clone(), last.clone()];
        assert_eq!(
            was_run(list(pair.clone())),
            Ok(FencedWrite::Stale("9".into()))
        );
        assert_eq!(
            was_run(list(vec![one, list(pair.clone())])),
            done(list(pair))
        );
        let raised = vec![Reply::Int(2), last];
        assert_eq!(was_run(list(raised)), Ok(FencedWrite::Raised("9".into())));
        for odd in [vec![], vec![zero.clone()], vec![zero.clone(), zero]] {
            assert!(was_run(list(odd)).is_err());
        }
    }
}
