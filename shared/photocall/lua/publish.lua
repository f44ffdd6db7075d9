-- The answer: result or error, events, references, lease and stream entry in one. A full store refuses it whole.
-- KEYS  10 engine stream
-- ARGV  10 fence  11 group  12 entry to acknowledge ('' = none)  13 status  14 event  15 idle event
--       16 cancelled error  17 its event  18... HSET pairs (result or error, usage, timings)
-- Gives 1 when this answer is the one that counts; an old fence, a cancelled or a deleted job gives 0.

local counts = 0
if holds(ARGV[10]) then
  if get('status') == 'cancelling' then
    finish_cancelled(ARGV[16], ARGV[17], ARGV[15])
  else
    finish(ARGV[13], { unpack(ARGV, 18) }) -- first, so that a full store leaves everything as it was
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
