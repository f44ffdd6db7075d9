-- An entry of a prep queue, as RQ enqueues one.
-- KEYS  1 the queue's list  2 the entry's hash  3 RQ's set of queues
-- ARGV  1 the entry's id  2 seconds after which it is forgotten, and until when it is not enqueued again (0 = neither)
--       3... the hash, fields and values by turns
-- Gives whether it was enqueued.

local waits = tonumber(ARGV[2])
if waits > 0 and redis.call('EXISTS', KEYS[2]) == 1 then
  return false
end
redis.call('SADD', KEYS[3], KEYS[1])
redis.call('HSET', KEYS[2], unpack(ARGV, 3))
if waits > 0 then
  redis.call('EXPIRE', KEYS[2], waits)
else
  redis.call('PERSIST', KEYS[2]) -- a failed entry of the same id left its hash an expiry
end
redis.call('RPUSH', KEYS[1], ARGV[1])
return true
