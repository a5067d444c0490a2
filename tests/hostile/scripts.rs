//! Scripts that would stop the process, or the engine, if nothing stopped them. Those without end are in the unit
//! tests of redlock-embedded, where the time of a script is short.

use std::time::{Duration, Instant};

use redlock_rt::embedded::{Engine, Session};

use crate::session::answered;

/// Five seconds, and what one slow instruction may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(30);

fn eval(session: &mut Session, script: &str) -> String {
    let len = script.len();
    let command = format!("*3\r\n$4\r\nEVAL\r\n${len}\r\n{script}\r\n$1\r\n0\r\n");
    answered(session, &command)
}

/// The script ends with an error that says this, and the engine goes on.
#[track_caller]
fn assert_stopped(engine: &Engine, script: &str, says: &str) {
    let mut session = engine.connect();
    let began = Instant::now();
    let reply = eval(&mut session, script);
    assert!(
        reply.starts_with('-') && reply.contains(says),
        "{script}: {reply}"
    );
    assert!(
        began.elapsed() < LONGEST,
        "{script} took {:?}",
        began.elapsed()
    );
    assert_eq!(eval(&mut session, "return 7"), ":7\r\n", "after {script}");
}

#[test]
fn what_takes_long_by_itself_is_refused() {
    let engine = Engine::new();
    for (script, says) in [
        ("return string.rep('x', 1e9)", "not enough memory"),
        (
            "return string.rep(string.rep('x', 1e6), 1e6)",
            "not enough memory",
        ),
        (
            "local s = 'x' while true do s = s .. s end",
            "not enough memory",
        ),
        (
            "local t = {} while true do t[#t + 1] = {} end",
            "not enough memory",
        ),
        (
            "return table.concat({string.rep('x', 2^25), string.rep('y', 2^25)})",
            "not enough memory",
        ),
        (
            "local t = {} for _ = 1, 60 do t = {t, t} end return t",
            "returns more",
        ),
        (
            "return string.find(string.rep('a', 40), string.rep('a?', 40) .. string.rep('a', 40))",
            "too long",
        ),
        (
            "return (string.rep('a', 40)):find(string.rep('a-', 40) .. 'b')",
            "too long",
        ),
        (
            "return string.match(string.rep('a', 1e6), '.-.-.-b')",
            "too long",
        ),
        // These took a minute.
        (
            "local s = string.rep('a', 2 ^ 22) return s:find(s:sub(2 ^ 21) .. 'b', 1, true)",
            "too long",
        ),
        (
            "return string.find(string.rep('a', 2 ^ 15), '.*[' .. string.rep('b', 990) .. ']')",
            "too long",
        ),
        // Here the character is no anchor.
        (
            "return string.gmatch(string.rep('^', 2 ^ 20), '^.*x')",
            "too long",
        ),
        (
            "return string.gsub('a', string.rep('a?', 1e5), '')",
            "pattern too long",
        ),
        (
            "for _ in string.gmatch(string.rep('(', 1e5), '%b()%b()') do end",
            "too long",
        ),
        ("return unpack({}, 1, 1e8)", "too many results"),
        // These were heap overflows in an optimised Lua.
        (
            "return unpack({}, 0, 2147483647)",
            "too many results to unpack",
        ),
        (
            "return unpack({}, -2147483648, 2147483647)",
            "too many results to unpack",
        ),
        (
            "return unpack({}, -2147483648, -1)",
            "too many results to unpack",
        ),
        // C reads these modulo 2^32.
        (
            "return unpack({}, 4294967296, 2147483647)",
            "too many results to unpack",
        ),
        ("return unpack({}, 0/0, 1e18)", "too many results to unpack"),
        ("return unpack({}, 1, 7898)", "too many results to unpack"),
        ("return table.insert({}, -2147483648, 1)", "positions up to"),
        ("return table.insert({}, '-1e9', 1)", "positions up to"),
        ("return table.concat({}, '', -1e10)", "positions up to"),
        // Thirty items that Lua counts as a third of a thousand million.
        (
            "local t = {1, 2, nil, 4} for i = 0, 26 do t[5 * 2 ^ i] = 1 end return table.remove(t, 1)",
            "lists and positions up to",
        ),
        (
            "local t = {1, 2, nil, 4} for i = 0, 26 do t[5 * 2 ^ i] = 1 end table.foreachi(t, math.randomseed)",
            "lists and positions up to",
        ),
        (
            "local function f() return 1 + f() end return f()",
            "stack overflow",
        ),
        (
            "local function f() local ok, e = pcall(f) error(e) end return f()",
            "",
        ),
        (
            "local function f(s) return (string.gsub('x', 'x', f)) end return f()",
            "overflow",
        ),
        (
            "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x.y",
            "",
        ),
        ("return loadstring('return ' .. string.rep('(', 1e5))()", ""),
        ("return redis.call('EVAL', 'return 1', 0)", "not allowed"),
        ("return redis.call('SHUTDOWN')", "Unknown Redis command"),
        ("return os.exit()", "nonexistent global variable 'os'"),
        (
            "return io.popen('true')",
            "nonexistent global variable 'io'",
        ),
        (
            "return debug.getregistry()",
            "nonexistent global variable 'debug'",
        ),
    ] {
        assert_stopped(&engine, script, says);
    }
    let mut session = engine.connect();
    assert_eq!(
        eval(&mut session, "return #string.rep('', 2^31 - 1)"),
        ":0\r\n"
    );
    // What is as short as it looks works as ever.
    for (script, reply) in [
        ("return select('#', unpack({}, 1, 7897))", ":7897\r\n"),
        ("return select('#', unpack({}, 1e6, 1e6))", ":1\r\n"),
        // C that checks itself ended the process here, as a build for development does.
        (
            "return select('#', pcall(unpack, {}, 1, 7000))",
            ":7001\r\n",
        ),
        (
            "return {string.find('order:7', '^(%w+):(%d+)$')}",
            "*4\r\n:1\r\n:7\r\n$5\r\norder\r\n$1\r\n7\r\n",
        ),
        ("return ('a,b'):gsub(',', ';')", "$3\r\na;b\r\n"),
        (
            "local n = 0 for _ in string.gmatch(string.rep('a,', 10000), '[^,]+') do n = n + 1 end return n",
            ":10000\r\n",
        ),
        (
            "local t = {3, 1, 2} table.sort(t) return t",
            "*3\r\n:1\r\n:2\r\n:3\r\n",
        ),
        (
            "local t = {} for i = 1, 20000 do t[i] = -i end table.sort(t) return t[1]",
            ":-20000\r\n",
        ),
    ] {
        assert_eq!(eval(&mut session, script), reply, "{script}");
    }
}

