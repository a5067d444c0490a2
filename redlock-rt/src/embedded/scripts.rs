//! Scripts: the Lua state, the cache by digest, one run.

use super::commands::{self, Ctx, Run};
use super::hash::FastMap;
use super::limits::{LUA_MEMORY, MOST_SCRIPTS, SCRIPT_TIME};
use super::lua::{self, Raised};
use super::resp::{Fail, Reply};
use super::scripts_lib;
use super::state::{ScriptRun, State, lock};
use mlua::{
    BString, Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value,
    VmState,
};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const PRELUDE: &str = include_str!("prelude.lua");
/// The number of Lua instructions between two checks of the time. Some take milliseconds each.
const CHECK_EVERY: u32 = 1000;
pub(super) const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const CHUNK_NAME: &str = "@user_script";

type Digest = [u8; 40];

/// The scripts known to an engine, and the Lua state that runs them.
pub(super) struct Scripts {
    state: Arc<Mutex<State>>,
    /// Started by the first script: most of an engine's cost.
    vm: Option<Vm>,
    cache: FastMap<Digest, Function>,
}

struct Vm {
    lua: Lua,
    compile: Function,
    run: Function,
    clock: Arc<Limit>,
}

impl Scripts {
    pub(super) fn new(state: Arc<Mutex<State>>) -> Self {
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
        if self.vm.is_none() {
            let vm = Vm::start(&self.state).map_err(|error| {
                Fail::from(format!(
                    "ERR cannot start Lua: {}",
                    lua::first_line(&error.to_string())
                ))
            })?;
            self.vm = Some(vm);
        }
        self.vm
            .as_ref()
            .ok_or_else(|| Fail::from("ERR cannot start Lua"))
    }

    /// Runs a cached script.
    pub(super) fn run(
        &mut self,
        digest: &[u8],
        client: u64,
        db: usize,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Reply, Fail> {
        let script = parse_digest(digest).and_then(|digest| self.cache.get(&digest));
        let Some((function, vm)) = script.zip(self.vm.as_ref()) else {
            return Err(NO_SCRIPT.into());
        };
        {
            let mut state = lock(&self.state);
            state.db(db).sweep_some();
            state.script = ScriptRun { client, db };
        }
        vm.clock.start();
        let outcome = vm
            .run(function, keys, args)
            .and_then(|outcome| outcome.reply(digest))
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
struct Limit(Mutex<Option<Instant>>);

impl Limit {
    /// Starts a script; its time counts from the first check.
    fn start(&self) {
        *lock(&self.0) = None;
    }

    fn check(&self) -> mlua::Result<VmState> {
        let since = *lock(&self.0).get_or_insert_with(Instant::now);
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

enum Outcome {
    Returned(Value),
    Failed {
        text: Vec<u8>,
        place: Option<String>,
    },
}

impl Outcome {
    fn reply(self, digest: &[u8]) -> mlua::Result<Reply> {
        match self {
            Self::Returned(value) => lua::from_lua(value),
            Self::Failed { mut text, place } => {
                if let Some(place) = place {
                    text.extend_from_slice(b" script: ");
                    text.extend(digest.to_ascii_lowercase());
                    text.extend_from_slice(format!(", on {place}.").as_bytes());
                }
                Ok(Fail::from(text).into())
            }
        }
    }
}

impl Vm {
    fn start(state: &Arc<Mutex<State>>) -> mlua::Result<Self> {
        let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let native = scripts_lib::native(&lua)?;
        let clock = Arc::new(Limit::default());
        let redis: Table = native.raw_get("redis")?;
        for (name, raises) in [("call", true), ("pcall", false)] {
            let state = Arc::clone(state);
            let limit = Arc::clone(&clock);
            let call = lua.create_function(move |lua, args: MultiValue| {
                limit.check()?;
                call(lua, &state, &args, raises)
            })?;
            redis.raw_set(name, call)?;
        }

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

    /// Whether what scripts leave behind takes so much memory that later ones might find too little.
    fn is_filled(&self) -> bool {
        let full = || self.lua.used_memory() > LUA_MEMORY / 2;
        full() && (self.lua.gc_collect().is_err() || full())
    }

    /// `Err` with Lua's message when the code is not Lua.
    fn compile(&self, code: &[u8]) -> mlua::Result<Result<Function, LuaString>> {
        let (function, message): (Option<Function>, Option<LuaString>) =
            self.compile.call((BString::from(code), CHUNK_NAME))?;
        match (function, message) {
            (Some(function), _) => Ok(Ok(function)),
            (None, Some(message)) => Ok(Err(message)),
            (None, None) => Err(mlua::Error::runtime("not compiled")),
        }
    }

    fn run(&self, function: &Function, keys: &[&[u8]], args: &[&[u8]]) -> mlua::Result<Outcome> {
        let list = |items: &[&[u8]]| {
            self.lua
                .create_sequence_from(items.iter().map(|item| BString::from(*item)))
        };
        let (ok, value): (bool, Value) = self.run.call((function, list(keys)?, list(args)?))?;
        if ok {
            return Ok(Outcome::Returned(value));
        }
        Ok(match value {
            Value::Table(error) => {
                let text: LuaString = error.raw_get(1)?;
                let place = error.raw_get(2)?;
                Outcome::Failed {
                    text: text.as_bytes().to_vec(),
                    place,
                }
            }
            // The handler itself failed, as it does when the stack is full.
            other => Outcome::Failed {
                text: format!("ERR {}", other.to_string()?).into(),
                place: None,
            },
        })
    }
}

/// `redis.call` and `redis.pcall`.
fn call(lua: &Lua, state: &Mutex<State>, args: &MultiValue, raises: bool) -> mlua::Result<Value> {
    let reply = lua::arguments(args).and_then(|args| {
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        command(&mut lock(state), &args).map_err(Fail::on_one_line)
    });
    match reply {
        Err(fail) if raises => Err(lua::raise(fail)),
        reply => lua::to_lua(lua, &reply.unwrap_or_else(Reply::from)),
    }
}

fn command(state: &mut State, args: &[&[u8]]) -> Result<Reply, Fail> {
    let command = commands::find_in_script(args)?;
    let ScriptRun { client, db } = state.script;
    let Run::Plain(run) = command.run else {
        return Err("ERR This Redis command is not allowed from script".into());
    };
    if !command.for_scripts() {
        return Err("ERR This Redis command is not allowed from script".into());
    }
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
