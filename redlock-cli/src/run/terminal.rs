//! The terminal, which belongs to the command while it runs in the foreground.

use std::io::stdin;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// Whether this process group, or the other one, is in the foreground.
pub(super) fn is_in_front(other: Pid) -> bool {
    tcgetpgrp(stdin()).is_ok_and(|front| front == getpgrp() || front == other)
}

/// Gives the terminal to the other group, if standard input is one and this group has it.
pub(super) fn lend(other: Pid) {
    if tcgetpgrp(stdin()) == Ok(getpgrp()) {
        hand_to(other);
    }
}

/// Takes it back, if the other group has it.
pub(super) fn take_back(other: Pid) {
    if tcgetpgrp(stdin()) == Ok(other) {
        hand_to(getpgrp());
    }
}

fn hand_to(group: Pid) {
    from_behind(|| {
        // Fails if the terminal or the group is gone.
        let _ = tcsetpgrp(stdin(), group);
    });
}

/// Uses the terminal. SIGTTOU, which would stop a process in the background, is blocked meanwhile.
pub(super) fn from_behind(uses: impl FnOnce()) {
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTTOU);
    if stops.thread_block().is_ok() {
        uses();
        let _ = stops.thread_unblock();
    }
}
