//! The least that a lock with a lease takes of a client: the floor of the client's processor time.
//!
//! The commands of [`bare`], and in addition what no guard can be without: an owner for each
//! acquisition, with the words of its commands; a place among the waiters of its name; a deadline that is
//! counted from a moment before the command was sent; a hold that the guard and a task which renews
//! share. Each is the simplest that several threads may use. There is no wait, no error, no time-out, no
//! repeat after a lost reply, no re-entry, no cancellation, and nothing is renewed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ::tests::RedisServer;
use crc::{CRC_64_REDIS, Crc, Table};
use foldhash::fast::RandomState;

use crate::{
    bare::{self, Bare, How},
    pair::Pair,
};

const LEASE: Duration = Duration::from_secs(30);
const CLIENT: &[u8] = b"0f8fad5b-d9cb-469f-a165-70867728950e:";

static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all locks of the client share.
#[derive(Default)]
struct Client {
    owners: AtomicU64,
    /// The number of callers of each name that wait for it or have it.
    callers: Mutex<HashMap<Arc<str>, usize, RandomState>>,
    /// By the moment of the next renewal.
    renewals: Mutex<BTreeMap<(Instant, u64), Arc<Hold>>>,
}

/// What a guard and its renewal share.
struct Hold {
    owner: u64,
    renewal: Instant,
    /// A renewal moves it.
    deadline: Mutex<Instant>,
}

/// The lock of one name.
pub(crate) struct Floor {
    client: Arc<Client>,
    commands: Bare,
    name: Arc<str>,
    channel: String,
    /// Kept, so that their memory is.
    words: Vec<u8>,
    owner: Vec<u8>,
    dump: Vec<u8>,
}

/// One for each task, on one connection.
pub(crate) async fn pairs(server: &RedisServer, tasks: u64) -> Vec<Floor> {
    let client = Arc::<Client>::default();
    let commands = bare::pairs(server, tasks, How::Waiting).await.into_iter();
    let named = commands.zip(0..tasks).map(|(commands, task)| {
        let name: Arc<str> = format!("bench:floor:{task:03}").into();
        Floor {
            client: Arc::clone(&client),
            commands,
            channel: format!("redisson_lock__channel:{{{name}}}"),
            name,
            words: Vec::new(),
            owner: Vec::new(),
            dump: Vec::new(),
        }
    });
    named.collect()
}

/// Appends a command.
fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    let header = |kind: u8, len: usize, out: &mut Vec<u8>| {
        out.push(kind);
        out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    header(b'*', words.len(), out);
    for word in words {
        header(b'$', word.len(), out);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A hash with the owner, as `RESTORE` takes it.
fn put_dump(dump: &mut Vec<u8>, owner: &[u8]) {
    dump.clear();
    let len = u8::try_from(owner.len()).expect("it is short");
    dump.extend_from_slice(&[4, 1, len]);
    dump.extend_from_slice(owner);
    dump.extend_from_slice(&[1, b'1', 6, 0]);
    let checksum = CHECKSUM.checksum(dump);
    dump.extend_from_slice(&checksum.to_le_bytes());
}

/// The text of an owner.
fn put_owner(text: &mut Vec<u8>, owner: u64) {
    text.clear();
    text.extend_from_slice(CLIENT);
    text.extend_from_slice(itoa::Buffer::new().format(owner).as_bytes());
}

impl Floor {
    async fn acquire(&mut self) -> Arc<Hold> {
        let owner = self.client.owners.fetch_add(1, Ordering::Relaxed);
        *lock(&self.client.callers)
            .entry(Arc::clone(&self.name))
            .or_default() += 1;
        let sent = Instant::now();
        put_owner(&mut self.owner, owner);
        put_dump(&mut self.dump, &self.owner);
        self.words.clear();
        let words = [b"RESTORE", self.name.as_bytes(), b"30000", &self.dump];
        command(&mut self.words, &words);
        self.commands.call(&self.words, 1).await;
        let hold = Arc::new(Hold {
            owner,
            renewal: sent + LEASE / 3,
            deadline: Mutex::new(sent + LEASE),
        });
        lock(&self.client.renewals).insert((hold.renewal, owner), Arc::clone(&hold));
        assert!(Instant::now() < *lock(&hold.deadline), "the lease is long");
        hold
    }

    async fn release(&mut self, hold: Arc<Hold>) {
        let renewal = lock(&self.client.renewals).remove(&(hold.renewal, hold.owner));
        assert!(renewal.is_some());
        assert!(Instant::now() < *lock(&hold.deadline), "the lease is long");
        put_owner(&mut self.owner, hold.owner);
        self.words.clear();
        let (name, channel) = (self.name.as_bytes(), self.channel.as_bytes());
        command(&mut self.words, &[b"HDEL", name, &self.owner]);
        command(&mut self.words, &[b"PUBLISH", channel, b"0"]);
        self.commands.call(&self.words, 2).await;
        let mut callers = lock(&self.client.callers);
        let left = callers.get_mut(&*self.name).expect("it is one of them");
        *left -= 1;
        if *left == 0 {
            callers.remove(&*self.name);
        }
    }
}

impl Pair for Floor {
    async fn pair(&mut self) -> Instant {
        let hold = self.acquire().await;
        let held = Instant::now();
        self.release(hold).await;
        held
    }
}
