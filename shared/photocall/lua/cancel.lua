-- Cancel: at once when nobody holds the job, else its holder is told and the end comes from there or from the sweeper.
-- KEYS  10 control stream
-- ARGV  10 error  11 its event  12 idle event  13 interrupt message  14 control stream limit
--       15 '1' = not when an engine is at it
-- Gives the state after it, or nothing when there is no such job.

local status = get('status')
if not status or not LIVE[status] then return status end
if ARGV[15] == '1' and get('stage') == 'running' and number('lease_until') > 0 then return status end
if number('lease_until') == 0 then
  finish_cancelled(ARGV[10], ARGV[11], ARGV[12])
  return 'cancelled'
end
if status ~= 'cancelling' then
  redis.call('ZREM', OUTBOX, job_id)
  redis.call('HSET', JOB, 'status', 'cancelling', 'cancel_error', ARGV[10], 'cancel_event', ARGV[11])
  redis.call('XADD', KEYS[10], 'MAXLEN', '~', ARGV[14], '*', 'm', ARGV[13])
  changed()
end
return 'cancelling'
