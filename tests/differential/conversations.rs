//! Conversations of several connections, step by step.

use crate::compare::{self, Rule};
use crate::generate::words;
use crate::peer::{Pair, encode};

/// A step is the number of a connection and a command, or `raw` and bytes.
pub(crate) type Conversation = (&'static str, &'static [&'static str]);

pub(crate) const CONVERSATIONS: &[Conversation] = &[
    (
        "messages reach channels and patterns",
        &[
            "0 subscribe a b",
            "1 subscribe a",
            "1 psubscribe a*",
            "2 publish a x",
            "2 publish b y",
            "2 publish c z",
            "2 pubsub NUMSUB a b c",
            "2 pubsub NUMPAT",
            "0 get k",
            "0 ping",
            "0 ping hi",
            "0 unsubscribe a",
            "2 publish a x",
            "0 unsubscribe b",
            "0 get k",
            "1 punsubscribe a*",
            "1 unsubscribe a",
            "1 unsubscribe a",
            "1 unsubscribe",
            "0 punsubscribe",
            "2 pubsub CHANNELS",
        ],
    ),
    (
        "a subscriber may do little",
        &[
            "0 psubscribe s*",
            "0 get k",
            "0 GET",
            "0 nosuch",
            "0 eval x 0",
            "0 ping a b",
            "0 subscribe",
            "0 client ID",
            "0 punsubscribe s*",
            "0 get k",
        ],
    ),
    (
        "subscribing twice counts once",
        &[
            "0 subscribe a a",
            "1 publish a x",
            "0 unsubscribe a",
            "0 subscribe a",
        ],
    ),
    (
        "a client is not killed",
        &[
            "0 subscribe c",
            "1 client KILL ID 0",
            "1 client KILL ID x",
            "1 client KILL ID 999999",
            "1 publish c m",
            "1 client",
            "1 client KILL",
        ],
    ),
    (
        "inline commands",
        &[
            "raw 0 PING\\r\\n",
            "raw 0 PING\\n",
            "raw 0 \\r\\n\\r\\nPING\\r\\n",
            "raw 0   PING   hello  \\r\\n",
            "raw 0 SET k \"a\\\\x41\\\\n\\\\\"b\"\\r\\nGET k\\r\\n",
            "raw 0 SET k 'it\\\\'s \\\\n'\\r\\nGET k\\r\\n",
            "raw 0 *0\\r\\nPING\\r\\n",
            "raw 0 *-1\\r\\nPING\\r\\n",
            "raw 0 nosuch 'a b'\\r\\n",
        ],
    ),
    ("an unbalanced quote", &["raw 0 GET \"k\\r\\n"]),
    ("a quote inside a word", &["raw 0 GET \"k\"x\\r\\n"]),
    ("a length that is no number", &["raw 0 *x\\r\\n"]),
    ("a length that is too big", &["raw 0 *2147483648\\r\\n"]),
    ("an item that is no bulk", &["raw 0 *1\\r\\n:1\\r\\n"]),
    ("a negative bulk", &["raw 0 *1\\r\\n$-1\\r\\n"]),
    (
        "a bulk that is too big",
        &["raw 0 *1\\r\\n$536870913\\r\\n"],
    ),
    ("a bulk with a bad number", &["raw 0 *1\\r\\n$1x\\r\\n"]),
    ("nothing but a line end in a number", &["raw 0 *\\r\\n"]),
    (
        "errors after commands",
        &["raw 0 PING\\r\\n*1\\r\\n$4\\r\\nPING\\r\\n*1\\r\\n!\\r\\nPING\\r\\n"],
    ),
    (
        "requests without sense",
        &[
            "0 nosuch",
            "0 nosuch a b c",
            "0 client NOSUCH",
            "0 client ID x",
            "0 pubsub",
            "0 script",
            "0 script NOSUCH",
            "0 script LOAD",
            "0 script EXISTS",
            "0 script FLUSH x",
            "0 script FLUSH ASYNC",
            "0 eval x",
            "0 eval x 1",
            "0 eval x -1",
            "0 eval x 1x",
            "0 evalsha x 0",
            "0 select",
            "0 select x",
            "0 select 16",
            "0 select -1",
            "0 ping a b",
            "0 auth x",
            "0 auth x y",
            "0 auth x y z",
            "0 flushall x",
            "0 flushall async",
            "0 time x",
            "0 dbsize x",
            "0 client|id",
            "0 script|load x",
            "0 pubsub CHANNELS a b",
            "0 pubsub NUMPAT x",
            "raw 0 *2\\r\\n$3\\r\\na\\0b\\r\\n$3\\r\\nc\\0d\\r\\n",
            "raw 0 *1\\r\\n$0\\r\\n\\r\\n",
            // Seed 1795400539013076098 drew this name.
            "raw 0 *3\\r\\n$5\\r\\n\u{17}\u{5}')\\0\\r\\n$2\\r\\nl2\\r\\n$3\\r\\n100\\r\\n",
        ],
    ),
    (
        "databases are apart",
        &[
            "0 set k a",
            "0 select 3",
            "0 get k",
            "0 set k b",
            "1 get k",
            "0 eval redis.call('select',0)return(redis.call('get','k')) 0",
            "0 get k",
            "0 flushall",
            "1 get k",
        ],
    ),
];

pub(crate) const WITH_PASSWORD: &[Conversation] = &[(
    "a password is asked for",
    &[
        "0 get k",
        "0 nosuch",
        "0 get",
        "0 ping",
        "0 auth wrong",
        "0 auth default wrong",
        "0 auth nobody secret",
        "0 subscribe c",
        "1 auth secret",
        "1 ping",
        "2 auth default secret",
        "2 select 0",
        "2 get k",
    ],
)];

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, byte == b'\\') {
            (_, true) => match rest.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b'0') => 0,
                other => other.unwrap_or(b'\\'),
            },
            (byte, false) => byte,
        });
    }
    bytes
}

