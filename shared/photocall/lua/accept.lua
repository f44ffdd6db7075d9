-- A new job: record, idempotency entry, image references, byte budget, index entry, and the way on, all or nothing.
-- KEYS  10 idempotency entry (or the job's own key when there is none)  11 the owner's index  12 engine stream
--       13 the session (or the job's own key when it is no turn)
-- ARGV  10 owner  11 request hash  12 max share of maxmemory  13 max jobs  14 max jobs of the owner  15 max bytes
--       16 max bytes of the owner  17 body bytes  18 deadline  19 created at  20 outbox grace
--       21 engine message ('' = goes to prep)  22 image hashes, by blanks  23 max turns waiting  24 max turns
--       25... HSET pairs of the record
-- Gives {'created', id} | {'replay', id} | {'mismatch'} | {'memory', used, allowed} | {'depth', limit, held, allowed}
--       | {'image', hash} | {'session'} | {'full', limit, held, allowed}

local IDEMPOTENCY, INDEX, STREAM, SESSION = KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local owner, request_hash, share = ARGV[10], ARGV[11], tonumber(ARGV[12])
local body_bytes, deadline, created_at, engine_message = tonumber(ARGV[17]), ARGV[18], ARGV[19], ARGV[21]

if IDEMPOTENCY ~= JOB then
  local known = redis.call('HMGET', IDEMPOTENCY, 'job', 'hash')
  if known[1] then
    if known[2] == request_hash then return { 'replay', known[1] } end
    return { 'mismatch' }
  end
end
if redis.call('EXISTS', JOB) == 1 then return { 'replay', job_id } end

local memory = redis.call('INFO', 'memory')
local used = tonumber(string.match(memory, 'used_memory:(%d+)'))
local allowed = math.floor(tonumber(string.match(memory, 'maxmemory:(%d+)')) * share)
if allowed > 0 and used > allowed then return { 'memory', used, allowed } end

local bounds = {
  { 'jobs', 'jobs', 1, tonumber(ARGV[13]) }, { 'jobs of this key', 'jobs:' .. owner, 1, tonumber(ARGV[14]) },
  { 'bytes', 'bytes', body_bytes, tonumber(ARGV[15]) },
  { 'bytes of this key', 'bytes:' .. owner, body_bytes, tonumber(ARGV[16]) },
}
for _, bound in ipairs(bounds) do
  local held = tonumber(redis.call('HGET', DEPTH, bound[2]) or '0')
  if held + bound[3] > bound[4] then return { 'depth', bound[1], held, bound[4] } end
end

for sha in string.gmatch(ARGV[22], '%S+') do
  if redis.call('HEXISTS', image_prefix .. sha, 'owner:' .. owner) == 0 then return { 'image', sha } end
end

if SESSION ~= JOB then
  if redis.call('HGET', SESSION, 'owner') ~= owner then return { 'session' } end
  local waiting = redis.call('LLEN', SESSION .. ':line')
  if waiting >= tonumber(ARGV[23]) then return { 'depth', 'turns of this session', waiting, tonumber(ARGV[23]) } end
  local turns = redis.call('LLEN', SESSION .. ':transcript')
  if turns >= tonumber(ARGV[24]) then return { 'full', 'turns', turns, tonumber(ARGV[24]) } end
end

redis.call('HSET', JOB, unpack(ARGV, 25))
if SESSION ~= JOB then
  redis.call('HSET', JOB, 'turn', redis.call('HINCRBY', SESSION, 'turns', 1))
  redis.call('RPUSH', SESSION .. ':line', job_id)
  for _, part in ipairs({ '', ':transcript', ':events', ':notices' }) do redis.call('PERSIST', SESSION .. part) end
end
for sha in string.gmatch(ARGV[22], '%S+') do
  redis.call('HINCRBY', image_prefix .. sha, 'refs', 1)
  redis.call('PERSIST', image_prefix .. sha)
end
for _, bound in ipairs(bounds) do redis.call('HINCRBY', DEPTH, bound[2], bound[3]) end
redis.call('ZADD', DEADLINES, deadline, job_id)
redis.call('ZADD', INDEX, created_at, job_id)
if IDEMPOTENCY ~= JOB then redis.call('HSET', IDEMPOTENCY, 'job', job_id, 'hash', request_hash) end
if engine_message == '' then
  redis.call('ZADD', OUTBOX, now + tonumber(ARGV[20]), job_id)
else
  offer(STREAM, engine_message)
end
return { 'created', job_id }
