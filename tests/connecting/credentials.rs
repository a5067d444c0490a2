//! Credentials that change while a client lives, and certificates of clients.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_rt::{Client, ClientBuilder, Credentials, ErrorKind, LockOptions};
use tests::{
    DEADLINE, Matcher, Proxy, RedisServer, Which, eventually, lock_and_unlock, told, trace_init,
    unique, within,
};

const SHORT: Duration = Duration::from_millis(300);

/// A source of the password that is in force.
#[derive(Clone, Default)]
struct Vault {
    password: Arc<Mutex<String>>,
    valid_for: Option<Duration>,
    asked: Arc<AtomicUsize>,
}

impl Vault {
    fn of(password: &str) -> Self {
        let vault = Self::default();
        vault.set(password);
        vault
    }

    fn set(&self, password: &str) {
        password.clone_into(&mut self.password.lock().unwrap());
    }

    fn builder(&self, url: &str) -> ClientBuilder {
        trace_init();
        let vault = self.clone();
        Client::builder().url(url).credentials(move || {
            let vault = vault.clone();
            async move {
                vault.asked.fetch_add(1, Ordering::Relaxed);
                let password = vault.password.lock().unwrap().clone();
                let credentials = Credentials::new(password).user("app");
                assert!(!format!("{credentials:?}").contains("hunter"));
                Ok::<_, std::io::Error>(match vault.valid_for {
                    Some(time) => credentials.valid_for(time),
                    None => credentials,
                })
            }
        })
    }
}

async fn set_password(server: &RedisServer, password: &str) {
    let password = format!(">{password}");
    let user = [
        "ACL", "SETUSER", "app", "reset", "on", &password, "~*", "&*", "+@all",
    ];
    server.ask::<()>(&user).await;
}

#[tokio::test]
async fn a_password_that_was_rotated_is_asked_for_with_the_next_connection() {
    let server = RedisServer::start();
    set_password(&server, "hunter1").await;
    let vault = Vault::of("hunter1");
    let client = vault.builder(&server.url()).connect().await.unwrap();
    let name = unique("rotated");
    lock_and_unlock(&client.rlock(&name)).await;
    let asked = vault.asked.load(Ordering::Relaxed);
    vault.set("hunter2");
    set_password(&server, "hunter2").await;
    server.ask::<()>(&["CLIENT", "KILL", "USER", "app"]).await;
    let guard = within(DEADLINE, client.rlock(&name).lock()).await.unwrap();
    assert!(vault.asked.load(Ordering::Relaxed) > asked);
    guard.unlock().await.unwrap();
    vault.set("wrong");
    let error = vault.builder(&server.url()).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn connections_log_in_again_before_their_credentials_expire() {
    let server = RedisServer::start();
    set_password(&server, "hunter1").await;
    let proxy = Proxy::to(&server);
    let mut vault = Vault::of("hunter1");
    vault.valid_for = Some(Duration::from_secs(3));
    let client = vault.builder(&proxy.url()).connect().await.unwrap();
    let name = unique("again");
    let guard = client.rlock(&name).lock().await.unwrap();
    let main = proxy.connections(Which::Scripts)[0];
    let login = Matcher::command("AUTH").on(Which::Connection(main));
    // The last one comes after the first credentials have expired.
    within(DEADLINE, proxy.wait_for_count(login, 3)).await;
    guard.unlock().await.unwrap();
    assert!(proxy.connections(Which::Scripts).contains(&main));
}

/// Its connections were closed and made again without a pause.
#[tokio::test]
async fn credentials_that_had_expired_were_sent() {
    let server = RedisServer::start();
    set_password(&server, "hunter1").await;
    let proxy = Proxy::to(&server);
    let mut vault = Vault::of("hunter1");
    vault.valid_for = Some(Duration::ZERO);
    let error = vault.builder(&proxy.url()).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let said = told(&error);
    assert!(said.contains("they have expired"), "{said}");
    assert_eq!(proxy.count("AUTH"), 0);
}

/// The server would end it, or let nothing through any more.
#[tokio::test]
async fn a_connection_that_cannot_log_in_again_is_closed_when_its_credentials_expire() {
    let server = RedisServer::start();
    set_password(&server, "hunter1").await;
    let proxy = Proxy::to(&server);
    let mut vault = Vault::of("hunter1");
    vault.valid_for = Some(SHORT);
    let client = vault.builder(&proxy.url()).connect().await.unwrap();
    drop(client.rlock(unique("closed")).lock().await.unwrap());
    let before = proxy.connections(Which::All);
    vault.set("wrong");
    let closed = async || {
        let now = proxy.connections(Which::All);
        before.iter().all(|connection| !now.contains(connection))
    };
    eventually(DEADLINE, closed).await;
    let error = client.rlock("a").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    vault.set("hunter1");
    drop(within(DEADLINE, client.rlock("a").lock()).await.unwrap());
}

#[tokio::test]
async fn a_source_that_fails_is_an_outage_and_is_named() {
    let server = RedisServer::start();
    let builder = Client::builder().url(&server.url());
    let sealed = builder.credentials(|| async { Err("the vault is sealed") });
    let error = sealed.clone().connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let said = told(&error);
    assert!(said.contains("the vault is sealed"), "{said}");
    let client = sealed.build().unwrap();
    let wait = LockOptions::new().wait(SHORT);
    let error = client.rlock("a").lock_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[test]
fn a_url_with_a_password_and_a_source_contradict_each_other() {
    let vault = Vault::of("x");
    let error = vault.builder("redis://:hunter2@a").build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_server_may_ask_for_a_certificate_of_the_client() {
    trace_init();
    let options = RedisServer::options().tls();
    let server = options.args(["--tls-auth-clients", "yes"]).start();
    let builder = Client::builder().url(&server.tls_url());
    let builder = builder.tls_roots(server.ca_pem());
    let without = within(DEADLINE, builder.clone().connect())
        .await
        .unwrap_err();
    assert_eq!(
        without.kind(),
        ErrorKind::Misconfigured,
        "{}",
        told(&without)
    );
    assert!(
        told(&without).contains("tls_identity"),
        "{}",
        told(&without)
    );
    let (certificate, key) = server.client_pem();
    let with = builder.clone().tls_identity(&*certificate, &*key);
    assert!(!format!("{with:?}").contains(&key));
    let client = with.connect().await.unwrap();
    let guard = client.rlock(unique("mutual")).lock().await.unwrap();
    guard.unlock().await.unwrap();
    let broken = builder.tls_identity(&*certificate, "no key").build();
    assert_eq!(broken.unwrap_err().kind(), ErrorKind::BadInput);
}
