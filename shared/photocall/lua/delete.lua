-- Delete: cancel, then remove record, events, image references and index entry; a tombstone stays.
-- KEYS  10 the owner's index  11 control stream  12 pictures whose patch blobs are to be removed
-- ARGV  10 interrupt message  11 control stream limit  12 '1' = with the pictures that nothing else needs
--
-- A picture goes unless a live job needs it, another owner has sent it too, or its owner has put it for itself. Those of a
-- turn stay: the session's other turns show them.
-- Gives 1, or 0 when there is no such job.

local status = get('status')
if not status then return 0 end
local idempotency, owner, held = get('idempotency'), get('owner'), number('lease_until') > 0
local created_at = owner .. '/' .. get('created_at')
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
local function unshared(image)
  if redis.call('EXISTS', image) == 0 or tonumber(redis.call('HGET', image, 'refs') or '0') > 0 then return false end
  for _, field in ipairs(redis.call('HKEYS', image)) do
    if string.sub(field, 1, 5) == 'kept:' then return false end
    if string.sub(field, 1, 6) == 'owner:' and field ~= 'owner:' .. owner then return false end
  end
  return true
end
if ARGV[12] == '1' and (get('session') or '') == '' then
  for sha in string.gmatch(get('images') or '', '%S+') do
    if unshared(image_prefix .. sha) then
      redis.call('DEL', image_prefix .. sha)
      redis.call('ZADD', KEYS[12], now, sha)
    end
  end
end
redis.call('DEL', JOB, EVENTS)
if idempotency and idempotency ~= '' then redis.call('DEL', idempotency) end
redis.call('SET', TOMBSTONE, created_at, 'EX', tombstone_ttl)
redis.call('PUBLISH', wake_channel, job_id)
return 1
