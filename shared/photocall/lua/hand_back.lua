-- Give a leased job back unfinished, to be prepared again or for another engine. Not a failure, so not an attempt.
-- KEYS  10 engine stream to add to  11 engine stream to acknowledge in
-- ARGV  10 fence  11 stage ('preparing' | 'running')  12 engine message  13 due in the outbox after  14 group
--       15 entry to acknowledge ('' = none)  16 cancelled error  17 its event  18 idle event

local given = 0
if holds(ARGV[10]) then
  if get('status') == 'cancelling' then
    finish_cancelled(ARGV[16], ARGV[17], ARGV[18])
  else
    drop_lease()
    redis.call('HSET', JOB, 'status', 'queued', 'stage', ARGV[11])
    if ARGV[11] == 'preparing' then
      redis.call('HDEL', JOB, 'prepared')
      redis.call('HINCRBY', JOB, 'returns', 1)
      redis.call('ZADD', OUTBOX, now + tonumber(ARGV[13]), job_id)
    else
      redis.call('XADD', KEYS[10], '*', 'm', ARGV[12])
    end
    changed()
    given = 1
  end
end
if ARGV[15] ~= '' then
  redis.call('XACK', KEYS[11], ARGV[14], ARGV[15])
  redis.call('XDEL', KEYS[11], ARGV[15])
end
return given
