-- Prepended to every script about one job.
-- KEYS  1 job  2 events  3 tombstone  4 leases  5 deadlines  6 outbox  7 depth  8 ended  9 counters
-- ARGV  1 now ('' = the server's clock)  2 job id  3 lease seconds  4 job ttl  5 tombstone ttl  6 image ttl
--       7 image key prefix  8 event limit  9 wake channel
-- A script's own keys start at KEYS[10], its own arguments at ARGV[10].
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

-- The record changed: a new ETag, and whoever waits reads again.
local function changed()
  redis.call('HINCRBY', JOB, 'version', 1)
  redis.call('PUBLISH', wake_channel, job_id)
end

local function emit(event)
  if event and event ~= '' then
    redis.call('XADD', EVENTS, 'MAXLEN', '=', event_limit, '*', 'm', event)
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
      redis.call('EXPIRE', key, image_ttl)
    end
  end
end

local function leave_depth()
  local owner, bytes = get('owner'), number('body_bytes')
  for _, field in ipairs({ 'jobs', 'jobs:' .. owner }) do
    if redis.call('HINCRBY', DEPTH, field, -1) <= 0 then redis.call('HDEL', DEPTH, field) end
  end
  for _, field in ipairs({ 'bytes', 'bytes:' .. owner }) do
    if redis.call('HINCRBY', DEPTH, field, -bytes) <= 0 then redis.call('HDEL', DEPTH, field) end
  end
end

-- The one way into a terminal state; the caller has checked that the job is live. `fields` are further HSET pairs.
local function finish(status, fields)
  redis.call('HSET', JOB, 'status', status, 'completed_at', now, 'expires_at', now + job_ttl, 'lease_until', '0',
    unpack(fields))
  redis.call('ZREM', LEASES, job_id)
  redis.call('ZREM', DEADLINES, job_id)
  redis.call('ZREM', OUTBOX, job_id)
  redis.call('HDEL', JOB, 'ask', 'prepared')
  leave_depth()
  release_images()
  redis.call('EXPIRE', JOB, job_ttl)
  redis.call('EXPIRE', EVENTS, job_ttl)
  redis.call('SET', TOMBSTONE, '1', 'EX', job_ttl + tombstone_ttl)
  redis.call('ZADD', ENDED, now + job_ttl, get('owner') .. '/' .. job_id)
  local idempotency = get('idempotency')
  if idempotency and idempotency ~= '' then redis.call('EXPIRE', idempotency, job_ttl) end
  changed()
end

-- Ends a job that was being cancelled, whatever its holder wanted to write.
local function finish_cancelled(error, error_event, idle_event)
  redis.call('ZREM', LEASES, job_id)
  emit(error_event)
  emit(idle_event)
  finish('cancelled', { 'error', error })
end
