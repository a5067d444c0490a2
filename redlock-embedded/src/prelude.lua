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

-- A script that has exceeded its time must not catch the error and continue.
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

-- C's `pcall` ends the process, where C has assertions, if the function returns more than 20 values:
-- it then has no room for its own value. So all values are packed into one here. In C the function has
-- only this name, and its caller has no place.
local function gather(...) return {n = select('#', ...), ...} end
local function call(named, ...) return gather(named['?'](...)) end
local function gathering(f)
  if type(f) ~= 'function' and type(f) ~= 'table' then return f end
  return function(...) return call({['?'] = f}, ...) end
end
local function placeless(e)
  return type(e) == 'string' and string.gsub(e, '^prelude:%d+: ', '') or e
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
  'tonumber', 'tostring', 'type', '_VERSION',
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
function globals.pcall(f, ...)
  local ok, e = raw_pcall(gathering(f), ...)
  if ok then return true, unpack(e, 1, e.n) end
  e = placeless(caught(e))
  if type(e) == 'table' then
    local text = rawget(e, 'err')
    if type(text) == 'string' then e = text end
  end
  return false, e
end
function globals.xpcall(f, handler)
  local ok, e = raw_xpcall(gathering(f), function(e)
    if type(e) == 'userdata' then
      local text, fatal, is_reply = explain(e)
      if fatal then return e end
      e = is_reply and {err = text} or text
    end
    return handler(placeless(e))
  end)
  if ok then return true, unpack(e, 1, e.n) end
  if type(e) == 'userdata' then error(e, 0) end
  return false, e
end
-- Work in C that is not counted in instructions: after this much of it the time is checked.
local spent = 0
local function spend(steps)
  spent = spent + steps
  if spent < 1e6 then return end
  spent = 0
  native.look()
end
local environment
local function compile(text, name)
  spend(#text)
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

-- The hook that stops a script is called between instructions, so no C function may take long on its
-- own. Lua 5.1 matches patterns by backtracking, on the C stack.
local strings, tables = {}, {}
for name, value in pairs(string) do strings[name] = value end
for name, value in pairs(table) do tables[name] = value end
local raw_gsub, raw_sort, raw_find = string.gsub, table.sort, string.find
local LONGEST_PATTERN, MOST_STEPS, LONGEST_LIST = 1000, 4e9, 10000

local function spend_text(_, text)
  if type(text) == 'string' then spend(#text) end
end
for _, name in ipairs {'lower', 'reverse', 'upper'} do
  strings[name] = native.checked(name, spend_text, string[name])
end
redis.sha1hex = native.checked('sha1hex', spend_text, redis.sha1hex)

-- C's own texts would name a function of this file.
local function check_type(at, name, expected, ...)
  local value = select(at, ...)
  local is = at > select('#', ...) and 'no value' or type(value)
  local converts = (expected == 'string' or expected == 'number') and tonumber(value) ~= nil
  if is == expected or converts then return end
  local text = "bad argument #%d to '%s' (%s expected, got %s)"
  error(string.format(text, at, name, expected, is), 4)
end
local function check_pattern(name, ...)
  check_type(1, name, 'string', ...)
  check_type(2, name, 'string', ...)
  local text, pattern = ...
  text, pattern = tostring(text), tostring(pattern)
  if #pattern > LONGEST_PATTERN then
    error('pattern too long (the embedded engine takes ' .. LONGEST_PATTERN .. ' bytes)', 3)
  end
  local _, repeats = raw_gsub(pattern, '[*+?-]', '')
  local _, balances = raw_gsub(pattern, '%%b', '')
  -- From each place in the text, each repetition may end at each place, and the rest of the pattern is
  -- compared there.
  local anchored = name ~= 'gmatch' and string.byte(pattern) == 94
  local tries = repeats + balances + (anchored and 0 or 1)
  local steps = (#text + 1) ^ tries * #pattern
  if steps > MOST_STEPS then
    error('matching the pattern may take too long (for the embedded engine)', 3)
  end
  spend(steps)
end
-- Plain text is compared at each place, 16 bytes at a time.
local function check_plain(...)
  check_type(1, 'find', 'string', ...)
  check_type(2, 'find', 'string', ...)
  local text, part = ...
  local steps = #tostring(text) * (1 + #tostring(part) / 16)
  if steps > MOST_STEPS then
    error('finding the text may take too long (for the embedded engine)', 3)
  end
  spend(steps)
end
function strings.find(...)
  local _, _, _, plain = ...
  if plain then check_plain(...) else check_pattern('find', ...) end
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

-- For lists and positions, C computes with 32-bit ints. Optimisers assume that these never overflow, and
-- an overflow made `unpack` write beyond the stack. Also, a list with gaps may be longer than the memory
-- allows. So both are checked first. Here are the argument types of each function that takes a list; a
-- 'number' is a position. (`select`, `string.byte` and `string.sub` cut a range to the existing
-- items.)
local ARGUMENTS = {
  concat = {'table', 'string', 'number', 'number'}, foreach = {'table', 'function'},
  foreachi = {'table', 'function'}, getn = {'table'}, insert = {'table', 'number'}, maxn = {'table'},
  remove = {'table', 'number'}, sort = {'table', 'function'}, unpack = {'table', 'number', 'number'},
}
-- C takes somewhat more results, including the arguments.
local MOST_ITEMS, MOST_RESULTS = 2 ^ 22, 7900
local function check_list(name, ...)
  local list, from, to = ...
  check_type(1, name, 'table', ...)
  local fits = #list <= MOST_ITEMS
  for at = 2, #ARGUMENTS[name] do
    local expected, value = ARGUMENTS[name][at], select(at, ...)
    -- `insert` has a position only if the item follows it.
    local given = value ~= nil or expected == 'function' and name ~= 'sort'
    if given and (name ~= 'insert' or select('#', ...) > 2) then
      check_type(at, name, expected, ...)
      -- A value that is not a number cannot be compared with one.
      fits = fits and (expected ~= 'number' or math.abs(value) <= MOST_ITEMS)
    end
  end
  local text = "'%s' takes lists and positions up to %d (in the embedded engine)"
  if name == 'unpack' then
    local results = fits and (to or #list) - (from or 1) + 1
    fits = fits and results + select('#', ...) <= MOST_RESULTS
    text = 'too many results to unpack'
  end
  if not fits then error(string.format(text, name, MOST_ITEMS), 3) end
  -- `concat` copies more than its items.
  spend(#list + (name == 'concat' and 1e5 or 0))
end
local raws = {
  unpack = unpack,
  sort = function(list, less, ...)
    -- Sorting some long lists takes quadratic time.
    if less == nil and #list > LONGEST_LIST then
      less = function(a, b) return a < b end
    end
    return raw_sort(list, less, ...)
  end,
}
for name, arguments in pairs(ARGUMENTS) do
  local raw = raws[name] or table[name]
  -- A function that calls back into the script must pass its errors on unchanged.
  tables[name] = arguments[2] ~= 'function' and native.checked(name, check_list, raw)
    or function(...)
      check_list(name, ...)
      return raw(...)
    end
end
globals.unpack, tables.unpack = tables.unpack, nil

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

-- A short list is returned as its items, which are passed faster. They follow a nil, so that they differ
-- from another value, which is returned alone.
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
