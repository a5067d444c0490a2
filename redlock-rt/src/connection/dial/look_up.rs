//! The addresses of one host name: all are tried within the time that connecting may take.
//!
//! An address that drops packets does not answer. If addresses were tried one after the other, it would
//! use up all the time although the next address answers. So the next try begins soon after, in
//! parallel (RFC 8305, "Happy Eyeballs"), and the first connection wins.
//!
//! Each look-up of a host name has its own thread, not one of the runtime's threads for blocking work.
//! If all of these wait for locks, a look-up there would never run.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::clock;

/// The longest delay before the next address is tried, as RFC 8305 recommends.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The addresses of a host, in the order of tries. `within`: how long connecting may take.
pub(super) async fn of_host(
    host: &str,
    port: u16,
    within: Duration,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    let look = move || (&*host, port).to_socket_addrs().map(Vec::from_iter);
    look_up(within, look).await.map(in_turn)
}

/// Runs on a separate thread: all threads of the runtime for blocking work may be waiting for locks.
async fn look_up<T: Send + 'static>(
    within: Duration,
    look: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("redlock-rt-names".into());
    thread.spawn(move || drop(tell.send(look())))?;
    // Before the time limit for connecting, whose error says less.
    let found = clock::timeout(within / 8 * 7, told).await;
    found.ok().and_then(Result::ok).unwrap_or_else(|| {
        let why = "the resolver of host names did not answer";
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

/// The order of tries: that of the resolver, alternating between the two families. Often one of them
/// cannot reach a host at all.
fn in_turn(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut addresses = addresses.into_iter().peekable();
    let v6_first = addresses.peek().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (Vec<_>, Vec<_>) =
        addresses.partition(|address| address.is_ipv6() == v6_first);
    first.reverse();
    second.reverse();
    let mut turns = Vec::with_capacity(first.len() + second.len());
    while !(first.is_empty() && second.is_empty()) {
        turns.extend(first.pop());
        turns.extend(second.pop());
    }
    turns
}

/// Connects to the address that answers first. The next try begins when an earlier one has failed,
/// or after a pause, so that all have begun in the first half of `within`.
///
/// # Errors
///
/// The errors of all addresses, after all have failed.
pub(super) async fn connect_to_any<S, F: Future<Output = io::Result<S>>>(
    addresses: Vec<SocketAddr>,
    within: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<S> {
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let pause = (within / 2 / count).min(LONGEST_PAUSE);
    let mut addresses = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failures = Vec::new();
    loop {
        if let Some(address) = addresses.next() {
            let attempt = connect(address);
            attempts.push(async move { (address, attempt.await) });
        } else if attempts.is_empty() {
            return Err(all_failed(failures));
        }
        let more = addresses.len() > 0;
        tokio::select! {
            Some((address, outcome)) = attempts.next() => match outcome {
                Ok(stream) => return Ok(stream),
                Err(error) => failures.push((address, error)),
            },
            () = tokio::time::sleep(pause), if more => {}
        }
    }
}

fn all_failed(mut failures: Vec<(SocketAddr, io::Error)>) -> io::Error {
    match failures.len() {
        0 => io::Error::new(io::ErrorKind::NotFound, "the host name has no address"),
        1 => failures.remove(0).1,
        _ => {
            let kind = failures[0].1.kind();
            let each = failures.iter().map(|(to, error)| format!("{to}: {error}"));
            io::Error::new(kind, each.collect::<Vec<_>>().join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const S: Duration = Duration::from_secs(1);

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_families_take_turns_and_the_resolver_says_which_is_first() {
        let found = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        let turns = addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
        assert_eq!(in_turn(found), turns);
        let found = addresses(&["1.1.1.1:1", "2.2.2.2:1", "[::1]:1"]);
        let turns = addresses(&["1.1.1.1:1", "[::1]:1", "2.2.2.2:1"]);
        assert_eq!(in_turn(found), turns);
        assert_eq!(in_turn([]), []);
    }

    #[tokio::test]
    async fn a_resolver_that_does_not_answer_is_called_by_name() {
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        let hangs = move || Ok(answered.recv().is_ok());
        let error = look_up(S / 10, hangs).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("resolver"), "{error}");
        drop(answer);
        let found = of_host("localhost", 1, S).await.unwrap();
        assert!(
            found.iter().all(|found| found.ip().is_loopback()),
            "{found:?}"
        );
        assert_eq!(of_host("::1", 1, S).await.unwrap(), addresses(&["[::1]:1"]));
    }

    #[tokio::test]
    async fn a_slow_resolver_has_most_of_the_time() {
        let within = 20 * S;
        let look = move || {
            std::thread::sleep(within / 40);
            Ok(())
        };
        look_up(within, look).await.unwrap();
    }

    /// It was tried until connecting had taken too long.
    #[tokio::test(start_paused = true)]
    async fn a_first_address_that_is_black_holed_hid_the_one_that_answers() {
        let started = tokio::time::Instant::now();
        let connect = async |address: SocketAddr| match address.is_ipv6() {
            true => std::future::pending().await,
            false => Ok(address),
        };
        let both = addresses(&["[::1]:6379", "127.0.0.1:6379"]);
        let connected = connect_to_any(both, 3 * S, connect).await;
        assert_eq!(connected.unwrap().port(), 6379);
        assert_eq!(started.elapsed(), LONGEST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_of_many_addresses_has_half_of_the_time() {
        let many: Vec<SocketAddr> = (1..=100)
            .map(|last| SocketAddr::from(([10, 0, 0, last], 6379)))
            .collect();
        let last = *many.last().unwrap();
        let connect = async |address| match address == last {
            true => Ok(()),
            false => std::future::pending().await,
        };
        let started = tokio::time::Instant::now();
        connect_to_any(many, S, connect).await.unwrap();
        assert!(started.elapsed() <= S / 2, "{:?}", started.elapsed());
    }

    /// A failing address costs no pause, and no try begins once another address has answered.
    #[tokio::test(start_paused = true)]
    async fn addresses_that_refuse_cost_no_time() {
        let begun = RefCell::new(Vec::new());
        let connect = async |address: SocketAddr| {
            begun.borrow_mut().push(address.port());
            match address.port() {
                3 => Ok(()),
                _ => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
            }
        };
        let started = tokio::time::Instant::now();
        let four = addresses(&["[::1]:1", "1.1.1.1:2", "[::1]:3", "1.1.1.1:4"]);
        connect_to_any(four, S, connect).await.unwrap();
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert_eq!(*begun.borrow(), [1, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_says_what_became_of_each_address() {
        let refuse = async |_| Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionRefused));
        let one = connect_to_any(addresses(&["[::1]:1"]), S, refuse)
            .await
            .unwrap_err();
        assert_eq!(one.to_string(), "connection refused");
        let both = addresses(&["[::1]:1", "1.1.1.1:1"]);
        let both = connect_to_any(both, S, refuse).await.unwrap_err();
        assert_eq!(both.kind(), io::ErrorKind::ConnectionRefused);
        let text = "[::1]:1: connection refused; 1.1.1.1:1: connection refused";
        assert_eq!(both.to_string(), text);
        let none = connect_to_any(vec![], S, refuse).await.unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
