-- An engine holds nothing of a session any more: what it said is taken back, unless another engine has spoken since.
-- KEYS  1 what is held of the session
-- ARGV  1 stream of the engine

if redis.call('HGET', KEYS[1], 'stream') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
