-- An event of a batch, from the gateway that holds it. Its end is told once.
-- KEYS  1 batch  2 events
-- ARGV  1 fence  2 event  3 event limit  4 seconds the events are kept  5 why it pauses  6 '1' = the end
--       7 wake channel  8 batch id
-- Gives 1, 2 when the end was told before, 0 when another gateway holds the batch.

local held = redis.call('HMGET', KEYS[1], 'fence', 'told')
if held[1] ~= ARGV[1] then return 0 end
if held[2] then return 2 end
redis.call('HSET', KEYS[1], 'paused', ARGV[5])
if ARGV[6] == '1' then redis.call('HSET', KEYS[1], 'told', 1) end
redis.call('XADD', KEYS[2], 'MAXLEN', '=', ARGV[3], '*', 'm', ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[4])
redis.call('PUBLISH', ARGV[7], ARGV[8])
return 1
