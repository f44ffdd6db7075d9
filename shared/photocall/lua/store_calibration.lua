-- Store a calibration, if its owner may have one more; one with this id, which is its content, is replaced by itself.
-- KEYS  1 calibration  2 the owner's calibrations
-- ARGV  1 calibration id  2 created at  3 time to live, s  4 most calibrations of an owner
--       5 key prefix of the owner's calibrations  6 max share of maxmemory  7... HSET pairs
-- Gives {'stored'} | {'full', held} | {'memory', used, allowed}

local memory = redis.call('INFO', 'memory')
local used = tonumber(string.match(memory, 'used_memory:(%d+)'))
local allowed = math.floor(tonumber(string.match(memory, 'maxmemory:(%d+)')) * tonumber(ARGV[6]))
if allowed > 0 and used > allowed then return { 'memory', used, allowed } end

if redis.call('EXISTS', KEYS[1]) == 0 and redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if redis.call('EXISTS', ARGV[5] .. id) == 0 then redis.call('ZREM', KEYS[2], id) end
  end
  local held = redis.call('ZCARD', KEYS[2])
  if held >= tonumber(ARGV[4]) then return { 'full', held } end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 7))
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
if redis.call('TTL', KEYS[2]) < tonumber(ARGV[3]) then redis.call('EXPIRE', KEYS[2], ARGV[3]) end
return { 'stored' }