#[test]
fn a_script_returns_at_most_262_144_items() {
    let engine = Engine::new();
    let of = |items: usize| {
        format!("local t = {{}} for i = 1, {items} do t[i] = {{}} end return {{t, 1, 2}}")
    };
    // The tables themselves, and two numbers.
    let mut session = engine.connect();
    let reply = eval(&mut session, &of(262_144 - 4));
    assert!(reply.starts_with("*3\r\n*262140\r\n*0\r\n"), "{reply:.40}");
    drop(session);
    assert_stopped(&engine, &of(262_144 - 3), "returns more");
}

#[test]
fn a_thousand_scripts_are_kept_and_then_all_are_forgotten() {
    let engine = Engine::new();
    let mut session = engine.connect();
    let mut ask = |line: &str| answered(&mut session, &format!("{line}\r\n"));
    let mut load = |number: u32| {
        let reply = ask(&format!("SCRIPT LOAD \"return {number}\""));
        reply.lines().nth(1).unwrap().to_owned()
    };
    let digests: Vec<String> = (0..1000).map(&mut load).collect();
    assert_eq!(ask(&format!("EVALSHA {} 0", digests[0])), ":0\r\n");
    // One that is known is no further one.
    ask("EVAL \"return 999\" 0");
    assert_eq!(ask(&format!("EVALSHA {} 0", digests[0])), ":0\r\n");
    assert_eq!(ask("EVAL \"return 1000\" 0"), ":1000\r\n");
    for digest in digests {
        let reply = ask(&format!("EVALSHA {digest} 0"));
        assert!(reply.starts_with("-NOSCRIPT"), "{reply}");
    }
}

#[test]
fn scripts_that_are_kept_do_not_fill_the_memory() {
    let engine = Engine::new();
    let mut session = engine.connect();
    for number in 0..3000 {
        let script = format!("return {number}");
        assert_eq!(eval(&mut session, &script), format!(":{number}\r\n"));
    }
    // Long ones, of which there is room for few. Lua would share a text that several have.
    for number in 0..400 {
        let text = format!("{number}{}", "x".repeat(512 * 1024));
        let script = format!("local s = '{text}' return {number}");
        assert_eq!(eval(&mut session, &script), format!(":{number}\r\n"));
    }
}
