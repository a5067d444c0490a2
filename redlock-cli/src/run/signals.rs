//! The signals that this process catches.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Signals that are passed on to the command's group.
const PASSED_ON: [Signal; 3] = [Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];
/// Also these, if they were not ignored when this process began: nohup ignores SIGHUP, and a shell without job
/// control the others, for background commands.
const PASSED_ON_IF_HEARD: [Signal; 3] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT];

pub(super) struct Signals {
    passed_on: Vec<(Signal, Stream)>,
    /// A child has ended, or has stopped.
    of_children: Stream,
    /// A shell continues this process, in the foreground or in the background.
    to_continue: Stream,
}

/// The request of a signal.
#[derive(Debug)]
pub(super) enum Heard {
    Pass(Signal),
    Child,
    Continue,
}

impl Signals {
    pub(super) fn catch() -> io::Result<Self> {
        let stream = |kind: Signal| signal(SignalKind::from_raw(kind as i32));
        let ignored = ignored();
        let heard = PASSED_ON_IF_HEARD.into_iter();
        let heard = heard.filter(|kind| ignored >> (*kind as u32 - 1) & 1 == 0);
        let passed_on = PASSED_ON.into_iter().chain(heard);
        let passed_on = passed_on.map(|kind| stream(kind).map(|stream| (kind, stream)));
        Ok(Self {
            passed_on: passed_on.collect::<Result<_, _>>()?,
            of_children: stream(Signal::SIGCHLD)?,
            to_continue: stream(Signal::SIGCONT)?,
        })
    }

    /// The next signal to be passed on to the command.
    pub(super) async fn passed_on(&mut self) -> Signal {
        first_of(&mut self.passed_on).await
    }

    pub(super) async fn next(&mut self) -> Heard {
        tokio::select! {
            biased;
            _ = self.of_children.recv() => Heard::Child,
            _ = self.to_continue.recv() => Heard::Continue,
            signal = first_of(&mut self.passed_on) => Heard::Pass(signal),
        }
    }
}

async fn first_of(streams: &mut [(Signal, Stream)]) -> Signal {
    poll_fn(|context| {
        let came = streams.iter_mut().find_map(|(kind, stream)| {
            let came = stream.poll_recv(context).is_ready();
            came.then_some(*kind)
        });
        came.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// The signals that were ignored when this process began, a bit for each; none if the system has no such file.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
