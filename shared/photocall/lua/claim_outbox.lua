-- The sweeper: claim a due outbox entry for one enqueue, or drop it when the job needs none.
-- ARGV  10 seconds until it is due again if this sweeper dies
-- Gives {attempt, priority, due} or nothing.

local due = redis.call('ZSCORE', OUTBOX, job_id)
if not due or tonumber(due) > now then return false end
local status = get('status')
if not status or not LIVE[status] or get('stage') ~= 'preparing' or number('lease_until') > 0 then
  redis.call('ZREM', OUTBOX, job_id)
  return false
end
redis.call('ZADD', OUTBOX, now + tonumber(ARGV[10]), job_id)
return { number('failures') + 1, get('priority'), redis.call('ZSCORE', OUTBOX, job_id) }
