//! EVAL, EVALSHA and SCRIPT.

use super::super::resp::{Fail, RespReply};
use super::super::scripts::{NO_SCRIPT, Scripts};
use super::super::state::ScriptRun;
use super::call::{CommandArgs, int, is};

type ScriptReply = Result<RespReply, Fail>;

/// The keys and the arguments of a call.
fn split(args: CommandArgs<'_>) -> Result<(CommandArgs<'_>, CommandArgs<'_>), Fail> {
    let rest = &args[3..];
    let Ok(keys) = usize::try_from(int(args[2])?) else {
        return Err("ERR Number of keys can't be negative".into());
    };
    rest.split_at_checked(keys)
        .ok_or_else(|| "ERR Number of keys can't be greater than number of args".into())
}

pub(super) fn eval(scripts: &mut Scripts, run: ScriptRun, args: CommandArgs<'_>) -> ScriptReply {
    let (keys, rest) = split(args)?;
    let digest = scripts.load(args[1])?;
    scripts.run(digest.as_bytes(), run, keys, rest)
}

pub(super) fn evalsha(scripts: &mut Scripts, run: ScriptRun, args: CommandArgs<'_>) -> ScriptReply {
    // The length of a digest is checked before anything else.
    if args[1].len() != 40 {
        return Err(NO_SCRIPT.into());
    }
    let (keys, rest) = split(args)?;
    scripts.run(args[1], run, keys, rest)
}

pub(super) fn load(scripts: &mut Scripts, _: ScriptRun, args: CommandArgs<'_>) -> ScriptReply {
    scripts
        .load(args[2])
        .map(|digest| RespReply::Bytes(digest.into_bytes()))
}

pub(super) fn exists(scripts: &mut Scripts, _: ScriptRun, args: CommandArgs<'_>) -> ScriptReply {
    let known = |digest: &&[u8]| RespReply::from(scripts.is_cached(digest));
    Ok(RespReply::Array(args[2..].iter().map(known).collect()))
}

pub(super) fn flush(scripts: &mut Scripts, _: ScriptRun, args: CommandArgs<'_>) -> ScriptReply {
    match &args[2..] {
        [] => {}
        [how] if is(how, "SYNC") || is(how, "ASYNC") => {}
        _ => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
    }
    scripts.flush();
    Ok(RespReply::Ok)
}
