-- The sweeper: a job past its wall clock ends as expired.
-- KEYS  10 control stream
-- ARGV  10 error  11 its event  12 idle event  13 interrupt message  14 control stream limit

local status = get('status')
if not status or not LIVE[status] then
  redis.call('ZREM', DEADLINES, job_id)
  return 0
end
if number('deadline_at') > now then return 0 end
local held = redis.call('ZREM', LEASES, job_id) == 1
if held then redis.call('XADD', KEYS[10], 'MAXLEN', '~', ARGV[14], '*', 'm', ARGV[13]) end
redis.call('ZREM', DEADLINES, job_id)
emit(ARGV[11])
emit(ARGV[12])
finish('expired', { 'error', ARGV[10] })
return 1
