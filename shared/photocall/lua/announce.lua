-- Owe a delivery that is not about a job, once per id.
-- KEYS  1 delivery  2 due deliveries
-- ARGV  1 delivery id  2 now  3 seconds it is kept  4 owner  5 url  6 event  7 body
-- Without keys it does nothing: the event is not wanted.

if #KEYS == 0 or redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[4], 'url', ARGV[5], 'event', ARGV[6], 'body', ARGV[7], 'created_at', ARGV[2],
  'attempts', 0, 'state', 'pending')
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
return 1
