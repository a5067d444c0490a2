//! A sentinel that says what a test tells it to say.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use redis::Value;
use tests::{RedisServer, SERVICE};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::broadcast;

/// Names one address. Its task ends with the runtime.
pub(crate) struct Fake {
    address: SocketAddr,
    told: Arc<Mutex<Told>>,
    switches: broadcast::Sender<String>,
}

#[derive(Clone, Copy)]
struct Told {
    master: SocketAddr,
    epoch: u64,
    /// How often it was asked for the master.
    asked: usize,
    /// How often it was subscribed to again.
    listeners: usize,
}

impl Fake {
    /// A sentinel that names `master`, with a configuration epoch of 0.
    pub(crate) async fn naming(master: &RedisServer) -> Self {
        Self::naming_address(master.address()).await
    }

    pub(crate) async fn naming_address(master: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            address: listener.local_addr().unwrap(),
            told: Arc::new(Mutex::new(Told {
                master,
                epoch: 0,
                asked: 0,
                listeners: 0,
            })),
            switches: broadcast::Sender::new(8),
        };
        let (told, switches) = (Arc::clone(&fake.told), fake.switches.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (reader, writer) = stream.into_split();
                tokio::spawn(serve(
                    reader,
                    writer,
                    Arc::clone(&told),
                    switches.subscribe(),
                ));
            }
        });
        fake
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+sentinel://{}/{SERVICE}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Names another master from now on, in a later epoch.
    pub(crate) fn name(&self, master: SocketAddr) {
        let mut told = self.told.lock().unwrap();
        (told.master, told.epoch) = (master, told.epoch + 1);
    }

    /// As [`name`](Self::name), and announces it.
    pub(crate) fn announce(&self, master: SocketAddr) {
        let before = self.told.lock().unwrap().master;
        self.name(master);
        let words = [before, master].map(|at| format!("{} {}", at.ip(), at.port()));
        // Nobody may be listening.
        let _ = self.switches.send(format!("{SERVICE} {}", words.join(" ")));
    }

    /// Waits until somebody listens for announcements, and has subscribed again.
    pub(crate) async fn is_heard(&self) {
        let heard = async || self.listened_to() > 0;
        tests::eventually(std::time::Duration::from_secs(15), heard).await;
    }

    /// How often it was subscribed to again.
    pub(crate) fn listened_to(&self) -> usize {
        self.told.lock().unwrap().listeners
    }

    /// How often it was asked for the master.
    pub(crate) fn asked(&self) -> usize {
        self.told.lock().unwrap().asked
    }
}

async fn serve(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    told: Arc<Mutex<Told>>,
    mut switches: broadcast::Receiver<String>,
) {
    let mut decoder = Default::default();
    let mut listens = false;
    loop {
        // A client sends no command while it listens but the same one again, of which nothing is lost:
        // the decoder keeps what was read.
        let request = tokio::select! {
            request = redis::parse_redis_value_async(&mut decoder, &mut reader) => request,
            switch = switches.recv() => {
                if let (true, Ok(switch)) = (listens, switch) {
                    let push = format!(
                        "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{switch}\r\n",
                        switch.len()
                    );
                    writer.write_all(push.as_bytes()).await.unwrap();
                }
                continue;
            }
        };
        let Ok(Value::Array(words)) = request else {
            return;
        };
        let words: Vec<String> = words
            .iter()
            .map(|word| redis::from_redis_value_ref(word).unwrap())
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Told { master, epoch, .. } = *told.lock().unwrap();
        let reply = match words[..] {
            ["SUBSCRIBE", channel] => {
                told.lock().unwrap().listeners += usize::from(listens);
                listens = true;
                format!(
                    "*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n",
                    channel.len()
                )
            }
            ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE] => {
                let mut told = told.lock().unwrap();
                told.asked += 1;
                let (host, port) = (master.ip().to_string(), master.port().to_string());
                let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
                format!("*2\r\n{}{}", bulk(&host), bulk(&port))
            }
            ["SENTINEL", "MASTER", SERVICE] => {
                let epoch = epoch.to_string();
                format!(
                    "*2\r\n$12\r\nconfig-epoch\r\n${}\r\n{epoch}\r\n",
                    epoch.len()
                )
            }
            ["SENTINEL", ..] => "*-1\r\n".to_owned(),
            _ => "-ERR unknown command\r\n".to_owned(),
        };
        if writer.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}
