-- Take a job for one stage. Nobody may hold it: a lease that ended is given on by the sweeper alone, which counts it.
-- ARGV  10 stage ('preparing' | 'running')  11 busy event ('' = the holder adds it)
-- Gives {fence, attempt, request header} or nothing.

local stage = ARGV[10]
local status = get('status')
if (status ~= 'queued' and status ~= 'preparing' and status ~= 'running') or get('stage') ~= stage
  or number('lease_until') > 0 or number('deadline_at') <= now then
  return false
end
redis.call('ZREM', OUTBOX, job_id) -- a removal first: a full store must still be able to work itself empty
take_lease_until()
local fence = redis.call('HINCRBY', JOB, 'fence', 1)
local attempt = number('failures') + 1
redis.call('HSET', JOB, 'status', stage, 'attempts', attempt)
if number('started_at') == 0 then redis.call('HSET', JOB, 'started_at', now) end
emit(ARGV[11])
changed()
return { fence, attempt, get('header') }
