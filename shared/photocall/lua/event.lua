-- One event of a leased job. Text carries its character offset, so a second attempt repeats nothing.
-- ARGV  10 fence  11 event  12 record field of the text's length ('' = not text)  13 offset  14 characters
--       15 record field to set ('' = none)  16 its value
-- Gives -1 when added or wholly known, -2 without the lease, else how many characters are known already.

if not holds(ARGV[10]) or get('status') == 'cancelling' then return -2 end
if ARGV[12] ~= '' then
  local known, offset, length = number(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14])
  if offset + length <= known then return -1 end
  if offset < known then return known end
  redis.call('HSET', JOB, ARGV[12], offset + length)
end
if ARGV[15] ~= '' then
  redis.call('HSET', JOB, ARGV[15], ARGV[16])
  redis.call('HINCRBY', JOB, 'version', 1)
end
emit(ARGV[11])
wake()
return -1
