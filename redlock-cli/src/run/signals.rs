//! The signals that this process catches.

use std::io;

use futures::future::select_all;
use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What the group of the command gets as well.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

pub(super) struct Signals {
    passed_on: Vec<(Signal, Stream)>,
    /// A child has ended, or has stopped.
    of_children: Stream,
    /// A shell lets this process continue, in the foreground or behind.
    to_continue: Stream,
}

/// What a signal asks for.
#[derive(Debug)]
pub(super) enum Heard {
    Pass(Signal),
    Child,
    Continue,
}

impl Signals {
    pub(super) fn catch() -> io::Result<Self> {
        let stream = |kind: Signal| signal(SignalKind::from_raw(kind as i32));
        let passed_on = PASSED_ON.map(|kind| stream(kind).map(|stream| (kind, stream)));
        Ok(Self {
            passed_on: passed_on.into_iter().collect::<Result<_, _>>()?,
            of_children: stream(Signal::SIGCHLD)?,
            to_continue: stream(Signal::SIGCONT)?,
        })
    }

    /// The next signal that the command is to get.
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
    let next = streams.iter_mut().map(|(kind, stream)| {
        Box::pin(async move {
            stream.recv().await;
            *kind
        })
    });
    select_all(next).await.0
}
