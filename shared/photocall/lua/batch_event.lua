-- An event of a batch, from the gateway that holds it. Its end is told once, and what its webhook is owed with it.
-- KEYS  1 batch  2 events  3 delivery  4 due deliveries (both only where a webhook wants to hear of the end)
-- ARGV  1 fence  2 event  3 event limit  4 seconds the events are kept  5 why it pauses  6 '1' = the end
--       7 wake channel  8 batch id  9 now  10 seconds the delivery is kept  11 owner  12 url  13 its event  14 its body
-- Gives 1, 2 when the end was told before, 0 when another gateway holds the batch, or it was deleted.

local held = redis.call('HMGET', KEYS[1], 'fence', 'told')
if held[1] ~= ARGV[1] then return 0 end
if held[2] then return 2 end
redis.call('HSET', KEYS[1], 'paused', ARGV[5])
if ARGV[6] == '1' then redis.call('HSET', KEYS[1], 'told', 1) end
if #KEYS > 2 and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('HSET', KEYS[3], 'owner', ARGV[11], 'url', ARGV[12], 'event', ARGV[13], 'body', ARGV[14],
    'created_at', ARGV[9], 'attempts', 0, 'state', 'pending')
  redis.call('EXPIRE', KEYS[3], ARGV[10])
  redis.call('ZADD', KEYS[4], ARGV[9], ARGV[8])
end
redis.call('XADD', KEYS[2], 'MAXLEN', '=', ARGV[3], '*', 'm', ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[4])
redis.call('PUBLISH', ARGV[7], ARGV[8])
return 1
