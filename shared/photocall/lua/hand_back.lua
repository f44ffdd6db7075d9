-- Give a leased job back unfinished, to be prepared again or for another engine. Not a failure, so not an attempt.
-- KEYS  10 engine stream to add to  11 engine stream to acknowledge in
-- ARGV  10 fence  11 stage ('preparing' | 'running')  12 engine message  13 due in the outbox after  14 group
--       15 entry to acknowledge ('' = none)  16 cancelled error  17 its event  18 idle event
--       19 all pictures it turned out to need, by blanks ('' = those of its record)

local given = 0
if holds(ARGV[10]) then
  if get('status') == 'cancelling' then
    finish_cancelled(ARGV[16], ARGV[17], ARGV[18])
  else
    drop_lease()
    redis.call('HSET', JOB, 'status', 'queued', 'stage', ARGV[11])
    if ARGV[19] ~= '' then
      local known = ' ' .. (get('images') or '') .. ' '
      for sha in string.gmatch(ARGV[19], '%S+') do
        if not string.find(known, ' ' .. sha .. ' ', 1, true) then
          redis.call('HINCRBY', image_prefix .. sha, 'refs', 1)
          redis.call('PERSIST', image_prefix .. sha)
        end
      end
      redis.call('HSET', JOB, 'images', ARGV[19])
    end
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
