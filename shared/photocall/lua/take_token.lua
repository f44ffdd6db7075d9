-- Take a token from a bucket that fills at a steady rate. Kept is the moment when it will be full; a bucket that is not
-- there is full.
-- KEYS  1 bucket
-- ARGV  1 seconds for a token to come  2 tokens that it holds
-- Gives {1 = taken, whole tokens left, seconds until there is one more}; the seconds as text.

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local every, holds = tonumber(ARGV[1]), tonumber(ARGV[2])
local full_at = tonumber(redis.call('GET', KEYS[1]) or '0')
full_at = math.max(now, math.min(full_at, now + every * holds)) -- its limits, or the clock, may have changed
local tokens = holds - (full_at - now) / every
local slack = 0.001 -- of a token: who comes when it was told to finds one
if tokens < 1 - slack then return { 0, 0, tostring((1 - tokens) * every) } end
full_at = full_at + every
-- A removal first: a full store is no reason to refuse who only reads (see _job.lua).
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], string.format('%.6f', full_at), 'PX', math.max(1, math.ceil((full_at - now) * 1000)))
local left = math.max(0, tokens - 1)
local whole = math.floor(left + slack)
return { 1, whole, tostring(math.max(0, (whole + 1 - left) * every)) }
