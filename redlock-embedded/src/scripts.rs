//! Scripts: the Lua state, the cache by digest, one run.

use super::commands::{self, Command, CommandRun, Ctx};
use super::hash::FastMap;
use super::limits::{LUA_MEMORY, MOST_SCRIPTS, SCRIPT_TIME};
use super::lua::{self, Raised};
use super::resp::{Fail, HEADER, RespReply};
use super::scripts_lib;
use super::state::{ScriptRun, ServerState, lock};
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState,
};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const PRELUDE: &str = include_str!("prelude.lua");
/// The number of Lua instructions between two checks of the time. Some take milliseconds each.
const CHECK_EVERY: u32 = 1000;
/// The same for the words of quick commands. A long word counts as several.
const QUICK_WORDS: usize = 3000;
pub(super) const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const CHUNK_NAME: &str = "@user_script";

type Digest = [u8; 40];

/// The scripts known to an engine, and the Lua state that runs them.
pub(super) struct Scripts {
    state: Arc<Mutex<ServerState>>,
    /// Started by the first script: most of an engine's cost.
    vm: Option<Vm>,
    cache: FastMap<Digest, Function>,
}

struct Vm {
    lua: Lua,
    compile: Function,
    run: Function,
    clock: Arc<ScriptTime>,
}

impl Scripts {
    pub(super) fn new(state: Arc<Mutex<ServerState>>) -> Self {
        Self {
            state,
            vm: None,
            cache: FastMap::default(),
        }
    }

    pub(super) fn flush(&mut self) {
        // A fresh Lua state, as in Redis.
        self.cache.clear();
        self.vm = None;
    }

    pub(super) fn is_cached(&self, digest: &[u8]) -> bool {
        parse_digest(digest).is_some_and(|digest| self.cache.contains_key(&digest))
    }

    /// Compiles a script and keeps it; returns its digest.
    pub(super) fn load(&mut self, body: &[u8]) -> Result<String, Fail> {
        let digest = sha1_smol::Sha1::from(body).digest().to_string();
        let key = parse_digest(digest.as_bytes());
        if let Some(key) = key
            && !self.cache.contains_key(&key)
        {
            if body.starts_with(b"#!") {
                return Err("ERR the embedded engine takes no shebang in front of a script".into());
            }
            if self.cache.len() >= MOST_SCRIPTS {
                self.flush();
            }
            let compiled = self
                .vm()?
                .compile(body)
                .map_err(|error| lua::failure(&error))?;
            let function = compiled.map_err(|message| {
                let mut text = b"ERR Error compiling script (new function): ".to_vec();
                text.extend_from_slice(&message.as_bytes());
                Fail::from(text)
            })?;
            self.cache.insert(key, function);
        }
        Ok(digest)
    }

    fn vm(&mut self) -> Result<&Vm, Fail> {
        match &mut self.vm {
            Some(vm) => Ok(vm),
            none => {
                let failed = |error: mlua::Error| {
                    let error = error.to_string();
                    Fail::from(format!("ERR cannot start Lua: {}", lua::first_line(&error)))
                };
                Ok(none.insert(Vm::start(&self.state).map_err(failed)?))
            }
        }
    }

    /// Runs a cached script.
    pub(super) fn run(
        &mut self,
        digest: &[u8],
        run: ScriptRun,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<RespReply, Fail> {
        let script = parse_digest(digest).and_then(|digest| self.cache.get(&digest));
        let Some((function, vm)) = script.zip(self.vm.as_ref()) else {
            return Err(NO_SCRIPT.into());
        };
        {
            let mut state = lock(&self.state);
            state.db(run.db).sweep_some();
            state.script = run;
        }
        vm.clock.start();
        let outcome = vm
            .run(digest, function, keys, args)
            .map_err(|error| lua::failure(&error));
        if vm.is_filled() {
            tracing::warn!("embedded engine forgets its scripts: they take too much memory");
            self.flush();
        }
        outcome
    }
}

/// How long the present script has been running.
#[derive(Default)]
struct ScriptTime(Mutex<ScriptProgress>);

#[derive(Default)]
struct ScriptProgress {
    since: Option<Instant>,
    /// Words of quick commands since the clock was read.
    quick: usize,
}

impl ScriptTime {
    /// Starts a script; its time counts from the first check.
    fn start(&self) {
        *lock(&self.0) = ScriptProgress::default();
    }

    /// Checks before a quick command. Such a command takes less time than reading the clock, unless
    /// it has many words or long ones.
    fn check_quick(&self, words: &[&[u8]]) -> mlua::Result<VmState> {
        let work: usize = words.iter().map(|word| 1 + word.len() / 256).sum();
        let mut running = lock(&self.0);
        running.quick += work;
        if running.quick < QUICK_WORDS {
            return Ok(VmState::Continue);
        }
        drop(running);
        self.check()
    }

