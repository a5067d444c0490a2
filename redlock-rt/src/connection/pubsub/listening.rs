//! The commands and messages of a connection that listens to plain channels, and in a cluster also to
//! sharded ones.
//!
//! The client library queues messages without a limit, and does not support sharded channels on such
//! a connection. Also, a server sends unrequested messages: it ends a subscription when the slot of
//! the channel moves away, with the same words as a confirmation of SUNSUBSCRIBE.
//!
//! There is no task: the reader of the messages also drives the commands. A reader that is behind
//! leaves the rest in the stream.
//!
//! # Invariants
//!
//! 1. Replies come in the order of the commands. After each command that ends a subscription a PING
//!    is sent, and only its reply counts. The other reply may be an error (the slot has moved away),
//!    or come twice. Of two errors, the second is the reply to the PING.
//! 2. A reply without an open command ends the connection.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use crate::connection::fault::Fault;
use crate::connection::stream::{Framed, Nonsense, encode, nonsense};
use crate::shim::lock_std;
use crate::wire::Value;

/// The commands.
#[derive(Debug, Clone)]
pub(super) struct Asking(Arc<Mutex<AskedCommands>>);

#[derive(Debug, Default)]
struct AskedCommands {
    /// The bytes to write.
    out: Vec<u8>,
    /// The commands without a reply.
    open: VecDeque<AskedCommand>,
    /// The waker of the reader.
    reader: Option<Waker>,
    /// There will be no more replies.
    ended: bool,
}

#[derive(Debug)]
struct AskedCommand {
    what: What,
    done: oneshot::Sender<Result<(), Fault>>,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    Begin,
    /// `refused`: the first of its two commands was refused.
    End {
        channel: Vec<u8>,
        refused: bool,
    },
    Ping,
}

/// The messages.
pub(super) struct Listening<S> {
    framed: Framed<S>,
    asked: Asking,
}

/// What a listening connection receives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Message(Message),
    /// The server has ended the subscription to this channel, because its slot has moved away.
    Left(String),
}

/// A published message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) channel: String,
    /// The text, or the only text in a list. Empty otherwise.
    pub(crate) payload: String,
}

/// A stream that listens, for commands and for messages.
pub(super) fn listen<S>(framed: Framed<S>) -> (Asking, Listening<S>) {
    let asking = Asking(Arc::default());
    let listening = Listening {
        framed,
        asked: asking.clone(),
    };
    (asking, listening)
}

impl Asking {
    /// `sharded`: messages stay in the shard of the channel's slot; others reach the subscribers at all servers
    /// of a cluster.
    pub(super) async fn subscribe(&self, channel: &str, sharded: bool) -> Result<(), Fault> {
        let command = match sharded {
            false => &b"SUBSCRIBE"[..],
            true => b"SSUBSCRIBE",
        };
        self.ask(What::Begin, &[&[command, channel.as_bytes()]])
            .await
    }

    pub(super) async fn unsubscribe(&self, channel: &str, sharded: bool) -> Result<(), Fault> {
        let command = match sharded {
            false => &b"UNSUBSCRIBE"[..],
            true => b"SUNSUBSCRIBE",
        };
        let channel = channel.as_bytes();
        let what = What::End {
            channel: channel.to_vec(),
            refused: false,
        };
        self.ask(what, &[&[command, channel], &[b"PING"]]).await
    }

    pub(super) async fn ping(&self) -> Result<(), Fault> {
        self.ask(What::Ping, &[&[b"PING"]]).await
    }

