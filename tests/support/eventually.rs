//! Waiting for events under a deadline; no order depends on a blind sleep.

use std::{
    fmt::Display,
    future::{Future, ready},
    panic::Location,
    time::Duration,
};

use redlock_rt::{Client, GuardState};
use tokio::time::{Instant, sleep, timeout};

/// The limit for events that must happen. Below the default lease of 30 s, with whose end a missed event
/// would come.
pub const DEADLINE: Duration = Duration::from_secs(20);

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The output of a probe of [`eventually`].
pub trait Verdict {
    /// The output of [`eventually`].
    type Value;

    /// The value, or what is still wrong.
    ///
    /// # Errors
    /// The text for the failure message.
    fn verdict(self) -> Result<Self::Value, String>;
}

impl Verdict for bool {
    type Value = ();

    fn verdict(self) -> Result<(), String> {
        if self {
            Ok(())
        } else {
            Err("still false".to_owned())
        }
    }
}

impl<T> Verdict for Option<T> {
    type Value = T;

    fn verdict(self) -> Result<T, String> {
        self.ok_or_else(|| "still None".to_owned())
    }
}

impl<T, E: Display> Verdict for Result<T, E> {
    type Value = T;

    fn verdict(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Repeats `probe` until it returns `true`, `Some(value)` or `Ok(value)`.
///
/// Panics after the deadline, with the caller's line and the last output of the probe.
#[track_caller]
pub fn eventually<V, F>(
    deadline: Duration,
    mut probe: impl FnMut() -> F,
) -> impl Future<Output = V::Value>
where
    F: Future<Output = V>,
    V: Verdict,
{
    let caller = Location::caller();
    async move {
        let end = Instant::now() + deadline;
        let mut pause = FIRST_PAUSE;
        loop {
            match probe().await.verdict() {
                Ok(value) => return value,
                Err(wrong) if Instant::now() >= end => {
                    panic!("{caller}: not within {deadline:?}: {wrong}")
                }
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Waits until this many tasks of the client wait.
#[track_caller]
pub fn waits(client: &Client, count: usize) -> impl Future<Output = ()> {
    eventually(DEADLINE, move || {
        let waiting = client.stats().waiting;
        let verdict = (waiting == count).then_some(());
        ready(verdict.ok_or_else(|| format!("{waiting} wait")))
    })
}

/// Until when a guard is valid, which it is.
#[track_caller]
pub fn valid_until(state: &GuardState) -> std::time::Instant {
    match state {
        GuardState::Held { until } | GuardState::Suspect { until } => *until,
        state => panic!("{state:?}"),
    }
}

/// Asserts that a guard is held beyond doubt, and returns until when.
#[track_caller]
pub fn assert_held(state: &GuardState) -> std::time::Instant {
    match state {
        GuardState::Held { until } => *until,
        state => panic!("{state:?}"),
    }
}

/// Waits until renewals have moved the end of a guard's lease by so much.
#[track_caller]
pub fn is_renewed(by: Duration, state: impl Fn() -> GuardState) -> impl Future<Output = ()> {
    let late = valid_until(&state()) + by;
    eventually(DEADLINE, move || ready(valid_until(&state()) > late))
}

/// The output of `future`; panics, with the caller's line, if it takes longer than `deadline`.
#[track_caller]
pub fn within<F: Future>(deadline: Duration, future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        match timeout(deadline, future).await {
            Ok(output) => output,
            Err(_) => panic!("{caller}: not finished within {deadline:?}"),
        }
    }
}
