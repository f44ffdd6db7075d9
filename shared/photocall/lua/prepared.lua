-- Hand a prepared job over to the engine: record, engine message, event, and the lease dropped.
-- KEYS  10 engine stream  11 who answered about its picture of late (or the job's own key: never mind)
--       12 engines with a stream of their own
-- ARGV  10 fence  11 prepared images  12 engine message  13 cancelled error  14 its event  15 idle event
--       16 event  17 jobs in the own stream of an engine at which others get a share

if not holds(ARGV[10]) or get('stage') ~= 'preparing' then return 0 end
if get('status') == 'cancelling' then
  finish_cancelled(ARGV[13], ARGV[14], ARGV[15])
  return 0
end
drop_lease() -- a removal first: a full store must still be able to work itself empty
redis.call('HSET', JOB, 'prepared', ARGV[11], 'stage', 'running', 'prepared_at', now)
local stream = KEYS[10]
if KEYS[11] ~= JOB and redis.call('SCARD', KEYS[12]) > 1 then
  redis.call('HSET', JOB, 'near', KEYS[11]) -- whoever answers says so there; see publish.lua
  local own = nearest(KEYS[11], stream)
  if redis.call('XLEN', own) < tonumber(ARGV[17]) then stream = own end
end
offer(stream, ARGV[12])
emit(ARGV[16])
changed()
return 1
