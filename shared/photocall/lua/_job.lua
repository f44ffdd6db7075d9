-- Prepended to every script about one job.
-- KEYS  1 job  2 events  3 tombstone  4 leases  5 deadlines  6 outbox  7 depth  8 ended  9 counters
-- ARGV  1 now ('' = the server's clock)  2 job id  3 lease seconds  4 job ttl  5 tombstone ttl  6 image ttl
--       7 image key prefix  8 event limit  9 wake channel
-- A script's own keys start at KEYS[10], its own arguments at ARGV[10].
--
-- A turn of a session has the session's key in its field `session`, and stands in the session's line; the session's other
-- keys begin with that key (keys.py).
--
-- Order of writes: Redis checks for memory at a script's first write only, and only at commands that need memory. So a
-- script that must pass when memory is full starts with a removal, and one that must fail whole starts with an HSET.

local JOB, EVENTS, TOMBSTONE, LEASES, DEADLINES = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local OUTBOX, DEPTH, ENDED, COUNTERS = KEYS[6], KEYS[7], KEYS[8], KEYS[9]

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local job_id, lease_s, job_ttl, tombstone_ttl = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local image_ttl, image_prefix, event_limit, wake_channel = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local LIVE = { queued = true, preparing = true, running = true, cancelling = true }

local function get(field)
  return redis.call('HGET', JOB, field)
end

local function number(field)
  return tonumber(get(field) or '0')
end

-- The key of the session that the job is a turn of; nothing for another job, or when the session is gone.
local function session_of()
  local session = get('session')
  if session and session ~= '' and redis.call('EXISTS', session) == 1 then return session end
end

-- Whoever waits reads again.
local function wake()
  redis.call('PUBLISH', wake_channel, job_id)
  local session = get('session')
  if session and session ~= '' then redis.call('PUBLISH', wake_channel, string.match(session, '[^:]+$')) end
end

-- The record changed: a new ETag, too.
local function changed()
  redis.call('HINCRBY', JOB, 'version', 1)
  wake()
end

local function emit(event)
  if event and event ~= '' then
    redis.call('XADD', EVENTS, 'MAXLEN', '=', event_limit, '*', 'm', event)
    local session = session_of()
    if session then
      redis.call('XADD', session .. ':events', 'MAXLEN', '=', event_limit, '*', 'm', event)
      local ttl = redis.call('TTL', session) -- none while a turn is unfinished
      if ttl > 0 then redis.call('EXPIRE', session .. ':events', ttl) end
    end
  end
end

-- The stream of the engine that holds a prefix, as the hash `place` says, while that engine lives; else the stream given.
local function nearest(place, stream)
  local held = redis.call('HMGET', place, 'stream', 'heartbeat')
  if held[1] and redis.call('EXISTS', held[2]) == 1 then return held[1] end
  return stream
end

-- Offer the job to the engines. A turn behind others of its session is kept back until `leave_line` calls it.
local function offer(stream, message)
  local session = session_of()
  if session then
    if redis.call('LINDEX', session .. ':line', 0) ~= job_id then
      redis.call('HSET', JOB, 'offer', message, 'offer_to', stream)
      return
    end
    stream = nearest(session .. ':held', stream)
  end
  redis.call('XADD', stream, '*', 'm', message)
end

-- A turn is over: the next one of its session goes to the engines, if it is ready for them.
local function leave_line()
  local session = session_of()
  if not session then return end
  redis.call('LREM', session .. ':line', 0, job_id)
  local next_id = redis.call('LINDEX', session .. ':line', 0)
  if next_id then
    local next_job = string.sub(JOB, 1, #JOB - #job_id) .. next_id
    local kept_back = redis.call('HMGET', next_job, 'offer', 'offer_to')
    if kept_back[1] then
      redis.call('HDEL', next_job, 'offer', 'offer_to')
      redis.call('XADD', nearest(session .. ':held', kept_back[2]), '*', 'm', kept_back[1])
    end
  else
    for _, part in ipairs({ '', ':transcript', ':events', ':notices' }) do
      redis.call('EXPIRE', session .. part, redis.call('HGET', session, 'ttl_s'))
    end
  end
end

-- True when `fence` is that of the lease now held.
local function holds(fence)
  return LIVE[get('status') or ''] and get('fence') == fence and number('lease_until') > 0
end

local function take_lease_until()
  local ends = math.min(now + lease_s, number('deadline_at'))
  redis.call('HSET', JOB, 'lease_until', ends)
  redis.call('ZADD', LEASES, ends, job_id)
end

local function drop_lease()
  redis.call('ZREM', LEASES, job_id)
  redis.call('HSET', JOB, 'lease_until', '0')
end

local function release_images()
  for sha in string.gmatch(get('images') or '', '%S+') do
    local key = image_prefix .. sha
    if redis.call('EXISTS', key) == 1 and redis.call('HINCRBY', key, 'refs', -1) <= 0 then
      local dropped = redis.call('HGET', key, 'dropped')
      if dropped then -- every owner has dropped it meanwhile; see drop_image.lua
        redis.call('DEL', key)
        redis.call('ZADD', dropped, now, sha)
      else
        redis.call('EXPIRE', key, image_ttl)
      end
    end
  end
end

-- `0 - bytes`: the negative of 0 is "-0" to some servers, and then no integer.
local function leave_depth()
  local owner, bytes = get('owner'), number('body_bytes')
  for _, field in ipairs({ 'jobs', 'jobs:' .. owner }) do
    if redis.call('HINCRBY', DEPTH, field, -1) <= 0 then redis.call('HDEL', DEPTH, field) end
  end
  for _, field in ipairs({ 'bytes', 'bytes:' .. owner }) do
    if redis.call('HINCRBY', DEPTH, field, 0 - bytes) <= 0 then redis.call('HDEL', DEPTH, field) end
  end
end

-- The job's webhook: what is owed is written with the end of the job.
local function owe(status)
  local hook = redis.call('HMGET', JOB, 'webhook', 'webhook_line', 'webhook_url', 'webhook_events', 'webhook_kept_s')
  if not hook[1] then return end
  local event = 'job.' .. status
  if hook[4] ~= '' and not string.find(' ' .. hook[4] .. ' ', ' ' .. event .. ' ', 1, true) then return end
  redis.call('HSET', hook[1], 'owner', get('owner'), 'url', hook[3], 'event', event, 'job', job_id, 'created_at', now,
    'attempts', 0, 'state', 'pending')
  redis.call('EXPIRE', hook[1], hook[5])
  redis.call('ZADD', hook[2], now, job_id)
end

-- The one way into a terminal state; the caller has checked that the job is live. `fields` are further HSET pairs.
local function finish(status, fields)
  redis.call('HSET', JOB, 'status', status, 'completed_at', now, 'expires_at', now + job_ttl, 'lease_until', '0',
    unpack(fields))
  redis.call('ZREM', LEASES, job_id)
  redis.call('ZREM', DEADLINES, job_id)
  redis.call('ZREM', OUTBOX, job_id)
  redis.call('HDEL', JOB, 'prepared', 'offer', 'near')
  -- `keeps_ask`: so many bytes of it at most, for they are in nobody's byte budget any more
  if status ~= 'succeeded' or redis.call('HSTRLEN', JOB, 'ask') > number('keeps_ask') then redis.call('HDEL', JOB, 'ask') end
  leave_depth()
  release_images()
  redis.call('EXPIRE', JOB, job_ttl)
  redis.call('EXPIRE', EVENTS, job_ttl)
  redis.call('SET', TOMBSTONE, get('owner') .. '/' .. get('created_at'), 'EX', job_ttl + tombstone_ttl)
  redis.call('ZADD', ENDED, now + job_ttl, get('owner') .. '/' .. job_id)
  local idempotency = get('idempotency')
  if idempotency and idempotency ~= '' then redis.call('EXPIRE', idempotency, job_ttl) end
  leave_line()
  owe(status)
  changed()
end

-- Ends a job that was being cancelled, whatever its holder wanted to write, with the reason that was given first.
local function finish_cancelled(error, error_event, idle_event)
  redis.call('ZREM', LEASES, job_id)
  error = get('cancel_error') or error
  emit(get('cancel_event') or error_event)
  emit(idle_event)
  finish('cancelled', { 'error', error })
end
