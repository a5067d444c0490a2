//! What a server sends instead of, before or behind a reply, drawn from a seed.

use tests::Random;

/// What is done to a reply.
#[derive(Clone, Debug)]
pub(crate) struct Attack {
    pub(crate) how: How,
    /// No RESP2 server sends this, whatever it was asked.
    pub(crate) nonsense: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum How {
    Instead(Vec<u8>),
    Before(Vec<u8>),
    Behind(Vec<u8>),
    Twice,
    Nothing,
    /// So much of the reply, in parts of a hundred, and then silence.
    Half(usize),
    /// The same, and then the end.
    Cut(usize),
    /// This, and then the other again and again.
    Endless(Vec<u8>, Vec<u8>),
}

impl Attack {
    pub(crate) fn drawn(random: &mut Random) -> Self {
        let nonsense = random.percent(60);
        let sent = match nonsense {
            true => nonsense_bytes(random),
            false => plausible(random, 0),
        };
        let how = match random.below(20) {
            0..9 => How::Instead(sent),
            9..11 => How::Before(sent),
            11..14 => How::Behind(sent),
            14 if nonsense => return endless(random),
            14 => How::Twice,
            15 if !nonsense => How::Nothing,
            16 if !nonsense => How::Half(random.below(100)),
            17 if !nonsense => How::Cut(random.below(101)),
            _ => How::Instead(sent),
        };
        Self { how, nonsense }
    }
}

/// A well-formed reply of any type; hardly ever the right one.
fn plausible(random: &mut Random, depth: usize) -> Vec<u8> {
    const NUMBERS: [i64; 9] = [0, 1, 2, -1, -2, -3, 60_000, i64::MAX, i64::MIN];
    const TEXTS: [&str; 10] = [
        "",
        "OK",
        "0",
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "failed",
        "1e400",
        "b5f0e9a0-6d5c-4d0c-9d6e-000000000000:7",
        "\u{0}\u{fffd}\r\n:1",
    ];
    const ERRORS: [&str; 12] = [
        "ERR",
        "ERR unknown command",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "NOSCRIPT No matching script.",
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script",
        "READONLY You can't write against a read only replica.",
        "MOVED 1 127.0.0.1:1",
        "NOPERM this user has no permissions",
        "OOM command not allowed",
        "",
        "ERR Error running script (call to f_1): @user_script:1: -READONLY x",
    ];
    match random.below(if depth < 4 { 9 } else { 7 }) {
        0 => b"$-1\r\n".to_vec(),
        1 => b"*-1\r\n".to_vec(),
        2 | 3 => format!(":{}\r\n", NUMBERS[random.below(NUMBERS.len())]).into_bytes(),
        4 => bulk(random.pick(&TEXTS).as_bytes()),
        5 => format!("+{}\r\n", random.pick(&["OK", "QUEUED", "PONG", ""])).into_bytes(),
        6 => format!("-{}\r\n", random.pick(&ERRORS)).into_bytes(),
        _ => {
            let items = random.below(8);
            let mut bytes = format!("*{items}\r\n").into_bytes();
            for _ in 0..items {
                bytes.extend(plausible(random, depth + 1));
            }
            bytes
        }
    }
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    let header = format!("${}\r\n", bytes.len()).into_bytes();
    [&header, bytes, b"\r\n"].concat()
}

/// Samples of what no server of RESP2 sends.
pub(crate) const NONSENSE: [&[u8]; 38] = [
    b"*2147483647\r\n",
    b"*9223372036854775807\r\n",
    b"*99999999999999999999999999\r\n",
    b"*262145\r\n",
    b"*-2\r\n",
    b"*\r\n",
    b"*1x\r\n",
    b"$9223372036854775807\r\n",
    b"$2147483648\r\n",
    b"$16777217\r\n",
    b"$-2\r\n",
    b"$-9223372036854775808\r\n",
    b"$\r\n",
    b"$ 1\r\na\r\n",
    b"$3\r\nabcd\r\n",
    b":9223372036854775808\r\n",
    b":1.5\r\n",
    b":\r\n",
    b":1\n\r\n",
    b"+OK\n",
    b"\r\n",
    b"\0\0\0\0",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(3492890328409238509324850943850943825024385\r\n",
    b"!21\r\nSYNTAX invalid syntax\r\n",
    b"=15\r\ntxt:Some string\r\n",
    b"%1\r\n+k\r\n:1\r\n",
    b"~1\r\n:1\r\n",
    b"|1\r\n+ttl\r\n:3600\r\n:1\r\n",
    b">3\r\n+message\r\n+channel\r\n+payload\r\n",
    b">2\r\n+invalidate\r\n*1\r\n+key\r\n",
    b"*2\r\n:1\r\n_\r\n",
    b"-\xff\xfe\r\n",
];

fn nonsense_bytes(random: &mut Random) -> Vec<u8> {
    match random.below(10) {
        // Behind something that is well-formed.
        0 => {
            let mut bytes = format!("*{}\r\n", 2 + random.below(5)).into_bytes();
            bytes.extend(plausible(random, 3));
            bytes.extend(b"}");
            bytes
        }
        1 => b"*1\r\n".repeat(33 + random.below(5000)),
        2 => {
            let kind = random.pick(&["+", "-"]);
            let text = "x".repeat(70_000 + random.below(70_000));
            format!("{kind}{text}\r\n").into_bytes()
        }
        3 => (0..1 + random.below(60))
            .map(|at| match (at, u8::try_from(random.below(256)).unwrap()) {
                // The others might begin a reply that is right.
                (0, b'+' | b'-' | b':' | b'$' | b'*') => b'?',
                (_, byte) => byte,
            })
            .collect(),
        _ => random.pick(&NONSENSE).to_vec(),
    }
}

fn endless(random: &mut Random) -> Attack {
    // The last are replies, of which the first may be believed.
    let which = match random.below(6) {
        // It takes long to read.
        0 if random.percent(95) => 1,
        which => which,
    };
    let longest = [&b"*262144\r\n"[..], &b":1\r\n".repeat(262_144)].concat();
    let (begin, again): (&[u8], &[u8]) = match which {
        // What is behind it must be no reply: a release on its way would believe that one.
        0 => (&longest, b"?"),
        1 => (b"", b"*1\r\n"),
        2 => (b"", b"*2\r\n:1\r\n"),
        3 => (b"+", b"ever and "),
        4 => (b":", b"0000000000"),
        _ => (b"", b":1\r\n"),
    };
    let times = 16 * 1024 / again.len();
    Attack {
        how: How::Endless(begin.to_vec(), again.repeat(times)),
        nonsense: which < 5,
    }
}
