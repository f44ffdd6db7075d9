-- The stream of an engine that is gone, once nothing is left in it.
-- KEYS  1 its stream  2 its heartbeat  3 engines with a stream of their own
-- ARGV  1 engine id

if redis.call('EXISTS', KEYS[2]) == 1 or redis.call('XLEN', KEYS[1]) > 0 then return 0 end
redis.call('DEL', KEYS[1])
return redis.call('SREM', KEYS[3], ARGV[1])
