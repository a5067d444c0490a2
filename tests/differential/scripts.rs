//! Scripts: those of the project, on random states, and conversions of all kinds.

use crate::compare::{self, Rule};
use crate::frame::Frame;
use crate::generate::words;
use crate::peer::{Command, Pair, encode};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tests::Random;

/// A .lua file of the project, and the arguments in its header.
pub(crate) struct LuaFile {
    pub(crate) name: String,
    body: Vec<u8>,
    keys: Vec<String>,
    args: Vec<String>,
}

/// All scripts under the folder, the folders in it included.
pub(crate) fn lua_files() -> Vec<LuaFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../redlock-rt/src/wire/lua");
    let mut files = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lua") {
                files.push(LuaFile::read(&path));
            }
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!files.is_empty(), "no scripts found");
    files
}

impl LuaFile {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let keys = header(&text, "KEYS:").unwrap_or_else(|| panic!("{name}: no KEYS header"));
        let args = header(&text, "ARGV:").unwrap_or_else(|| panic!("{name}: no ARGV header"));
        let prelude = text
            .lines()
            .find_map(|line| line.strip_prefix("-- Prelude: "));
        let preludes = prelude.into_iter().flat_map(|names| names.split(", "));
        let preludes = preludes
            .map(|name| fs::read_to_string(path.with_file_name(format!("{name}.lua"))).unwrap());
        let text = preludes.collect::<String>() + &text;
        Self {
            name,
            body: text.into_bytes(),
            keys,
            args,
        }
    }

    /// Keys and arguments: mostly plausible ones, for each description.
    fn arguments(&self, random: &mut Random) -> (Command, Command) {
        let many = self.keys.iter().any(|key| key.contains("..n"));
        let repeats = if many { 1 + random.below(3) } else { 1 };
        let mut keys = Vec::new();
        for key in &self.keys {
            for _ in 0..if key.contains("..n") { repeats } else { 1 } {
                let name = format!("{{k}}{}", keys.len());
                keys.push(
                    if random.percent(90) {
                        name
                    } else {
                        "{k}other".into()
                    }
                    .into_bytes(),
                );
            }
        }
        let per_key = self.args.iter().any(|arg| {
            ["2i", "3i", "4i", "..n"]
                .iter()
                .any(|mark| arg.contains(mark))
        });
        let mut args = Vec::new();
        for _ in 0..if per_key { repeats } else { 1 } {
            args.extend(
                self.args
                    .iter()
                    .map(|description| argument(random, description)),
            );
        }
        (keys, args)
    }
}

/// The numbered items of a header line and of the comment lines that continue it.
fn header(text: &str, label: &str) -> Option<Vec<String>> {
    let mut lines = text.lines().skip_while(|line| !line.contains(label));
    let first = lines.next()?.split_once(label)?.1.to_owned();
    let more = lines.take_while(|line| {
        let comment = line.trim_start_matches('-').trim();
        line.starts_with("--") && !comment.is_empty() && !comment.contains(':')
            || comment.starts_with(|c: char| c.is_ascii_digit())
    });
    let joined = more.fold(first, |all, line| {
        all + " " + line.trim_start_matches('-').trim()
    });
    if joined.trim().starts_with("none") {
        return Some(Vec::new());
    }
    // Items are separated by commas outside brackets, and start with their number.
    let mut items: Vec<String> = Vec::new();
    let mut depth = 0;
    let mut item = String::new();
    for c in joined.chars().chain([',']) {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if c == ',' && depth <= 0 {
            let whole = item.trim().to_owned();
            item.clear();
            if whole.starts_with(|c: char| c.is_ascii_digit()) {
                items.push(whole);
            } else if let Some(last) = items.last_mut() {
                last.push_str(&whole);
            }
        } else {
            item.push(c);
        }
    }
    Some(items)
}

