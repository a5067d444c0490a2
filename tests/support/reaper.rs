//! A helper process that kills our children when this process has ended, in whatever way.
//!
//! Statics are never dropped, and a test binary may itself be killed. So each test process has one
//! `sh` that reads from a pipe which children are alive. The pipe ends with the test process; then
//! the `sh` kills the listed children and removes their directories.

use std::os::unix::process::CommandExt;
use std::{
    io::Write,
    process::{self, Child, Command, Stdio},
    sync::{Mutex, OnceLock},
};

use tempfile::TempDir;

use crate::lock;

/// The signals are ignored so that Ctrl-C in a terminal does not end the reaper before its work.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
pids=''
while read -r verb what; do
    case $verb in
        add) pids="$pids $what" ;;
        del)
            rest=''
            for pid in $pids; do [ "$pid" = "$what" ] || rest="$rest $pid"; done
            pids=$rest
            ;;
        dir) set -- "$@" "$what" ;;
    esac
done
for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
[ $# -eq 0 ] || rm -rf -- "$@"
"#;

/// Has `pid` killed when this process ends, unless [`forget`] was called.
pub(crate) fn adopt(pid: u32) {
    tell(&format!("add {pid}\n"));
}

/// Takes `pid` off the list after the child was waited for, since the number may be used again.
pub(crate) fn forget(pid: u32) {
    tell(&format!("del {pid}\n"));
}

/// A temporary directory, which is removed when this process ends, in whatever way.
///
/// Its name has the process id: with the same seed of `fastrand`, another process would give the same name to one
/// of its own, after this one was removed here and before the end of this process.
pub(crate) fn directory(what: &str) -> TempDir {
    let prefix = format!("redlock-rt-{what}-{}-", process::id());
    let directory = TempDir::with_prefix(prefix).expect("a temporary directory");
    tell(&format!("dir {}\n", directory.path().display()));
    directory
}

fn tell(line: &str) {
    static REAPER: OnceLock<Mutex<Child>> = OnceLock::new();
    let reaper = REAPER.get_or_init(|| Mutex::new(start()));
    let mut reaper = lock(reaper);
    let pipe = reaper.stdin.as_mut().expect("stdin is piped");
    // One write per line: writes below PIPE_BUF are atomic.
    pipe.write_all(line.as_bytes())
        .expect("the reaper process is gone");
}

fn start() -> Child {
    Command::new("sh")
        .args(["-c", SCRIPT, "reaper"])
        .stdin(Stdio::piped())
        // Inherited streams would keep a pipe of the test runner open.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("sh starts")
}
