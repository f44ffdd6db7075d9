-- Forget a picture for one owner; its bytes go when nobody else has sent it and no live job needs it. While one does,
-- `dropped` says where the release of the last one enters it (`release_images` in _job.lua).
-- KEYS  1 image  2 pictures whose patch blobs are to be removed
-- ARGV  1 owner  2 hash  3 now
-- Gives 1, or 0 when this owner never sent it.

if redis.call('HDEL', KEYS[1], 'owner:' .. ARGV[1], 'kept:' .. ARGV[1]) == 0 then return 0 end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 6) == 'owner:' then return 1 end
end
if tonumber(redis.call('HGET', KEYS[1], 'refs') or '0') <= 0 then
  redis.call('DEL', KEYS[1])
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2])
else
  redis.call('HSET', KEYS[1], 'dropped', KEYS[2])
end
return 1