const OWNERS: &[&str] = &["u-1:1", "u-1:2", "u-2:1", "u-2:77"];
const FIELDS: &[&str] = &["u-1:1", "u-1:2", "u-1:1:write", "u-1:2:write", ""];
/// Before the number of a key that carries the lease of a reader; none for other locks.
const LEASES: &[&str] = &[
    "{k}0:u-1:1:rwlock_timeout",
    "{k}0:u-1:2:rwlock_timeout",
    "{k}0:u-2:1:rwlock_timeout",
    "",
];
const MILLIS: &[&str] = &["30000", "60000", "100000", "90000"];
/// Scripts that a caller may run under a fencing token.
const SCRIPTS: &[&str] = &[
    "return {KEYS, ARGV, #KEYS, #ARGV}",
    "return redis.call('SET', KEYS[1], ARGV[1])",
    "return redis.call('INCR', KEYS[1])",
    "redis.call('DEL', KEYS[1])",
    "return {1, nil, 2}",
    "return redis.error_reply('ERR its own')",
    "return redis.pcall('HGET', KEYS[1])",
    "error('it fails')",
    "return KEYS[1] ..",
    "return undefined",
    "return 1.9",
];
/// Of permits, one or two.
const IDS: &[&str] = &[
    "00112233445566778899aabbccddeeff",
    "80ff00000000000000000000000000fe",
    "00112233445566778899aabbccddeeff80ff00000000000000000000000000fe",
    "",
];
const COUNTS: &[&str] = &["0", "1", "2", "3", "5"];

/// A value for an argument, by the words of its description.
fn argument(random: &mut Random, description: &str) -> Vec<u8> {
    let text = description.to_lowercase();
    let is_time = ["lease", " ms", "ttl", "milli", "wait", "expiry"]
        .iter()
        .any(|w| text.contains(w));
    let pool = if random.percent(4) {
        // No number of a few milliseconds, since its rest depends on the time of a call, and no negative
        // one, since a script may make it 1. No half: whether it is rounded up depends on an odd time.
        let small = if is_time { "y" } else { "-1" };
        &["", "x", small, "70000.25", "99999999999999999999"]
    } else if text.contains("the script") {
        SCRIPTS
    } else if text.contains("hexadecimal") {
        IDS
    } else if text.contains("publish") {
        &["PUBLISH"][..]
    } else if text.contains("channel") {
        &["redisson_lock__channel:{k}", "ch"]
    } else if text.contains("names of all keys") {
        &["{k}0"]
    } else if text.contains("names of the keys") || text.contains("prefix of the keys") {
        LEASES
    } else if text.contains("field") {
        FIELDS
    } else if is_time {
        MILLIS
    } else if ["owner", "field", "uuid", "holder", "client"]
        .iter()
        .any(|w| text.contains(w))
    {
        OWNERS
    } else {
        COUNTS
    };
    random.pick(pool).into()
}

/// Commands that leave a key in some state that a script may find.
fn state(random: &mut Random, key: &[u8]) -> Vec<Command> {
    let key = String::from_utf8_lossy(key);
    let owner = random.pick(OWNERS);
    let other = random.pick(OWNERS);
    // Also states that no client of ours or Redisson writes: a script must end on them too.
    let count = random.pick(&["1", "2", "3", "1", "2", "3", "9007199254740991"]);
    let mut commands = Vec::new();
    if random.percent(30) {
        // A reader, with the keys of some of its leases, and perhaps another or a writer.
        let other = random.pick(FIELDS);
        let mode = random.pick(&["read", "write"]);
        commands.push(words(&format!("hset {key} mode {mode} {owner} {count}")));
        if !other.is_empty() {
            commands.push(words(&format!("hset {key} {other} 1")));
        }
        for hold in 1..=3 {
            let ttl = random.pick(&["15000", "45000", "120000"]);
            for owner in [owner, other] {
                if random.percent(60) {
                    let lease = format!("{key}:{owner}:rwlock_timeout:{hold}");
                    commands.push(words(&format!("set {lease} 1 px {ttl}")));
                }
            }
        }
    }
    commands.push(match random.below(14) {
        0..3 => return commands,
        _ if !commands.is_empty() => words(&format!("persist {key}")),
        3..7 => words(&format!("hset {key} {owner} {count}")),
        7 => words(&format!(
            "hset {key} mode read {owner} {count} {other}:write 1"
        )),
        8 => words(&format!("hset {key} {owner} {count} {other} 1")),
        9 => words(&format!("set {key} {count}")),
        10 => words(&format!("rpush {key} {owner} {other}")),
        11 => words(&format!("zadd {key} 1 {owner} 922337203685477 {other}")),
        12 => words(&format!("sadd {key} {owner}")),
        _ => words(&format!("hset {key} {owner} x")),
    });
    if random.percent(80) {
        let ttl = random.pick(&["15000", "30000", "45000", "120000"]);
        commands.push(words(&format!("pexpire {key} {ttl}")));
    }
    commands
}

