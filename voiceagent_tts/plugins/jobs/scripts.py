"""The scripts with which Redis changes the queue of jobs, each in one step.

An answer may be lost, and then redis-py sends its script again: a script that has run already
changes nothing more.
"""

_FREE_FILE = """
local function free_file(files, job)
  local bytes = redis.call('HGET', files, job)
  if not bytes then return end
  redis.call('HDEL', files, job)
  redis.call('HINCRBY', files, 'total', -bytes)
end
"""
"""Gives back the bytes of a job's file."""
_KEEP = """
local function keep(record, kept, job, cancelled_keep_s, keep_s)
  if redis.call('HGET', record, 'status') == 'cancelled' then
    redis.call('EXPIRE', record, cancelled_keep_s)
  end
  local left_s = redis.call('TTL', record)
  if left_s < 0 then return end
  redis.call('HSET', record, 'webhook', '')
  redis.call('ZADD', kept, redis.call('TIME')[1] + left_s, job)
  redis.call('EXPIRE', kept, keep_s)
end
"""
"""Counts a job that is over until its record expires. Its webhook is needed no more."""

SUBMIT = (
    _FREE_FILE
    + """
if redis.call('EXISTS', KEYS[1]) == 1 then return 'queued' end
local of_submitter = redis.call('SCARD', KEYS[3])
if of_submitter >= tonumber(ARGV[1]) then return 'share' end
local now = redis.call('TIME')[1]
for _, each in ipairs(redis.call('ZRANGE', KEYS[9], '-inf', now, 'BYSCORE')) do
  free_file(KEYS[10], each)
  redis.call('ZREM', KEYS[9], each)
end
if of_submitter + redis.call('ZCARD', KEYS[9]) >= tonumber(ARGV[8]) then return 'kept' end
local files_bytes = tonumber(redis.call('HGET', KEYS[10], 'total') or 0)
if files_bytes >= tonumber(ARGV[9]) then return 'files' end
local most = tonumber(ARGV[2])
if redis.call('XLEN', KEYS[2]) + redis.call('SCARD', KEYS[4]) >= most then
  local submitters = redis.call('ZCARD', KEYS[5])
  if not redis.call('ZSCORE', KEYS[5], ARGV[5]) then submitters = submitters + 1 end
  if (of_submitter + 1) * submitters > most then return 'full' end
end
local bytes = tonumber(ARGV[6])
for _, each in ipairs(redis.call('HVALS', KEYS[8])) do bytes = bytes + tonumber(each) end
if bytes > tonumber(ARGV[7]) then return 'bytes' end
redis.call('HSET', KEYS[8], ARGV[4], ARGV[6])
redis.call('HSET', KEYS[1], unpack(ARGV, 10))
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('SADD', KEYS[3], ARGV[4])
redis.call('SADD', KEYS[4], ARGV[4])
if not redis.call('ZSCORE', KEYS[5], ARGV[5]) then
  redis.call('ZADD', KEYS[5], redis.call('INCR', KEYS[7]), ARGV[5])
end
redis.call('RPUSH', KEYS[6], ARGV[4])
return 'queued'
"""
)
"""Stores a job, unless its submitter's share is used up, of jobs, of bytes or of files, or the
whole queue. A full queue still takes jobs of a submitter that has less than an equal part of it."""
TAKE = """
local running, submitter, fewest = cjson.decode(ARGV[3]), nil, tonumber(ARGV[4])
for _, each in ipairs(redis.call('ZRANGE', KEYS[2], 0, 999)) do
  local jobs = running[each] or 0
  if jobs < fewest then submitter, fewest = each, jobs end
end
if not submitter then return false end
local job = redis.call('LPOP', ARGV[5] .. submitter)
redis.call('SREM', KEYS[3], job)
if redis.call('EXISTS', ARGV[5] .. submitter) == 0 then
  redis.call('ZREM', KEYS[2], submitter)
else
  redis.call('ZADD', KEYS[2], redis.call('INCR', KEYS[4]), submitter)
end
redis.call('XADD', KEYS[1], '*', 'job', job, 'submitter', submitter)
return redis.call(
  'XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[1], '>')[1][2][1]
"""
"""Makes the next job of the submitter with the fewest running ones an entry, and takes it."""
START = """
local status = redis.call('HGET', KEYS[1], 'status')
if status == 'queued' or status == 'running' then
  if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
    redis.call('HINCRBY', KEYS[1], 'starts', 1)
  end
  redis.call('HSET', KEYS[1], 'status', 'running', 'owner', ARGV[1], 'started_at', ARGV[2])
  return 'running'
end
if status then redis.call('HSET', KEYS[1], 'owner', ARGV[1]) end
return status
"""
RENEW = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return false end
redis.call('XCLAIM', KEYS[2], ARGV[2], ARGV[1], 0, ARGV[3], 'IDLE', ARGV[4], 'JUSTID')
return redis.call('HGET', KEYS[1], 'status')
"""
FINISH = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
local status = redis.call('HGET', KEYS[1], 'status')
if status ~= 'running' then return status == ARGV[3] and 1 or 0 end
redis.call('HSET', KEYS[1], 'request', '{}', 'status', ARGV[3], unpack(ARGV, 4))
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
"""
"""Ends a job, whose request is needed no more."""
RESERVE_FILE = (
    _FREE_FILE
    + """
free_file(KEYS[2], ARGV[1])
local total = tonumber(redis.call('HGET', KEYS[2], 'total') or 0)
if total + tonumber(ARGV[2]) > tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[2], 'total', ARGV[2])
redis.call('ZADD', KEYS[1], redis.call('TIME')[1] + ARGV[4], ARGV[1])
for _, each in ipairs(KEYS) do redis.call('EXPIRE', each, ARGV[4]) end
return 1
"""
)
"""Counts the file of a job until the job is forgotten, unless its submitter's share is used up."""
FREE_FILE = (
    _FREE_FILE
    + """
free_file(KEYS[1], ARGV[1])
"""
)
DELETE = (
    _FREE_FILE
    + """
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
free_file(KEYS[3], ARGV[1])
"""
)
DROP_IDLE = """
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  if consumer[4] == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer[2]) end
end
"""
"""Deletes the consumers without a job. One whose answer was lost has a job that is not known here;
Redis would forget the job with the consumer."""
REMOVE = (
    _KEEP
    + """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return 0 end
redis.call('XACK', KEYS[2], ARGV[2], ARGV[3])
redis.call('XDEL', KEYS[2], ARGV[3])
redis.call('SREM', KEYS[3], ARGV[4])
redis.call('HDEL', KEYS[4], ARGV[4])
keep(KEYS[1], KEYS[5], ARGV[4], ARGV[5], ARGV[6])
return 1
"""
)
CANCEL = (
    _KEEP
    + """
local status = redis.call('HGET', KEYS[1], 'status')
if status ~= 'queued' and status ~= 'running' then return status end
redis.call('HSET', KEYS[1], 'status', 'cancelled', 'finished_at', ARGV[1], 'request', '{}')
if redis.call('HGET', KEYS[1], 'webhook') ~= '' then return 'cancelled' end
if redis.call('LREM', KEYS[6], 1, ARGV[2]) == 1 then
  redis.call('SREM', KEYS[4], ARGV[2])
  redis.call('SREM', KEYS[2], ARGV[2])
  redis.call('HDEL', KEYS[3], ARGV[2])
  if redis.call('EXISTS', KEYS[6]) == 0 then redis.call('ZREM', KEYS[5], ARGV[3]) end
  keep(KEYS[1], KEYS[7], ARGV[2], ARGV[4], ARGV[5])
end
return 'cancelled'
"""
)
"""Cancels a job. One that waits leaves the queue at once, unless a server has to send its news."""
SET_WEBHOOK_STATE = """
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'webhook_state', ARGV[1]) end
"""
"""Without the check it would create a hash that never expires."""
