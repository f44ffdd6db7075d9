-- The sweeper: a lease that ended is a failure of the process that held it. The job goes on, or ends as poison.
-- KEYS  10 engine stream
-- ARGV  10 fence seen  11 failures that make it poison  12 engine message  13 poison error  14 its event
--       15 idle event  16 cancelled error  17 its event
-- Gives 'queued', 'poison', 'cancelled', or nothing when another sweeper or the holder was first.

if not holds(ARGV[10]) or number('lease_until') > now then return false end
if get('status') == 'cancelling' then
  finish_cancelled(ARGV[16], ARGV[17], ARGV[15])
  return 'cancelled'
end
redis.call('ZREM', LEASES, job_id)
redis.call('HINCRBY', COUNTERS, 'lease_ended', 1)
if redis.call('HINCRBY', JOB, 'failures', 1) >= tonumber(ARGV[11]) then
  redis.call('HINCRBY', COUNTERS, 'poison', 1)
  emit(ARGV[14])
  emit(ARGV[15])
  finish('failed', { 'error', ARGV[13] })
  return 'poison'
end
drop_lease()
redis.call('HSET', JOB, 'status', 'queued')
if get('stage') == 'preparing' then
  redis.call('ZADD', OUTBOX, now, job_id)
else
  redis.call('XADD', KEYS[10], '*', 'm', ARGV[12])
end
changed()
return 'queued'
