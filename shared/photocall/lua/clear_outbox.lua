-- The enqueue is done. An entry that is due at another time than the one enqueued for is a later one and stays.
-- ARGV  10 due ('' = whatever it is)

if ARGV[10] == '' or redis.call('ZSCORE', OUTBOX, job_id) == ARGV[10] then return redis.call('ZREM', OUTBOX, job_id) end
return 0
