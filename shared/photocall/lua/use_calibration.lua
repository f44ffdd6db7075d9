-- What a stored calibration corrects, with its time to live begun anew, for it is used.
-- KEYS  1 calibration  2 its owner's calibrations
-- ARGV  1 time to live, s
-- Gives the field `applied`, nil where it is not there.

local applied = redis.call('HGET', KEYS[1], 'applied')
if not applied then return nil end
redis.call('EXPIRE', KEYS[1], ARGV[1])
if redis.call('TTL', KEYS[2]) < tonumber(ARGV[1]) then redis.call('EXPIRE', KEYS[2], ARGV[1]) end
return applied