/// Sends the steps to both servers; returns the first with different replies.
pub(crate) fn hold(pair: &mut Pair, steps: &[&str]) -> Result<(), String> {
    for step in steps {
        let (line, is_raw) = step
            .strip_prefix("raw ")
            .map_or((*step, false), |line| (line, true));
        let (connection, text) = line.split_once(' ').unwrap();
        let connection: usize = connection.parse().unwrap();
        let command = words(text);
        let rule = if is_raw {
            Rule::Exact
        } else {
            compare::rule(&command)
        };
        let bytes = if is_raw {
            unescape(text)
        } else {
            encode(&command)
        };
        if pair.embedded[connection].send(&bytes) {
            pair.real[connection].send(&bytes);
        }
        for listener in 0..pair.real.len() {
            for embedded in pair.embedded[listener].drain() {
                let real = pair.real[listener].read();
                let equal = real.as_ref().is_some_and(|real| {
                    compare::equal(rule, real, &embedded, pair.skew.tolerance())
                });
                if !equal {
                    return Err(format!(
                        "{step}, connection {listener}\n  redis:  {real:?}\n  engine: {embedded:?}"
                    ));
                }
            }
        }
    }
    for listener in 0..pair.real.len() {
        // Open connections answer this, and have sent nothing else before; the others are closed.
        let alive = !pair.embedded[listener].is_closed();
        if alive {
            pair.embedded[listener].send(b"NOSUCH last\r\n");
            pair.real[listener].send(b"NOSUCH last\r\n");
            let embedded = pair.embedded[listener].drain().pop();
            let real = pair.real[listener].read();
            if real != embedded {
                return Err(format!(
                    "after all, connection {listener}\n  redis:  {real:?}\n  engine: {embedded:?}"
                ));
            }
        } else if !pair.real[listener].is_closed() {
            return Err(format!(
                "connection {listener} is closed in the engine only"
            ));
        }
    }
    Ok(())
}
