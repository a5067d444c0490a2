//! One connection through the proxy.
//!
//! ```text
//!   client ──► read ──► queue ──► pass_requests ──► server
//!   client ◄── pass_replies ◄── queue ◄── read ◄── server
//! ```
//! Both sides are always read, so a held frame never stops the sender. Held frames wait in their
//! queue, with the end of the stream behind them, like bytes on a stalled link. The end of either
//! side is passed on in its turn; the server's end also ends the connection.

use std::{future::pending, io, net::SocketAddr};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, watch},
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

use super::{
    frame::Frame,
    replies::{Incoming, Replies},
    resp::{take_frame, words},
    state::{Action, Decision, Phase, Progress, State},
};

/// Serves one connection to its end. `tls`: clients speak TLS, the server does not.
pub(super) async fn serve(
    client: TcpStream,
    (server, tls): (SocketAddr, Option<TlsAcceptor>),
    id: u64,
    mut cut: watch::Receiver<bool>,
    state: &State,
) {
    let link = Link {
        id,
        state,
        replies: Replies::default(),
    };
    tokio::select! {
        _ = cut.wait_for(|&cut| cut) => {}
        // The sockets are closed now, after every kind of end.
        _ = link.run(client, server, tls) => {}
    }
    state.close_link(id);
}

struct Link<'a> {
    id: u64,
    state: &'a State,
    replies: Replies,
}

/// A request on its way.
struct Request {
    number: u64,
    frame: Frame,
    bytes: Bytes,
}

/// The action for a frame when all holds and delays are over.
enum Verdict {
    Pass,
    Swallow,
    Answer(Bytes),
    Cut,
}

impl Link<'_> {
    async fn run(
        &self,
        client: TcpStream,
        server: SocketAddr,
        tls: Option<TlsAcceptor>,
    ) -> io::Result<()> {
        // If the server is down, the client sees a connection that is closed at once.
        let server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        match tls {
            None => self.join(client.into_split(), server).await,
            Some(tls) => {
                let client = tls.accept(client).await?;
                self.join(tokio::io::split(client), server).await;
            }
        }
        Ok(())
    }

    async fn join(
        &self,
        (client_read, client_write): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
        server: TcpStream,
    ) {
        let (server_read, server_write) = server.into_split();
        let (requests, requests_queue) = mpsc::unbounded_channel();
        let (replies, replies_queue) = mpsc::unbounded_channel();

        let read_requests = async move {
            read(client_read, |bytes| {
                let frame = Frame {
                    connection: self.id,
                    args: words(&bytes),
                };
                let number = self.state.arrived(&frame);
                // The queue's end is dropped only together with this future.
                let _ = requests.send(Request {
                    number,
                    frame,
                    bytes,
                });
            })
            .await;
            drop(requests);
            pending().await
        };
        let read_replies = async move {
            read(server_read, |bytes| drop(replies.send(bytes))).await;
            drop(replies);
            pending().await
        };
        tokio::select! {
            () = read_requests => {}
            () = read_replies => {}
            () = self.pass_requests(requests_queue, server_write) => {}
            () = self.pass_replies(replies_queue, client_write) => {}
        }
    }

    /// Returns when the connection is to be cut.
    async fn pass_requests(
        &self,
        mut queue: mpsc::UnboundedReceiver<Request>,
        mut server: impl AsyncWrite + Unpin,
    ) {
        // A stream loses no part of its middle: the reply to a later request would be taken for that to
        // a lost one.
        let mut lost = false;
        while let Some(Request {
            number,
            frame,
            bytes,
        }) = queue.recv().await
        {
            if lost {
                continue;
            }
            match self.verdict(Phase::Request, &frame).await {
                Verdict::Pass => {
                    self.replies.expect(number, frame);
                    if server.write_all(&bytes).await.is_err() {
                        break;
                    }
                    self.state.progress(number, Progress::Forwarded);
                }
                Verdict::Swallow => lost = true,
                Verdict::Answer(answer) => self.replies.expect_canned(number, frame, answer),
                Verdict::Cut => return,
            }
        }
        // The server closes in turn, which ends the connection.
        let _ = server.shutdown().await;
        pending().await
    }

    /// Returns when the server has closed the connection or it is to be cut.
    async fn pass_replies(
        &self,
        mut queue: mpsc::UnboundedReceiver<Bytes>,
        client: impl AsyncWrite + Unpin,
    ) {
        let mut client = Some(client);
        // As for requests. Messages are no replies, and still pass.
        let mut lost = false;
        loop {
            while let Some((number, answer)) = self.replies.take_canned() {
                write(&mut client, &answer).await;
                self.state.progress(number, Progress::Answered);
            }
            let bytes = tokio::select! {
                bytes = queue.recv() => match bytes {
                    Some(bytes) => bytes,
                    None => return,
                },
                () = self.replies.canned_due() => continue,
            };
            match self.replies.classify(self.id, &bytes) {
                Incoming::Message(message) => match self.verdict(Phase::Message, &message).await {
                    Verdict::Pass => write(&mut client, &bytes).await,
                    Verdict::Answer(other) => write(&mut client, &other).await,
                    Verdict::Swallow => {}
                    Verdict::Cut => return,
                },
                Incoming::Reply {
                    number,
                    request,
                    last,
                } => {
                    let passed = match self.verdict(Phase::Reply, &request).await {
                        Verdict::Pass => Some(&bytes),
                        Verdict::Answer(ref other) => Some(&other.clone()),
                        Verdict::Swallow => None,
                        Verdict::Cut => return,
                    };
                    lost |= passed.is_none();
                    let passed = passed.filter(|_| !lost);
                    if let Some(passed) = passed {
                        write(&mut client, passed).await;
                    }
                    if last {
                        self.replies.answered();
                        // The call of a script that the server does not know yet is made again.
                        if passed.is_some_and(|answer| !answer.starts_with(b"-NOSCRIPT")) {
                            self.state.progress(number, Progress::Answered);
                        }
                    }
                }
            }
        }
    }

    async fn verdict(&self, phase: Phase, frame: &Frame) -> Verdict {
        let mut applied = Vec::new();
        loop {
            match self.state.decide(phase, frame, &applied) {
                Decision::Pass => return Verdict::Pass,
                Decision::Wait(mut changed) => drop(changed.changed().await),
                Decision::Apply(rule, action) => {
                    applied.push(rule);
                    match action {
                        Action::Hold(gate) => gate.pass().await,
                        Action::Delay(duration) => sleep(duration).await,
                        Action::Swallow => return Verdict::Swallow,
                        Action::Answer(answer) => return Verdict::Answer(answer),
                        Action::Cut => return Verdict::Cut,
                    }
                }
            }
        }
    }
}

/// Reads frames to the end of the stream.
async fn read(mut stream: impl AsyncRead + Unpin, mut frame: impl FnMut(Bytes)) {
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    loop {
        match take_frame(&mut buffer) {
            Ok(Some(bytes)) => frame(bytes),
            Ok(None) => match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            },
            // The frames after this cannot be separated.
            Err(_) => return,
        }
    }
}

/// Writes to a client. If the client has gone, its requests are still passed on.
async fn write(client: &mut Option<impl AsyncWrite + Unpin>, bytes: &[u8]) {
    if let Some(stream) = client {
        let written = async {
            stream.write_all(bytes).await?;
            // TLS may keep back what it has encrypted.
            stream.flush().await
        };
        if written.await.is_err() {
            *client = None;
        }
    }
}
