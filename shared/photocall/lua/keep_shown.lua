-- Keep what a picture looks like in one view, and tell whoever waits. Of more views than may be kept the one that was
-- made first goes: whoever has just asked for another still finds it.
-- KEYS  1 what is shown of the picture
-- ARGV  1 the view, as its fields end  2 seconds that it is kept  3 most views  4 wake channel  5... kind and value of each field

local kinds = { 'png', 'report', 'error', 'made' }

local function drop(view)
  for _, kind in ipairs(kinds) do redis.call('HDEL', KEYS[1], kind .. view) end
end

redis.call('HSET', KEYS[1], 'made' .. ARGV[1], 0) -- first, so that a full store refuses all of it
drop(ARGV[1])
local views = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local view = string.match(field, '^made(.*)$')
  if view then table.insert(views, { view, tonumber(redis.call('HGET', KEYS[1], field)) }) end
end
table.sort(views, function(a, b) return a[2] < b[2] end)
for i = 1, #views + 1 - tonumber(ARGV[3]) do drop(views[i][1]) end
local last = #views > 0 and views[#views][2] or 0
redis.call('HSET', KEYS[1], 'made' .. ARGV[1], last + 1)
for i = 5, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i] .. ARGV[1], ARGV[i + 1]) end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('PUBLISH', ARGV[4], KEYS[1])
