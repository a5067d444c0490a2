-- Builds the globals that scripts see, and the function that runs a script.
--
-- Stock Lua 5.1 has no read-only tables, so scripts get proxies: reads fall through to the real
-- tables, writes are refused. Errors from Rust arrive here as userdata; the catchers below turn
-- them into errors as in Redis 7.0: a table with `err`, or its text from pcall.
local native = ...
local explain, where = native.explain, native.where
local raw_pcall, raw_xpcall, raw_resume = pcall, xpcall, coroutine.resume
local raw_setmetatable, raw_rawset = setmetatable, rawset
local raw_loadstring, setfenv = loadstring, setfenv
local raw_getmetatable = getmetatable
local error, type, tostring, rawget, select = error, type, tostring, rawget, select

local globals = {}
local protected = {}
local READ_ONLY = 'Attempt to modify a readonly table'

local function protect(real)
  local proxy = raw_setmetatable({}, {
    __index = real,
    __newindex = function() error(READ_ONLY, 2) end,
    __metatable = false,
  })
  protected[proxy] = true
  return proxy
end

-- A script that ran out of time must not catch that and continue.
local function caught(e)
  if type(e) ~= 'userdata' then return e end
  local text, fatal, is_reply = explain(e)
  if fatal then error(e, 0) end
  if is_reply then return {err = text} end
  return text
end

local function settle(ok, ...)
  if ok then return true, ... end
  return false, (caught((...)))
end

local function settle_text(ok, ...)
  if ok then return true, ... end
  local e = caught((...))
  if type(e) == 'table' then
    local text = rawget(e, 'err')
    if type(text) == 'string' then e = text end
  end
  return false, e
end

local function settle_raw(ok, e, ...)
  if not ok and type(e) == 'userdata' then error(e, 0) end
  return ok, e, ...
end

local redis = {}
for name, value in pairs(native.redis) do redis[name] = value end
redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3
function redis.replicate_commands() return true end

