//! Random commands: well formed, odd, and wrong.

use crate::peer::Command;
use crate::restore;
use tests::Random;

/// The commands to send. Words in capitals and numbers are sent as they are; `Generator::token`
/// replaces the others. `x*` is one to three of x, `(x y)*` the same for the group, `[x y]` may be
/// missing.
const GRAMMAR: &str = include_str!("grammar.txt");

const STRINGS: &[&str] = &["s0", "s1", "s2"];
const HASHES: &[&str] = &["h0", "h1", "h2"];
const LISTS: &[&str] = &["l0", "l1", "l2"];
const SETS: &[&str] = &["t0", "t1", "t2"];
const ZSETS: &[&str] = &["z0", "z1", "z2"];
const KEYS: &[&[&str]] = &[
    STRINGS,
    HASHES,
    LISTS,
    SETS,
    ZSETS,
    &["", "k\u{0}\r\n", "{tag}k"],
];
const VALUES: &[&str] = &[
    "a",
    "b",
    "c",
    "1",
    "2",
    "10",
    "-7",
    "0",
    "3.5",
    "-0.25",
    "",
    "hello world",
    "9223372036854775807",
    "x\r\ny",
    "\u{0}\u{1}",
    "0.1",
    "1e3",
];
/// None of these is a TTL that could end during a test.
const ODD: &[&str] = &[
    "",
    "-1",
    "0",
    "abc",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    " 1",
    "01",
    "+1",
    "0x10",
    "1e-400",
    "(",
    "[",
    "\u{0}",
    "WITHSCORES",
    "NX",
    "LIMIT",
    "COUNT",
    "18446744073709551616",
    "-0",
    "1e5000",
    ".",
    "-",
];
const SCORES: &[&str] = &[
    "1",
    "2",
    "3",
    "1.5",
    "-1",
    "0",
    "-0.5",
    "inf",
    "-inf",
    "+inf",
    "1e10",
    "0.1",
    "3.14159",
    "1e300",
    "1e-10",
    "100000000000000000",
    "123456789.123456789",
    "0x10",
];
const BOUNDS: &[&str] = &[
    "-inf", "+inf", "(1", "1", "2", "(2", "1.5", "(-1", "-1", "inf", "(inf", "", "(", "0",
];
const MEMBERS: &[&str] = &["a", "b", "c", "d", "e", "hello", "1", ""];
/// Bytes of names that are no command's.
const UNUSUAL: &[u8] = b"\0\0')(' \r\n|%-x\xff";

