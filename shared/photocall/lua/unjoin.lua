-- An ended job stays, but requests that equal its own join it no more: the next one is a new job.
-- KEYS  10 idempotency entry
-- Gives 1, or 0 when the entry was not this job's. The record forgets it, lest its end takes the next job's along.

if get('idempotency') ~= KEYS[10] then return 0 end
redis.call('HDEL', JOB, 'idempotency')
if redis.call('HGET', KEYS[10], 'job') ~= job_id then return 0 end
redis.call('DEL', KEYS[10])
return 1