/// Commands that leave a key in a state of its description; `None` for an unknown description.
fn fitting(random: &mut Random, key: &[u8], description: &str) -> Option<Vec<Command>> {
    let name = String::from_utf8_lossy(key);
    let owner = random.pick(OWNERS);
    let mut commands = Vec::new();
    if description.contains("id of 16 bytes") {
        let mut add = words(&format!("zadd {name}"));
        for id in [IDS[0], IDS[1], "ffffffffffffffff0000000000000000"] {
            if random.percent(60) {
                // Over, running, or without end in Redisson's form.
                let score = random.pick(&["-60000", "45000", "120000", "for ever"]);
                add.push(match score.parse::<i64>() {
                    Ok(from_now) => (epoch_ms() + from_now).to_string().into_bytes(),
                    Err(_) => b"922337203685477".to_vec(),
                });
                add.push(raw(id));
            }
        }
        if add.len() > 2 {
            commands.push(add);
        }
    } else if description.contains("STRING: free permits") || description.contains("its count") {
        let free = random.pick(&["-2", "0", "1", "2", "3", "7"]);
        commands.push(words(&format!("set {name} {free}")));
    } else if description.contains("owner -> permits") {
        let permits = random.pick(&["1", "2", "5"]);
        commands.push(words(&format!("hset {name} {owner} {permits}")));
    } else if description.contains("the state (HASH") {
        let (generation, parties) = (random.pick(&["1", "2", "3"]), random.pick(&["2", "3"]));
        commands.push(words(&format!("hset {name} generation {generation}")));
        for (percent, more) in [
            (80, format!("parties {parties}")),
            (30, "inside 1".to_owned()),
            (20, format!("{generation} broken")),
            (50, "1 reset".to_owned()),
        ] {
            if random.percent(percent) {
                commands.push(words(&format!("hset {name} {more}")));
            }
        }
    } else if description.contains("note") {
        let told = random.pick(&["0", "1", "4"]);
        if random.percent(30) {
            commands.push(words(&format!("set {name} {told} px 90000")));
        }
    } else if description.contains("the mark") {
        let till = epoch_ms() + 45_000;
        let mark = match random.below(3) {
            0 => format!("deleted:{owner}"),
            1 => till.to_string(),
            _ => (till - 90_000).to_string(),
        };
        commands.push(words(&format!("set {name} {mark} px 90000")));
    } else {
        return None;
    }
    if random.percent(20) && !commands.is_empty() {
        commands.push(words(&format!("pexpire {name} 45000")));
    }
    Some(commands)
}

/// The bytes of an id in Redis.
fn raw(id: &str) -> Vec<u8> {
    let starts = (0..id.len()).step_by(2);
    let byte = |at| u8::from_str_radix(&id[at..at + 2], 16).unwrap();
    starts.map(byte).collect()
}

