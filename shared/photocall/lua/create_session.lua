-- A new session, if its owner may have one more. Those whose time to live has ended are taken off the owner's list here.
-- KEYS  1 session  2 the owner's sessions
-- ARGV  1 session id  2 created at  3 time to live, s  4 most sessions of an owner  5 key prefix of sessions
--       6... HSET pairs
-- Gives 0, or how many there are.

if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if redis.call('EXISTS', ARGV[5] .. id) == 0 then redis.call('ZREM', KEYS[2], id) end
  end
  local held = redis.call('ZCARD', KEYS[2])
  if held >= tonumber(ARGV[4]) then return held end
end
redis.call('HSET', KEYS[1], unpack(ARGV, 6))
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
return 0
