-- A prep worker: drop the entry that it has run, and take the oldest one of the first lane that has any.
-- KEYS  1, 2 the first lane's queue and its list of taken entries  3, 4 the next lane's, and so on
-- ARGV  1 RQ's prefix of an entry's hash  2 lane of the entry that was run, from 1, or 0  3 its id
-- Gives lane, id and hash (fields and values by turns; empty when it is gone), or nothing.

local lane = tonumber(ARGV[2])
if lane > 0 then
  redis.call('LREM', KEYS[2 * lane], 1, ARGV[3])
  redis.call('DEL', ARGV[1] .. ARGV[3])
end
for queue = 1, #KEYS, 2 do
  local id = redis.call('LMOVE', KEYS[queue], KEYS[queue + 1], 'LEFT', 'RIGHT')
  if id then
    return { (queue + 1) / 2, id, redis.call('HGETALL', ARGV[1] .. id) }
  end
end
return false
