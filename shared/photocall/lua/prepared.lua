-- Hand a prepared job over to the engine: record, engine message, event, and the lease dropped.
-- KEYS  10 engine stream
-- ARGV  10 fence  11 prepared images  12 engine message  13 cancelled error  14 its event  15 idle event
--       16 event

if not holds(ARGV[10]) or get('stage') ~= 'preparing' then return 0 end
if get('status') == 'cancelling' then
  finish_cancelled(ARGV[13], ARGV[14], ARGV[15])
  return 0
end
drop_lease() -- a removal first: a full store must still be able to work itself empty
redis.call('HSET', JOB, 'prepared', ARGV[11], 'stage', 'running', 'prepared_at', now)
offer(KEYS[10], ARGV[12])
emit(ARGV[16])
changed()
return 1