local function single_field(field)
  return function(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then
      return {err = 'ERR wrong number or type of arguments'}
    end
    return {[field] = text}
  end
end
redis.status_reply = single_field('ok')
local error_field = single_field('err')
function redis.error_reply(...)
  local reply = error_field(...)
  if reply.err == ... then
    local text = string.gsub(reply.err, '^%-', '')
    if not string.find(text, ' ', 1, true) then text = 'ERR ' .. text end
    reply.err = text
  end
  return reply
end

for _, name in ipairs {
  'assert', 'error', 'gcinfo', 'ipairs', 'next', 'pairs', 'rawequal', 'rawget', 'select',
  'tonumber', 'tostring', 'type', 'unpack', '_VERSION',
} do
  globals[name] = _G[name]
end

function globals.getmetatable(object)
  local meta = getmetatable(object)
  return meta or nil
end
function globals.setmetatable(object, meta)
  if protected[object] then error(READ_ONLY, 0) end
  return raw_setmetatable(object, meta)
end
function globals.rawset(object, key, value)
  if protected[object] then error(READ_ONLY, 0) end
  return raw_rawset(object, key, value)
end
function globals.collectgarbage(what, ...)
  -- Ignores options whose effect would outlast the script.
  if what ~= nil and what ~= 'collect' and what ~= 'count' and what ~= 'step' then return 0 end
  return collectgarbage(what, ...)
end
function globals.pcall(f, ...) return settle_text(raw_pcall(f, ...)) end
function globals.xpcall(f, handler)
  return settle_raw(raw_xpcall(f, function(e)
    if type(e) == 'userdata' then
      local text, fatal, is_reply = explain(e)
      if fatal then return e end
      e = is_reply and {err = text} or text
    end
    return handler(e)
  end))
end
local environment
local function compile(text, name)
  -- Text only: Lua 5.1 does not verify bytecode, which starts with this byte.
  if string.byte(text) == 27 then text = ' ' .. text end
  local f, message = raw_loadstring(text, name)
  if f then setfenv(f, environment) end
  return f, message
end
function globals.loadstring(text, name)
  text = tostring(text)
  return compile(text, name or text)
end
function globals.load(pieces, name)
  local text = {}
  while true do
    local piece = pieces()
    if piece == nil or piece == '' then break end
    if type(piece) ~= 'string' then return nil, 'reader function must return a string' end
    text[#text + 1] = piece
  end
  return globals.loadstring(table.concat(text), name or '=(load)')
end

local coroutines = {}
for name, value in pairs(coroutine) do coroutines[name] = value end
function coroutines.resume(...) return settle(raw_resume(...)) end

-- The hook that stops a script is called between instructions, so no function of C may take long
-- by itself. Lua 5.1 matches patterns by backtracking, on the stack of C.
local strings, tables = {}, {}
for name, value in pairs(string) do strings[name] = value end
for name, value in pairs(table) do tables[name] = value end
local raw_gsub, raw_sort, raw_find = string.gsub, table.sort, string.find
local LONGEST_PATTERN, MOST_STEPS, LONGEST_LIST = 1000, 2e9, 10000

-- The texts of C, which would name a function of this file.
local function check_type(at, name, ...)
  local value = select(at, ...)
  local is = at > select('#', ...) and 'no value' or type(value)
  if is ~= 'string' and is ~= 'number' then
    local text = "bad argument #%d to '%s' (string expected, got %s)"
    error(string.format(text, at, name, is), 4)
  end
end
local function check_pattern(name, ...)
  check_type(1, name, ...)
  check_type(2, name, ...)
  local text, pattern = ...
  text, pattern = tostring(text), tostring(pattern)
  if #pattern > LONGEST_PATTERN then
    error('pattern too long (the embedded engine takes ' .. LONGEST_PATTERN .. ' bytes)', 3)
  end
  local _, repeats = raw_gsub(pattern, '[*+?-]', '')
  local _, balances = raw_gsub(pattern, '%%b', '')
  -- From each place in the text, each repetition may end at each place.
  local tries = repeats + balances + (string.byte(pattern) == 94 and 0 or 1)
  if (#text + 1) ^ tries > MOST_STEPS then
    error('matching the pattern may take too long (for the embedded engine)', 3)
  end
end
function strings.find(...)
  local _, _, _, plain = ...
  if not plain then check_pattern('find', ...) end
  return raw_find(...)
end
for _, name in ipairs {'match', 'gmatch', 'gsub'} do
  local raw = string[name]
  strings[name] = function(...)
    check_pattern(name, ...)
    return raw(...)
  end
end
strings.gfind = strings.gfind and strings.gmatch
strings.rep = native.rep
function tables.sort(list, less, ...)
  -- Some long lists take a time that grows with the square of their length.
  if less == nil and type(list) == 'table' and #list > LONGEST_LIST then
    less = function(a, b) return a < b end
  end
  return raw_sort(list, less, ...)
end

globals.redis = protect(redis)
globals.string = protect(strings)
globals.table = protect(tables)
globals.math = protect(math)
globals.coroutine = protect(coroutines)
getmetatable('').__index = strings
getmetatable('').__metatable = protect({__index = globals.string})

local not_here = {bit = true, cjson = true, cmsgpack = true, struct = true}
raw_setmetatable(globals, {
  __index = function(_, name)
    local text = "Script attempted to access nonexistent global variable '" .. tostring(name) .. "'"
    if not_here[name] then text = text .. " (the embedded engine has no '" .. name .. "')" end
    error(text, 2)
  end,
})
environment = protect(globals)
raw_rawset(globals, '_G', environment)
raw_rawset(globals, 'KEYS', {})
raw_rawset(globals, 'ARGV', {})

local function describe(e)
  if type(e) == 'userdata' then
    local text, _, is_reply = explain(e)
    e = is_reply and text or 'ERR ' .. text
  elseif type(e) == 'table' then
    e = rawget(e, 'err')
    if type(e) ~= 'string' then e = 'ERR unknown error' end
  else
    e = 'ERR ' .. tostring(e)
  end
  local source, line = where()
  return {e, source and source .. ':' .. line}
end

-- A short list is returned as its items, which are handed over quicker: behind a nil, so that they
-- are told from another value, which stands there by itself.
local function shorten(ok, value)
  if not ok or type(value) ~= 'table' or raw_getmetatable(value) ~= nil then return ok, value end
  local a, b, c = value[1], value[2], value[3]
  if a == nil or value[4] ~= nil or value.ok ~= nil or value.err ~= nil or value.double ~= nil
    or value.map ~= nil or value.set ~= nil or value.big_number ~= nil
    or value.verbatim_string ~= nil
  then
    return ok, value
  end
  return ok, nil, a, b, c
end

local function run(f, keys, argv)
  globals.KEYS, globals.ARGV = keys, argv
  return shorten(raw_xpcall(f, describe))
end

return compile, run