    fn check(&self) -> mlua::Result<VmState> {
        let mut running = lock(&self.0);
        running.quick = 0;
        let Some(since) = running.since else {
            running.since = Some(Instant::now());
            return Ok(VmState::Continue);
        };
        drop(running);
        if since.elapsed() < SCRIPT_TIME {
            return Ok(VmState::Continue);
        }
        let text = format!(
            "ERR script stopped after {} ms, the limit of the embedded engine",
            SCRIPT_TIME.as_millis()
        );
        Err(mlua::Error::external(Raised {
            text: text.into_bytes().into(),
            fatal: true,
        }))
    }
}

impl Vm {
    fn start(state: &Arc<Mutex<ServerState>>) -> mlua::Result<Self> {
        let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let native = scripts_lib::native(&lua)?;
        let clock = Arc::new(ScriptTime::default());
        let redis: Table = native.raw_get("redis")?;
        for (name, raises) in [("call", true), ("pcall", false)] {
            let caller = RedisFunction {
                state: Arc::clone(state),
                limit: Arc::clone(&clock),
                raises,
            };
            let call = lua.create_function(move |lua, args: MultiValue| caller.call(lua, &args))?;
            redis.raw_set(name, call)?;
        }

        let limit = Arc::clone(&clock);
        let look = lua.create_function(move |_, ()| limit.check().map(drop))?;
        native.raw_set("look", look)?;
        let (compile, run): (Function, Function) =
            lua.load(PRELUDE).set_name("=prelude").call(native)?;

        let limit = Arc::clone(&clock);
        let triggers = HookTriggers::new().every_nth_instruction(CHECK_EVERY);
        lua.set_global_hook(triggers, move |_, _| limit.check())?;
        lua.set_memory_limit(LUA_MEMORY)?;
        Ok(Self {
            lua,
            compile,
            run,
            clock,
        })
    }

    /// Whether the memory that scripts have left in use may be too much for later ones.
    fn is_filled(&self) -> bool {
        let full = || self.lua.used_memory() > LUA_MEMORY / 2;
        full() && (self.lua.gc_collect().is_err() || full())
    }

    /// `Err` with Lua's message when the code is not Lua.
    fn compile(&self, code: &[u8]) -> mlua::Result<Result<Function, LuaString>> {
        // The time of the script before this is over.
        self.clock.start();
        let (function, message): (Option<Function>, Option<LuaString>) =
            self.compile.call((lua::word(code), CHUNK_NAME))?;
        match (function, message) {
            (Some(function), _) => Ok(Ok(function)),
            (None, Some(message)) => Ok(Err(message)),
            (None, None) => Err(mlua::Error::runtime("not compiled")),
        }
    }

    fn run(
        &self,
        digest: &[u8],
        function: &Function,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> mlua::Result<RespReply> {
        let list = |words: &[&[u8]]| {
            let size = words.iter().map(|word| word.len() + HEADER).sum();
            lua::quickly(&self.lua, size, || {
                let words = words.iter().map(|word| lua::word(word));
                self.lua.create_sequence_from(words)
            })
        };
        let lists = (function, list(keys)?, list(args)?);
        let (ok, value, first, second, third): (bool, Value, Value, Value, Value) =
            self.run.call(lists)?;
        match (ok, first, value) {
            (true, Value::Nil, value) => lua::from_lua(value),
            // The first items of a short list.
            (true, first, _) => lua::from_list([first, second, third]),
            (false, _, Value::Table(error)) => {
                let text: LuaString = error.raw_get(1)?;
                let mut text = text.as_bytes().to_vec();
                if let Some(place) = error.raw_get::<Option<String>>(2)? {
                    text.extend_from_slice(b" script: ");
                    text.extend(digest.to_ascii_lowercase());
                    text.extend_from_slice(format!(", on {place}.").as_bytes());
                }
                Ok(Fail::from(text).into())
            }
            // The handler itself failed, as it does when the stack is full.
            (false, _, other) => Ok(Fail::from(format!("ERR {}", other.to_string()?)).into()),
        }
    }
}

/// `redis.call` or `redis.pcall`.
struct RedisFunction {
    state: Arc<Mutex<ServerState>>,
    limit: Arc<ScriptTime>,
    raises: bool,
}

impl RedisFunction {
    fn call(&self, lua: &Lua, args: &MultiValue) -> mlua::Result<Value> {
        let args = match lua::arguments(args) {
            Ok(args) => args,
            Err(fail) => return self.fail(lua, fail),
        };
        match &args[..] {
            // Most calls have as few words as this.
            [a] => self.run(lua, &[a]),
            [a, b] => self.run(lua, &[a, b]),
            [a, b, c] => self.run(lua, &[a, b, c]),
            [a, b, c, d] => self.run(lua, &[a, b, c, d]),
            more => {
                let words: Vec<&[u8]> = more.iter().map(|word| &**word).collect();
                self.run(lua, &words)
            }
        }
    }

    fn run(&self, lua: &Lua, words: &[&[u8]]) -> mlua::Result<Value> {
        let command = match commands::find_in_script(words) {
            Ok(command) => command,
            Err(fail) => return self.fail(lua, fail.on_one_line()),
        };
        if command.has(commands::QUICK) {
            self.limit.check_quick(words)?;
        } else {
            self.limit.check()?;
        }
        let reply = run_command(&mut lock(&self.state), command, words);
        match reply {
            Ok(reply) => lua::to_lua(lua, &reply),
            Err(fail) => self.fail(lua, fail.on_one_line()),
        }
    }

    fn fail(&self, lua: &Lua, fail: Fail) -> mlua::Result<Value> {
        if self.raises {
            return Err(lua::raise(fail));
        }
        lua::to_lua(lua, &fail.into())
    }
}

fn run_command(
    state: &mut ServerState,
    command: &Command,
    args: &[&[u8]],
) -> Result<RespReply, Fail> {
    let ScriptRun { client, db } = state.script;
    let run = match command.run {
        CommandRun::Plain(run) if !command.has(commands::NO_SCRIPT) => run,
        _ => return Err("ERR This Redis command is not allowed from script".into()),
    };
    let mut ctx = Ctx { state, client, db };
    let reply = run(&mut ctx, args);
    let db = ctx.db;
    state.script.db = db;
    reply
}

fn parse_digest(text: &[u8]) -> Option<Digest> {
    let mut digest: Digest = text.try_into().ok()?;
    digest.make_ascii_lowercase();
    Some(digest)
}
