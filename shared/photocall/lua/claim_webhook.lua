-- The sweeper: claim a due delivery for one enqueue, or drop it when nothing is owed any more.
-- KEYS  1 delivery  2 due deliveries
-- ARGV  1 delivery id  2 now  3 seconds until it is due again if nobody begins it
-- Gives the number of the attempt, or nothing.

local due = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not due or tonumber(due) > tonumber(ARGV[2]) then return false end
if redis.call('HGET', KEYS[1], 'state') ~= 'pending' then
  redis.call('ZREM', KEYS[2], ARGV[1])
  return false
end
redis.call('ZADD', KEYS[2], tonumber(ARGV[2]) + tonumber(ARGV[3]), ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'attempts')) + 1
