-- Move a job from one state to another under its fence; a terminal state never changes.
-- ARGV  10 fence ('' = no lease is held)  11 from  12 to  13... HSET pairs

local fence, from, to = ARGV[10], ARGV[11], ARGV[12]
if get('status') ~= from or not LIVE[from] then return 0 end
if fence == '' and number('lease_until') > 0 or fence ~= '' and not holds(fence) then return 0 end
local fields = { unpack(ARGV, 13) }
if LIVE[to] then
  redis.call('HSET', JOB, 'status', to, unpack(fields))
  changed()
else
  finish(to, fields)
end
return 1
