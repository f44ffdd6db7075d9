-- The answer: result or error, events, references, lease and stream entry in one. A full store refuses it whole.
-- KEYS  10 engine stream
-- ARGV  10 fence  11 group  12 entry to acknowledge ('' = none)  13 status  14 event  15 idle event
--       16 cancelled error  17 its event  18 entry of the transcript ('' = none)  19 stream of the engine that holds the
--       prefix now ('' = as it was, '-' = nothing is held)  20 its heartbeat  21 what it says of it  22 lease of that, ms
--       23 tokens reused  24 notices ('' = none)  25 stream of the engine that answered ('' = none)  26 its heartbeat
--       27 seconds that it is asked about the same picture  28... HSET pairs (result or error, usage, timings)
-- Gives 1 when this answer is the one that counts; an old fence, a cancelled or a deleted job gives 0.

local counts = 0
if holds(ARGV[10]) then
  if get('status') == 'cancelling' then
    finish_cancelled(ARGV[16], ARGV[17], ARGV[15])
  else
    redis.call('HSET', JOB, unpack(ARGV, 28)) -- first, so that a full store leaves everything as it was
    local session = session_of()
    if session then -- before `finish`, which calls the next turn
      if ARGV[18] ~= '' then redis.call('RPUSH', session .. ':transcript', ARGV[18]) end
      if ARGV[19] == '-' then
        redis.call('DEL', session .. ':held')
      elseif ARGV[19] ~= '' then
        redis.call('HSET', session .. ':held', 'stream', ARGV[19], 'heartbeat', ARGV[20], 'shown', ARGV[21])
        redis.call('PEXPIRE', session .. ':held', ARGV[22])
      end
      if ARGV[13] == 'succeeded' then redis.call('HINCRBY', session, 'answered', 1) end
      if ARGV[23] ~= '0' then
        redis.call('HINCRBY', session, 'reused_turns', 1)
        redis.call('HINCRBY', session, 'reused_tokens', ARGV[23])
      end
      if ARGV[24] ~= '' and redis.call('RPUSH', session .. ':notices', ARGV[24]) > 200 then
        redis.call('LSET', session .. ':notices', 1, '') -- the first stays: it names the backend
        redis.call('LREM', session .. ':notices', 1, '')
      end
    end
    local near = get('near')
    if near and ARGV[25] ~= '' then
      redis.call('HSET', near, 'stream', ARGV[25], 'heartbeat', ARGV[26])
      redis.call('EXPIRE', near, ARGV[27])
    end
    finish(ARGV[13], {})
    emit(ARGV[14])
    emit(ARGV[15])
    redis.call('EXPIRE', EVENTS, job_ttl)
    counts = 1
  end
end
if ARGV[12] ~= '' then
  redis.call('XACK', KEYS[10], ARGV[11], ARGV[12])
  redis.call('XDEL', KEYS[10], ARGV[12])
end
return counts
