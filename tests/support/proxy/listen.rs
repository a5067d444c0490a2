//! The proxy's thread: accepts or refuses connections until it is stopped.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::{Arc, mpsc as std_mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_rustls::TlsAcceptor;

use super::{DEADLINE, link::serve, state::State};

/// The commands to the thread, which acknowledges each when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Refuse,
    Accept,
    Stop,
}

/// The proxy has a separate runtime and thread, so that neither a blocked or dropped runtime of the
/// test nor a paused clock stops it.
#[derive(Debug)]
pub(super) struct Listening {
    orders: mpsc::UnboundedSender<(Order, std_mpsc::Sender<()>)>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    pub(super) fn start(
        listener: StdListener,
        upstream: (SocketAddr, Option<TlsAcceptor>),
        state: Arc<State>,
    ) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let work = move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime for the proxy");
            // Dropping the runtime then closes all connections.
            runtime
                .block_on(listen(listener, upstream, state, received))
                .expect("the proxy listens on its reserved port");
        };
        let thread = thread::Builder::new().name("proxy".to_owned()).spawn(work);
        Self {
            orders,
            thread: Some(thread.expect("a thread for the proxy")),
        }
    }

    pub(super) fn refuse(&self) {
        self.order(Order::Refuse);
    }

    pub(super) fn accept(&self) {
        self.order(Order::Accept);
    }

    fn order(&self, order: Order) {
        let (done, wait) = std_mpsc::channel();
        self.orders
            .send((order, done))
            .expect("the proxy's thread runs");
        wait.recv().expect("the proxy's thread runs");
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let (done, _) = std_mpsc::channel();
        // Fails if the thread has panicked, which is already reported.
        let _ = self.orders.send((Order::Stop, done));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn listen(
    listener: StdListener,
    upstream: (SocketAddr, Option<TlsAcceptor>),
    state: Arc<State>,
    mut orders: mpsc::UnboundedReceiver<(Order, std_mpsc::Sender<()>)>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let mut listener = Some(TcpListener::from_std(listener)?);
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some((order, done)) = order else { return Ok(()) };
                match order {
                    // Closing the socket also resets connections in its backlog.
                    Order::Refuse => listener = None,
                    Order::Accept if listener.is_none() => {
                        listener = Some(bind_again(address).await?);
                    }
                    Order::Accept => {}
                    Order::Stop => return Ok(()),
                }
                // The caller may have panicked.
                let _ = done.send(());
            }
            client = accept(listener.as_ref()) => {
                let (state, upstream) = (state.clone(), upstream.clone());
                let (id, cut) = state.open_link();
                tokio::spawn(async move { serve(client, upstream, id, cut, &state).await });
            }
        }
    }
}

/// A process that the test is just starting has a copy of the closed socket until it executes its
/// program.
async fn bind_again(address: SocketAddr) -> io::Result<TcpListener> {
    let end = Instant::now() + DEADLINE;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                sleep(Duration::from_millis(1)).await;
            }
            outcome => return outcome,
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        // An error concerns only the connection that would be accepted.
        if let Ok((client, _)) = listener.accept().await {
            return client;
        }
    }
}
