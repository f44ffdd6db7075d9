-- Delete: cancel, then remove record, events, image references and index entry; a tombstone stays.
-- KEYS  10 the owner's index  11 control stream
-- ARGV  10 interrupt message  11 control stream limit
-- Gives 1, or 0 when there is no such job.

local status = get('status')
if not status then return 0 end
local idempotency, owner, held = get('idempotency'), get('owner'), number('lease_until') > 0
redis.call('ZREM', LEASES, job_id)
redis.call('ZREM', DEADLINES, job_id)
redis.call('ZREM', OUTBOX, job_id)
redis.call('ZREM', ENDED, owner .. '/' .. job_id)
redis.call('ZREM', KEYS[10], job_id)
if LIVE[status] then
  leave_depth()
  release_images()
  leave_line()
  if held then redis.call('XADD', KEYS[11], 'MAXLEN', '~', ARGV[11], '*', 'm', ARGV[10]) end
end
local hook = redis.call('HMGET', JOB, 'webhook', 'webhook_line')
if hook[1] then
  redis.call('ZREM', hook[2], job_id)
  redis.call('DEL', hook[1])
end
redis.call('DEL', JOB, EVENTS)
if idempotency and idempotency ~= '' then redis.call('DEL', idempotency) end
redis.call('SET', TOMBSTONE, '1', 'EX', tombstone_ttl)
redis.call('PUBLISH', wake_channel, job_id)
return 1
