-- Keep a lease for another while, never past the job's wall clock. 0: lost, cancelled or out of time.
-- ARGV  10 fence

if not holds(ARGV[10]) or get('status') == 'cancelling' or number('deadline_at') <= now then return 0 end
redis.call('ZREM', LEASES, job_id) -- a removal first: a result that meets a full store must keep its lease
take_lease_until()
return 1
