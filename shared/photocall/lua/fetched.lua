-- Pictures that were named by URL are stored: from here on the job is one like any other.
-- ARGV  10 fence  11 ask with hashes for URLs  12 every picture of the job, by blanks  13 bytes fetched  14... new hashes
-- Gives 1; 0 without the lease, or when one of the pictures has gone meanwhile: then nothing was written.

if not holds(ARGV[10]) then return 0 end
for i = 14, #ARGV do
  if redis.call('EXISTS', image_prefix .. ARGV[i]) == 0 then return 0 end
end
local owner, bytes = get('owner'), ARGV[13]
redis.call('HSET', JOB, 'ask', ARGV[11], 'images', ARGV[12])
redis.call('HINCRBY', JOB, 'body_bytes', bytes)
redis.call('HINCRBY', DEPTH, 'bytes', bytes)
redis.call('HINCRBY', DEPTH, 'bytes:' .. owner, bytes)
for i = 14, #ARGV do
  redis.call('HINCRBY', image_prefix .. ARGV[i], 'refs', 1)
  redis.call('PERSIST', image_prefix .. ARGV[i])
end
return 1
