-- A row of a batch is written down: its ended job leaves no trace but its mark in the measured pace (`ENDED`).
-- KEYS  10 the owner's index
-- Gives 1, or 0 for a job that is not there or has not ended.

local status = get('status')
if not status or LIVE[status] then return 0 end
local idempotency = get('idempotency')
for sha in string.gmatch(get('images') or '', '%S+') do
  local key = image_prefix .. sha
  if redis.call('HEXISTS', key, 'brief') == 1 and tonumber(redis.call('HGET', key, 'refs') or '0') <= 0 then
    redis.call('DEL', key)
  end
end
redis.call('ZREM', KEYS[10], job_id)
redis.call('DEL', JOB, EVENTS, TOMBSTONE)
if idempotency and idempotency ~= '' then redis.call('DEL', idempotency) end
return 1
