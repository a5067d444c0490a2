//! EVAL, EVALSHA and SCRIPT.

use super::super::resp::{Fail, Reply};
use super::super::scripts::{NO_SCRIPT, Scripts};
use super::super::state::ScriptRun;
use super::{Args, int, is};

fn run(
    scripts: &mut Scripts,
    context: ScriptRun,
    args: Args<'_>,
    by_digest: bool,
) -> Result<Reply, Fail> {
    // The length of a digest is looked at before anything else.
    if by_digest && args[1].len() != 40 {
        return Err(NO_SCRIPT.into());
    }
    let rest = &args[3..];
    let keys = int(args[2])?;
    let Ok(keys) = usize::try_from(keys) else {
        return Err("ERR Number of keys can't be negative".into());
    };
    if keys > rest.len() {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let (keys, rest) = rest.split_at(keys);
    if by_digest {
        return scripts.run(args[1], context, keys, rest);
    }
    let digest = scripts.load(args[1])?;
    scripts.run(digest.as_bytes(), context, keys, rest)
}

fn context(client: u64, db: usize, read_only: bool) -> ScriptRun {
    ScriptRun {
        client,
        db,
        resp3: false,
        read_only,
    }
}

type Outcome = Result<Reply, Fail>;

pub(super) fn eval(scripts: &mut Scripts, client: u64, db: usize, args: Args<'_>) -> Outcome {
    run(scripts, context(client, db, false), args, false)
}

pub(super) fn eval_ro(scripts: &mut Scripts, client: u64, db: usize, args: Args<'_>) -> Outcome {
    run(scripts, context(client, db, true), args, false)
}

pub(super) fn evalsha(scripts: &mut Scripts, client: u64, db: usize, args: Args<'_>) -> Outcome {
    run(scripts, context(client, db, false), args, true)
}

pub(super) fn evalsha_ro(scripts: &mut Scripts, client: u64, db: usize, args: Args<'_>) -> Outcome {
    run(scripts, context(client, db, true), args, true)
}

pub(super) fn load(scripts: &mut Scripts, _: u64, _: usize, args: Args<'_>) -> Outcome {
    scripts
        .load(args[2])
        .map(|digest| Reply::Bytes(digest.into_bytes()))
}

pub(super) fn exists(scripts: &mut Scripts, _: u64, _: usize, args: Args<'_>) -> Outcome {
    let known = |digest: &&[u8]| Reply::from(scripts.is_cached(digest));
    Ok(Reply::Array(args[2..].iter().map(known).collect()))
}

pub(super) fn flush(scripts: &mut Scripts, _: u64, _: usize, args: Args<'_>) -> Outcome {
    match &args[2..] {
        [] => {}
        [how] if is(how, "SYNC") || is(how, "ASYNC") => {}
        _ => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
    }
    scripts.flush();
    Ok(Reply::Ok)
}

/// A script holds up every other command, so none can be running when this one is.
pub(super) fn kill(_: &mut Scripts, _: u64, _: usize, _: Args<'_>) -> Outcome {
    Err("NOTBUSY No scripts in execution right now.".into())
}
