-- Take a batch that nobody holds, or keep one that is held, or give it up.
-- KEYS  1 batch
-- ARGV  1 fence to keep or give up ('' = take it)  2 lease seconds (0 = give it up)  3 least fence before this one
-- Gives the fence, or nothing when another holds it.

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local held = redis.call('HMGET', KEYS[1], 'fence', 'until')
local fence = tonumber(held[1] or '0')
if ARGV[1] == '' then
  if tonumber(held[2] or '0') > now then return false end
  fence = math.max(fence, tonumber(ARGV[3])) + 1
elseif fence ~= tonumber(ARGV[1]) then
  return false
end
redis.call('HSET', KEYS[1], 'fence', fence, 'until', now + tonumber(ARGV[2]))
redis.call('EXPIRE', KEYS[1], 86400) -- a day after the last gateway; the batch itself remembers its fence too
return fence
