-- Begin an attempt of a delivery, once per number.
-- KEYS  1 delivery  2 due deliveries
-- ARGV  1 delivery id  2 now  3 seconds until it is due again if its maker dies  4 number of the attempt
-- Gives the number, or nothing.

local known = redis.call('HMGET', KEYS[1], 'state', 'attempts')
if known[1] ~= 'pending' or tonumber(known[2]) ~= tonumber(ARGV[4]) - 1 then return false end
redis.call('HSET', KEYS[1], 'attempts', ARGV[4])
redis.call('ZADD', KEYS[2], tonumber(ARGV[2]) + tonumber(ARGV[3]), ARGV[1])
return tonumber(ARGV[4])