    /// Sends when this is first polled and the messages are read.
    async fn ask(&self, what: What, commands: &[&[&[u8]]]) -> Result<(), Fault> {
        let (done, outcome) = oneshot::channel();
        let reader = {
            let mut asked = lock_std(&self.0);
            if asked.ended {
                return Err(ended());
            }
            for words in commands {
                encode::command(&mut asked.out, words);
            }
            asked.open.push_back(AskedCommand { what, done });
            asked.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        outcome.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Listening<S> {
    fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Heard>> {
        loop {
            // Replies are read even if the server takes no commands.
            let take = |waker: &Waker, writing: &mut Vec<u8>| {
                let mut asked = lock_std(&self.asked.0);
                std::mem::swap(writing, &mut asked.out);
                asked.reader = Some(waker.clone());
            };
            if let Poll::Ready(written) = self.framed.poll_write(cx, take) {
                written?;
            }
            match self.framed.next().map_err(nonsense)? {
                None => ready!(self.framed.poll_read(cx))?,
                Some(value) => {
                    if let Some(heard) = lock_std(&self.asked.0).take_in(value)? {
                        return Poll::Ready(Ok(heard));
                    }
                }
            }
        }
    }
}

impl AskedCommands {
    /// A frame has arrived. Returns what the listener must know.
    fn take_in(&mut self, value: Value) -> io::Result<Option<Heard>> {
        let items = match value {
            Value::List(items) => items,
            Value::Error(error) => {
                match self.open.front_mut().map(|open| &mut open.what) {
                    // The PING after it tells when it is over.
                    Some(What::End { refused, .. }) if !*refused => *refused = true,
                    Some(_) => self.done(Err(Fault::from_server(error))),
                    None => return Err(unasked()),
                }
                return Ok(None);
            }
            _ => return self.pong(),
        };
        let mut words = items.into_iter();
        let Some(Value::Text(word)) = words.next() else {
            return Err(unasked());
        };
        match &word[..] {
            b"message" | b"smessage" => {
                let (Some(channel), Some(payload)) = (words.next(), words.next()) else {
                    return Err(unasked());
                };
                let message = Message {
                    channel: text(channel).ok_or_else(unasked)?,
                    payload: text(alone(payload)).unwrap_or_default(),
                };
                Ok(Some(Heard::Message(message)))
            }
            b"subscribe" | b"ssubscribe" => self.confirmed(|what| *what == What::Begin),
            b"unsubscribe" | b"sunsubscribe" => {
                let Some(Value::Text(left)) = words.next() else {
                    return Err(unasked());
                };
                let asked = matches!(
                    self.open.front().map(|open| &open.what),
                    Some(What::End { channel, .. }) if *channel == left
                );
                Ok((!asked)
                    .then(|| String::from_utf8(left).ok())
                    .flatten()
                    .map(Heard::Left))
            }
            b"pong" => self.pong(),
            _ => Err(unasked()),
        }
    }

    fn pong(&mut self) -> io::Result<Option<Heard>> {
        self.confirmed(|what| *what != What::Begin)
    }

    /// The reply to the next command, if that is such a one.
    fn confirmed(&mut self, is_such: impl Fn(&What) -> bool) -> io::Result<Option<Heard>> {
        match self.open.front() {
            Some(open) if is_such(&open.what) => {
                self.done(Ok(()));
                Ok(None)
            }
            _ => Err(unasked()),
        }
    }

    fn done(&mut self, outcome: Result<(), Fault>) {
        if let Some(open) = self.open.pop_front() {
            // Its caller may have gone.
            let _ = open.done.send(outcome);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for Listening<S> {
    type Item = Heard;

    /// Ends with the connection.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Heard>> {
        let this = self.get_mut();
        if lock_std(&this.asked.0).ended {
            return Poll::Ready(None);
        }
        let heard = ready!(this.poll_heard(cx));
        if let Err(error) = &heard {
            tracing::debug!(%error, "a connection that listens ended");
            this.end();
        }
        Poll::Ready(heard.ok())
    }
}

impl<S> Listening<S> {
    /// Tells all that wait for a reply that none will come.
    fn end(&mut self) {
        let mut asked = lock_std(&self.asked.0);
        asked.ended = true;
        let open = std::mem::take(&mut asked.open);
        drop(asked);
        drop(open);
    }
}

impl<S> Drop for Listening<S> {
    fn drop(&mut self) {
        self.end();
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::Text(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// The only item of a list.
fn alone(value: Value) -> Value {
    match value {
        Value::List(mut items) if items.len() == 1 => items.remove(0),
        other => other,
    }
}

fn ended() -> Fault {
    Fault::unanswered(io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the connection that listens has ended",
    ))
}

fn unasked() -> io::Error {
    nonsense(Nonsense::Unasked)
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::connection::Cause;

    const SHARDED: bool = true;

    struct Both {
        asking: Asking,
        listening: Listening<DuplexStream>,
        server: DuplexStream,
    }

    fn both() -> Both {
        let (ours, server) = tokio::io::duplex(64 * 1024);
        let (asking, listening) = listen(Framed::new(ours));
        Both {
            asking,
            listening,
            server,
        }
    }

    impl Both {
        /// The messages that are read until no more come.
        fn hear(&mut self, bytes: &str) -> Vec<Heard> {
            let sent = self.server.write_all(bytes.as_bytes()).now_or_never();
            sent.unwrap().unwrap();
            let mut all = Vec::new();
            while let Some(Some(heard)) = self.listening.next().now_or_never() {
                all.push(heard);
            }
            all
        }

        /// The commands that the server has received.
        fn sent(&mut self) -> String {
            let mut bytes = [0; 4096];
            let len = self.server.read(&mut bytes).now_or_never();
            let len = len.map_or(0, |len| len.unwrap());
            String::from_utf8(bytes[..len].to_vec()).unwrap()
        }
    }

    fn words(words: &[&str]) -> String {
        words
            .iter()
            .fold(format!("*{}\r\n", words.len()), |all, word| {
                format!("{all}${}\r\n{word}\r\n", word.len())
            })
    }

    fn confirmed(word: &str, channel: &str) -> String {
        format!(
            "*3\r\n${}\r\n{word}\r\n${}\r\n{channel}\r\n:1\r\n",
            word.len(),
            channel.len()
        )
    }

    #[test]
    fn messages_of_both_sorts_are_heard() {
        let mut both = both();
        let sent = words(&["smessage", "c", "1"]) + &words(&["message", "d", "2"]);
        let (first, rest) = sent.split_at(20);
        assert_eq!(both.hear(first), []);
        let message = |channel: &str, payload: &str| {
            Heard::Message(Message {
                channel: channel.into(),
                payload: payload.into(),
            })
        };
        assert_eq!(both.hear(rest), [message("c", "1"), message("d", "2")]);
    }

    #[test]
    fn one_key_is_a_text_and_all_keys_are_none() {
        let mut both = both();
        let told = |keys: &str| format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n{keys}");
        for (keys, payload) in [
            ("*1\r\n$1\r\nk\r\n", "k"),
            ("*2\r\n$1\r\nk\r\n$1\r\nl\r\n", ""),
            ("*-1\r\n", ""),
        ] {
            let message = Message {
                channel: "c".into(),
                payload: payload.into(),
            };
            assert_eq!(both.hear(&told(keys)), [Heard::Message(message)]);
        }
    }

    /// As by a server that is busy. The next reply was taken for the one to the PING.
    #[test]
    fn both_commands_that_end_a_subscription_may_be_refused() {
        let mut both = both();
        let asking = both.asking.clone();
        let mut end = Box::pin(asking.unsubscribe("c", !SHARDED));
        let mut begin = Box::pin(asking.subscribe("d", !SHARDED));
        assert!((&mut end).now_or_never().is_none() && (&mut begin).now_or_never().is_none());
        assert_eq!(both.hear("-BUSY\r\n"), []);
        assert!((&mut end).now_or_never().is_none());
        assert_eq!(both.hear("-BUSY\r\n"), []);
        end.now_or_never().unwrap().unwrap_err();
        assert_eq!(both.hear(&confirmed("subscribe", "d")), []);
        begin.now_or_never().unwrap().unwrap();
    }

    #[test]
    fn a_subscription_is_confirmed_or_refused_in_order() {
        let mut both = both();
        let asking = both.asking.clone();
        let mut one = Box::pin(asking.subscribe("c", SHARDED));
        let mut two = Box::pin(asking.subscribe("d", !SHARDED));
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        assert_eq!(both.hear(""), []);
        let expected = words(&["SSUBSCRIBE", "c"]) + &words(&["SUBSCRIBE", "d"]);
        assert_eq!(both.sent(), expected);
        assert_eq!(both.hear("-NOPERM no\r\n"), []);
        let refused = (&mut one).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.cause, Cause::Denied);
        assert!((&mut two).now_or_never().is_none());
        assert_eq!(both.hear(&confirmed("subscribe", "d")), []);
        two.now_or_never().unwrap().unwrap();
    }

    /// The server's words are those of a confirmation.
    #[test]
    fn a_subscription_that_the_server_ended_is_told_from_one_that_was_given_up() {
        let mut both = both();
        let left = |channel: &str| vec![Heard::Left(channel.into())];
        assert_eq!(both.hear(&confirmed("sunsubscribe", "c")), left("c"));

        // Both at the same time: the server had ended it before it read the command.
        let asking = both.asking.clone();
        let mut end = Box::pin(asking.unsubscribe("c", SHARDED));
        let mut next = Box::pin(asking.subscribe("e", SHARDED));
        assert!((&mut end).now_or_never().is_none() && (&mut next).now_or_never().is_none());
        assert_eq!(both.hear(&confirmed("sunsubscribe", "d")), left("d"));
        let pushed_and_refused = confirmed("sunsubscribe", "c") + "-MOVED 7 127.0.0.1:1\r\n";
        assert_eq!(both.hear(&pushed_and_refused), []);
        assert!(
            (&mut end).now_or_never().is_none(),
            "its PING is not answered"
        );
        assert_eq!(both.hear("+PONG\r\n"), []);
        end.now_or_never().unwrap().unwrap();
        assert!((&mut next).now_or_never().is_none());
        assert_eq!(both.hear(&confirmed("ssubscribe", "e")), []);
        next.now_or_never().unwrap().unwrap();
    }

    #[test]
    fn a_ping_has_one_of_two_answers() {
        let mut both = both();
        let asking = both.asking.clone();
        for answer in ["+PONG\r\n".to_owned(), words(&["pong", ""])] {
            let mut ping = Box::pin(asking.ping());
            assert!((&mut ping).now_or_never().is_none());
            assert_eq!(both.hear(&answer), []);
            ping.now_or_never().unwrap().unwrap();
        }
    }

    #[test]
    fn what_nobody_asked_for_ends_the_connection() {
        for odd in [
            "+PONG\r\n".to_owned(),
            "-ERR no\r\n".to_owned(),
            ":1\r\n".to_owned(),
            confirmed("ssubscribe", "c"),
            words(&["psubscribe", "c"]),
            words(&["smessage", "c"]),
            "*0\r\n".to_owned(),
            ">1\r\n".to_owned(),
        ] {
            let mut both = both();
            assert_eq!(both.hear(&odd), []);
            assert_eq!(both.listening.next().now_or_never(), Some(None), "{odd}");
            let refused = both.asking.ping().now_or_never().unwrap();
            assert_eq!(refused.unwrap_err().cause, Cause::Passing);
        }
    }

    #[test]
    fn a_connection_that_ends_answers_all_that_is_open() {
        let mut both = both();
        let asking = both.asking.clone();
        let mut open = Box::pin(asking.subscribe("c", SHARDED));
        assert!((&mut open).now_or_never().is_none());
        drop(both.server);
        assert_eq!(both.listening.next().now_or_never(), Some(None));
        assert!(open.now_or_never().unwrap().is_err());
    }

    /// As when the task that reads it is aborted.
    #[test]
    fn a_connection_that_is_dropped_answers_all_that_is_open() {
        let both = both();
        let mut open = Box::pin(both.asking.subscribe("c", SHARDED));
        assert!((&mut open).now_or_never().is_none());
        drop(both.listening);
        assert!(open.now_or_never().unwrap().is_err());
        assert!(both.asking.ping().now_or_never().unwrap().is_err());
    }

    #[test]
    fn commands_wait_until_the_server_takes_them() {
        let (ours, mut server) = tokio::io::duplex(16);
        let (asking, mut listening) = listen(Framed::new(ours));
        let mut asked: Vec<_> = (0..20)
            .map(|number| {
                let asking = asking.clone();
                let mut asked =
                    Box::pin(async move { asking.subscribe(&number.to_string(), SHARDED).await });
                assert!((&mut asked).now_or_never().is_none());
                asked
            })
            .collect();
        let mut sent = Vec::new();
        loop {
            assert!(listening.next().now_or_never().is_none());
            let mut bytes = [0; 7];
            match server.read(&mut bytes).now_or_never() {
                Some(len) => sent.extend_from_slice(&bytes[..len.unwrap()]),
                None => break,
            }
        }
        let expected: String = (0..20)
            .map(|number| words(&["SSUBSCRIBE", &number.to_string()]))
            .collect();
        assert_eq!(String::from_utf8(sent).unwrap(), expected);
        assert!((&mut asked[0]).now_or_never().is_none());
    }
}
