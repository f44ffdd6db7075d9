-- The enqueue is done. Only the entry it was done for goes: a later one stays.
-- ARGV  10 due ('' = the one of the accept; a lease has cleared that, so whatever is there after one is later)

local due = ARGV[10]
if due == '' and get('fence') == '0' or due ~= '' and redis.call('ZSCORE', OUTBOX, job_id) == due then
  return redis.call('ZREM', OUTBOX, job_id)
end
return 0
