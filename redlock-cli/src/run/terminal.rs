//! The terminal, which belongs to the command while it runs in the foreground.

use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// Standard input, if that is a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terminal(());

impl Terminal {
    pub(super) fn of_stdin() -> Option<Self> {
        stdin().is_terminal().then_some(Self(()))
    }

    /// Whether this process group, or the other one, is in the foreground.
    pub(super) fn is_in_front(self, other: Pid) -> bool {
        tcgetpgrp(stdin()).is_ok_and(|front| front == getpgrp() || front == other)
    }

    /// Gives the terminal to the other group, if this one has it.
    pub(super) fn lend(self, other: Pid) {
        if tcgetpgrp(stdin()) == Ok(getpgrp()) {
            hand_to(other);
        }
    }

    /// Takes it back, if the other group has it.
    pub(super) fn take_back(self, other: Pid) {
        if tcgetpgrp(stdin()) == Ok(other) {
            hand_to(getpgrp());
        }
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