pub(crate) struct Generator {
    pub(crate) random: Random,
    /// Seconds since the epoch at the start.
    epoch: u64,
    issued: u64,
    grammar: Vec<&'static str>,
    payloads: Vec<Vec<u8>>,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        let epoch = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        Self {
            random: Random::new(seed),
            epoch,
            issued: 0,
            grammar: GRAMMAR
                .lines()
                .filter(|line| !line.starts_with('#'))
                .collect(),
            payloads: restore::payloads(),
        }
    }

    /// Seconds far in the future that differ from all others by at least a minute, so that no key
    /// expires during a test and no two are close.
    fn seconds(&mut self) -> u64 {
        self.issued += 1;
        100_000 + 100 * (self.issued * 7919 % 1_000_003)
    }

    /// Any command.
    pub(crate) fn command(&mut self) -> Command {
        let line = self.random.pick(&self.grammar);
        let mut command = self.expand(line);
        self.spoil(&mut command);
        if self.random.percent(12) {
            self.through_script(command)
        } else {
            command
        }
    }

    /// Commands for one connection.
    pub(crate) fn batch(&mut self, len: usize) -> Vec<Command> {
        let mut batch = Vec::new();
        while batch.len() < len {
            let command = self.command();
            let subscribed = command[0].to_ascii_lowercase().ends_with(b"subscribe");
            batch.push(command);
            // A connection with subscriptions can do little else.
            if subscribed && self.random.percent(60) {
                batch.extend(["unsubscribe", "punsubscribe"].map(words));
            }
        }
        batch
    }

    /// A command that neither server knows, whose name may hold what ends a text or a line.
    pub(crate) fn unknown(&mut self) -> Command {
        let mut command = match self.random.pick(&["", "client", "script", "pubsub"]) {
            "" => Vec::new(),
            container => words(container),
        };
        for _ in 0..=self.random.below(4) {
            let many = self.random.percent(20);
            let len = self.random.below(if many { 140 } else { 6 });
            command.push(
                (0..len)
                    .map(|_| UNUSUAL[self.random.below(UNUSUAL.len())])
                    .collect(),
            );
        }
        match self.random.percent(50) {
            true => self.through_script(command),
            false => command,
        }
    }

    pub(crate) fn through_script(&mut self, command: Command) -> Command {
        let script = self.random.pick(&[
            "return redis.call(unpack(ARGV))",
            "return redis.call(unpack(ARGV))",
            "return redis.pcall(unpack(ARGV))",
            "local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' and r.err then return r.err end return r",
            "local ok, r = pcall(redis.call, unpack(ARGV)) return r",
        ]);
        let mut whole = vec![b"eval".to_vec(), script.into(), b"0".to_vec()];
        whole.extend(command);
        whole
    }

    fn expand(&mut self, line: &str) -> Command {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let name = if self.random.percent(20) {
            name.to_uppercase()
        } else {
            name.into()
        };
        let mut command = vec![name.into_bytes()];
        command.extend(self.tokens(rest));
        command
    }

    fn tokens(&mut self, line: &str) -> Command {
        let mut command = Vec::new();
        let mut rest = line;
        while !rest.is_empty() {
            let end = match rest.as_bytes()[0] {
                b'(' => rest.find(")*").unwrap() + 2,
                b'[' => rest.find(']').unwrap() + 1,
                _ => rest.find(' ').unwrap_or(rest.len()),
            };
            let (token, more) = rest.split_at(end);
            rest = more.trim_start();
            if let Some(group) = token.strip_prefix('(') {
                let group = group.trim_end_matches(")*");
                for _ in 0..=self.random.below(3) {
                    command.extend(self.tokens(group));
                }
            } else if let Some(optional) = token.strip_prefix('[') {
                if self.random.percent(70) {
                    command.extend(self.tokens(optional.trim_end_matches(']')));
                }
            } else if let Some(repeated) = token.strip_suffix('*') {
                for _ in 0..=self.random.below(3) {
                    command.extend(self.token(repeated));
                }
            } else {
                command.extend(self.token(token));
            }
        }
        command
    }

    fn key(&mut self, usual: &[&str]) -> Vec<u8> {
        if self.random.percent(85) {
            return self.random.pick(usual).into();
        }
        let kind = KEYS[self.random.below(KEYS.len())];
        self.random.pick(kind).into()
    }

    fn token(&mut self, token: &str) -> Command {
        let one = |text: String| vec![text.into_bytes()];
        match token {
            "s" => vec![self.key(STRINGS)],
            "h" => vec![self.key(HASHES)],
            "l" => vec![self.key(LISTS)],
            "t" => vec![self.key(SETS)],
            "z" => vec![self.key(ZSETS)],
            "k" => {
                let kind = KEYS[self.random.below(KEYS.len())];
                vec![self.key(kind)]
            }
            "f" => words(self.random.pick(&["f1", "f2", "f3", "f4"])),
            "v" => vec![self.random.pick(VALUES).into()],
            "m" => vec![self.random.pick(MEMBERS).into()],
            "score" => words(self.random.pick(SCORES)),
            "bound" => vec![self.random.pick(BOUNDS).into()],
            "i" => words(
                self.random
                    .pick(&["1", "-1", "7", "100", "-50", "9223372036854775807"]),
            ),
            "n" => words(
                self.random
                    .pick(&["0", "1", "2", "-1", "-2", "5", "-100", "100"]),
            ),
            "c" => words(self.random.pick(&["0", "1", "2", "3", "100", "-1"])),
            "sec" => one(self.seconds().to_string()),
            "ms" => one((self.seconds() * 1000).to_string()),
            "atms" => one(((self.epoch + self.seconds() + 50) * 1000).to_string()),
            "past" => words(
                self.random
                    .pick(&["0", "-1", "-100", "-9223372036854775808"]),
            ),
            "dump" => {
                let payload = self.random.below(self.payloads.len());
                vec![self.payloads[payload].clone()]
            }
            "pattern" => words(self.random.pick(&[
                "*",
                "s*",
                "?0",
                "[a-l]*",
                "news.*",
                "n[^x]ws.?",
                "\\*",
                "x",
            ])),
            "channel" => words(self.random.pick(&["news.a", "news.b", "c1", "c2"])),
            "type" => words(
                self.random
                    .pick(&["string", "hash", "list", "set", "zset", "none"]),
            ),
            "db" => words(self.random.pick(&["0", "0", "1", "15", "16", "-1"])),
            "digest" => words(self.random.pick(&[
                "e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
                "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB",
                "x",
                "ffffffffffffffffffffffffffffffffffffffff",
            ])),
            "script" => vec![
                self.random
                    .pick(&["return 1", "return 1", "return +"])
                    .into(),
            ],
            "setopts" => {
                let option = self.random.below(12);
                let ms = (self.seconds() * 1000).to_string();
                words(&match option {
                    0 => "NX".into(),
                    1 => "xx".into(),
                    2 => "GET".into(),
                    3 => "KEEPTTL".into(),
                    4 => format!("PX {ms}"),
                    5 => format!("EX {}", self.seconds()),
                    6 => format!("PXAT {}", (self.epoch + self.seconds() + 50) * 1000),
                    7 => format!("EXAT {}", self.epoch + self.seconds() + 50),
                    8 => format!("NX PX {ms} GET"),
                    9 => format!("XX PX {ms}"),
                    10 => format!("PX {ms} KEEPTTL"),
                    _ => "NX XX".into(),
                })
            }
            "expireopts" => words(
                self.random
                    .pick(&["NX", "XX", "GT", "lt", "NX XX", "GT LT", "XX GT", "NO"]),
            ),
            "lposopts" => words(self.random.pick(&[
                "RANK 1",
                "RANK -1",
                "RANK 2",
                "COUNT 0",
                "COUNT 2",
                "MAXLEN 1",
                "RANK 0",
                "COUNT -1",
                "RANK -1 COUNT 0",
                "RANK -2 COUNT 1 MAXLEN 3",
                "RANK",
                "RANK x",
                "MAXLEN -1",
            ])),
            "zaddopts" => words(self.random.pick(&[
                "NX", "XX", "GT", "LT", "CH", "INCR", "XX CH", "GT CH", "NX INCR", "XX INCR",
                "LT INCR", "NX XX", "GT LT", "NX GT", "XX LT CH",
            ])),
            "zrangeopts" => words(self.random.pick(&[
                "WITHSCORES",
                "LIMIT 0 1",
                "LIMIT 1 2",
                "LIMIT 0 -1",
                "LIMIT -1 1",
                "LIMIT 5 1",
                "WITHSCORES LIMIT 1 1",
                "LIMIT 1 0",
                "LIMIT x 1",
                "LIMIT 1",
                "REV",
                "LIMIT 1 -5",
            ])),
            "scanopts" => words(self.random.pick(&[
                "COUNT 1000",
                "MATCH * COUNT 1000",
                "COUNT 1000 MATCH ?",
                "COUNT 0",
                "MATCH",
                "COUNT x",
                "COUNT 1000 match [a-c]*",
            ])),
            literal => words(literal),
        }
    }

    /// Sometimes adds, removes or replaces an argument.
    fn spoil(&mut self, command: &mut Command) {
        let name = String::from_utf8_lossy(&command[0]).to_lowercase();
        // A scan starts at cursor 0.
        let as_it_is = name == "scan";
        match self.random.below(40) {
            0 => {
                command.pop();
                if command.is_empty() {
                    command.push(b"x".to_vec());
                }
            }
            1 => command.push(self.random.pick(ODD).into()),
            2 | 3 if !as_it_is => {
                let at = self.random.below(command.len());
                command[at] = self.random.pick(ODD).into();
            }
            4 if !as_it_is => {
                let at = self.random.below(command.len());
                let len = self.random.below(12);
                // No digits: they could be a TTL that ends.
                let byte = |byte: u8| {
                    if byte.is_ascii_digit() {
                        byte | 0x80
                    } else {
                        byte
                    }
                };
                command[at] = (0..len).map(|_| byte(self.random.bits() as u8)).collect();
            }
            _ => {}
        }
    }
}

pub(crate) fn words(line: &str) -> Command {
    line.split(' ')
        .filter(|word| !word.is_empty())
        .map(Into::into)
        .collect()
}
