-- Store a source picture, once per hash, and note who uploaded it. Until a job uses it, it lives for its TTL.
-- KEYS  1 image
-- ARGV  1 owner  2 ttl  3 max share of maxmemory  4 bytes ('' = only if stored already)
--       5 '1' = to be kept when a job with it is deleted
--       6 '1': it is wanted for its job only, and goes with the row that brought it; see forget.lua
-- Gives {'stored'} | {'absent'} | {'memory', used, allowed}

if redis.call('HEXISTS', KEYS[1], 'data') == 0 then
  if ARGV[4] == '' then return { 'absent' } end
  local memory = redis.call('INFO', 'memory')
  local used = tonumber(string.match(memory, 'used_memory:(%d+)'))
  local allowed = math.floor(tonumber(string.match(memory, 'maxmemory:(%d+)')) * tonumber(ARGV[3]))
  if allowed > 0 and used > allowed then return { 'memory', used, allowed } end
  redis.call('HSET', KEYS[1], 'data', ARGV[4], 'refs', 0)
  if ARGV[6] == '1' then redis.call('HSET', KEYS[1], 'brief', 1) end
end
if ARGV[6] ~= '1' then redis.call('HDEL', KEYS[1], 'brief') end
redis.call('HDEL', KEYS[1], 'dropped')
redis.call('HSET', KEYS[1], 'owner:' .. ARGV[1], 1)
if ARGV[5] == '1' then redis.call('HSET', KEYS[1], 'kept:' .. ARGV[1], 1) end
if tonumber(redis.call('HGET', KEYS[1], 'refs')) <= 0 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return { 'stored' }