fn epoch_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// The observable state of the keyspace.
fn inspect(keys: &[Vec<u8>]) -> Vec<Command> {
    let mut commands = vec![words("dbsize")];
    for key in keys {
        let with = |line: &str| {
            let mut command = words(line);
            command.insert(1, key.clone());
            command
        };
        commands.extend([with("type"), with("pttl"), with("get"), with("hgetall")]);
        commands.extend([
            with("lrange 0 -1"),
            with("zrange 0 -1 WITHSCORES"),
            with("smembers"),
        ]);
    }
    commands
}

/// Runs one script on one random state; returns the difference.
pub(crate) fn compare_on_random_state(
    pair: &mut Pair,
    random: &mut Random,
    file: &LuaFile,
) -> Result<(), String> {
    let (keys, args) = file.arguments(random);
    let mut commands = vec![words("flushall")];
    // Sometimes all keys are in states that clients leave; otherwise each key is anything.
    let fits = random.percent(60) && keys.len() == file.keys.len();
    for (at, key) in keys.iter().enumerate() {
        let fitting = match fits {
            true => fitting(random, key, &file.keys[at]),
            false => None,
        };
        commands.extend(fitting.unwrap_or_else(|| state(random, key)));
    }
    let prepared = commands.len();
    let calls = 1 + random.below(3);
    for call in 0..calls {
        let (_, other) = file.arguments(random);
        let mut eval = vec![b"eval".to_vec(), file.body.clone()];
        eval.push(keys.len().to_string().into_bytes());
        eval.extend(keys.iter().cloned());
        // The same arguments again: a repeat after a lost reply; then others.
        let same = call == 0 || random.percent(50) || other.len() != args.len();
        eval.extend(if same { args.clone() } else { other });
        commands.push(eval);
    }
    commands.extend(inspect(&keys));
    let replies = pair.run(0, &commands);
    let tolerance = pair.skew.tolerance();
    let own = &replies[0];
    for (at, (real, embedded)) in own.real.iter().zip(&own.embedded).enumerate() {
        let Some(real) = real else {
            return Err("the server said nothing".into());
        };
        // The members of a set have any order.
        let rule = compare::rule(&commands[at]);
        // A hash has none either when a value is long.
        let hashed = commands[at].first().is_some_and(|word| word == b"hgetall");
        let rule = if hashed { Rule::Unordered(2) } else { rule };
        let scored = commands[at].first().is_some_and(|word| word == b"zrange");
        let equal = compare::equal(rule, real, embedded, tolerance)
            || compare::equal_but_for_times(real, embedded, tolerance)
            || (scored && compare::equal_but_for_scores(real, embedded, tolerance));
        if !equal {
            let what = if at < prepared {
                "state"
            } else {
                "script or what it left"
            };
            let shown: Vec<String> = commands.iter().map(show).collect();
            return Err(format!(
                "{}, {what}, command {at}: redis {real:?}, engine {embedded:?}\n{}",
                file.name,
                shown.join("\n")
            ));
        }
    }
    Ok(())
}

pub(crate) fn show(command: &Command) -> String {
    let quoted = command
        .iter()
        .map(|argument| format!("\"{}\"", argument.escape_ascii()));
    quoted.collect::<Vec<_>>().join(" ")
}

/// The replies of both to one script without keys.
pub(crate) fn conversion(pair: &mut Pair, script: &str) -> (Option<Frame>, Frame) {
    let command: Command = vec![b"eval".to_vec(), script.into(), b"0".to_vec()];
    assert!(pair.embedded[0].send(&encode(&command)));
    let mut embedded = pair.embedded[0].drain();
    assert_eq!(embedded.len(), 1, "{script}");
    pair.real[0].send(&encode(&command));
    (pair.real[0].read(), embedded.remove(0))
}

/// Each is compared on: a hash h (f v), a zset z (a 1.5, b 2), a set s (a).
pub(crate) const CONVERSIONS: &[&str] = &include!("conversions.in");
