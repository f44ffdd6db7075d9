-- Note an attempt of a delivery: made, to be tried again, or given up. An attempt that a later one overtook is only noted.
-- KEYS  1 delivery  2 due deliveries  3 counters
-- ARGV  1 delivery id  2 number of the attempt  3 its line of the log  4 state  5 due again at
-- Gives 1, or 0 when the delivery was forgotten meanwhile.

if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'try:' .. ARGV[2], ARGV[3])
if redis.call('HGET', KEYS[1], 'state') ~= 'pending' then return 1 end
if ARGV[4] ~= 'pending' then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('HSET', KEYS[1], 'state', ARGV[4])
  redis.call('HDEL', KEYS[1], 'body')
  redis.call('HINCRBY', KEYS[3], 'webhook_' .. ARGV[4], 1)
elseif redis.call('HGET', KEYS[1], 'attempts') == ARGV[2] then
  redis.call('ZADD', KEYS[2], ARGV[5], ARGV[1])
end
return 1
