-- Where jobs stand: enough to tell whether what a reader knows of them still holds. Writes nothing.
-- KEYS  1 unfinished jobs by deadline  2... jobs
-- ARGV  ids of these jobs
-- Gives for each its version (nothing when it is not there) and how many unfinished jobs come before it (nothing when it
-- has ended).

local found = {}
for i, job_id in ipairs(ARGV) do
  found[2 * i - 1] = redis.call('HGET', KEYS[i + 1], 'version')
  found[2 * i] = redis.call('ZRANK', KEYS[1], job_id)
end
return found
