-- Only the owner of a lease may append chunks: fairlead.append_log locks the lease meanwhile.

-- name: append
select kept, truncated from fairlead.append_log(
    %(job_id)s, %(attempt_no)s, %(token)s, %(tenant_id)s, %(chunks)s, %(max_bytes)s, %(max_chunks)s, %(last_seq)s, %(mark)s);

-- name: append_all
-- Leases that another transaction has locked come back without a result: to wait for one of them with the others locked
-- would delay the ends of the other attempts, and could deadlock. Leases that are over do not come back.
with asked as materialized (
    select a.* from jsonb_to_recordset(%(asked)s) as a(
        number int, job_id uuid, attempt_no int, token uuid, tenant_id uuid, chunks jsonb, max_bytes bigint, mark text)
), ours as materialized (
    select a.* from asked a
    join fairlead.leases l on l.job_id = a.job_id and l.attempt_no = a.attempt_no and l.token = a.token
    where l.expires_at > clock_timestamp()
    for key share of l skip locked
), stored as materialized (
    select o.number, s.kept, s.truncated from ours o
    cross join lateral fairlead.append_log(
        o.job_id, o.attempt_no, o.token, o.tenant_id, o.chunks, o.max_bytes, %(max_chunks)s, %(last_seq)s, o.mark) s
)
select s.number, s.kept, s.truncated from stored s where s.kept is not null
union all
select a.number, null, null from asked a
join fairlead.leases l on l.job_id = a.job_id and l.attempt_no = a.attempt_no and l.token = a.token
where l.expires_at > clock_timestamp() and a.number not in (select o.number from ours o);

-- name: read
-- Attempts without chunks show their tails instead: a function's log, or a process's output.
with said as (
    (select c.attempt_no, c.seq, c.stream, c.at, c.text from fairlead.log_chunks c
     where c.job_id = %(job_id)s and (c.attempt_no, c.seq) > (%(after_attempt)s::int, %(after_seq)s::int)
        and (%(attempt_no)s::int is null or c.attempt_no = %(attempt_no)s)
     order by c.attempt_no, c.seq limit %(limit)s)
    union all
    (select a.attempt_no, tail.seq, tail.stream, a.finished_at, tail.text
     from fairlead.job_attempts a
     cross join lateral (values (1, 'stdout', a.stdout_tail), (2, 'stderr', a.stderr_tail)) as tail(seq, stream, text)
     where a.job_id = %(job_id)s and tail.text <> ''
        and (a.attempt_no, tail.seq) > (%(after_attempt)s::int, %(after_seq)s::int)
        and (%(attempt_no)s::int is null or a.attempt_no = %(attempt_no)s)
        and not exists (
            select from fairlead.log_chunks c where c.job_id = a.job_id and c.attempt_no = a.attempt_no)
     order by a.attempt_no, tail.seq limit %(limit)s)
), page as (
    select s.*, sum(octet_length(s.text)) over (order by s.attempt_no, s.seq) - octet_length(s.text) as before
    from said s order by s.attempt_no, s.seq limit %(limit)s
)
select attempt_no, seq, stream, at, text from page where before < %(page_bytes)s order by attempt_no, seq;

-- name: read_back
-- `read` from the end: one page of the log before a position.
with said as (
    (select c.attempt_no, c.seq, c.stream, c.at, c.text from fairlead.log_chunks c
     where c.job_id = %(job_id)s and (c.attempt_no, c.seq) < (%(before_attempt)s::int, %(before_seq)s::int)
        and (%(attempt_no)s::int is null or c.attempt_no = %(attempt_no)s)
     order by c.attempt_no desc, c.seq desc limit %(limit)s)
    union all
    (select a.attempt_no, tail.seq, tail.stream, a.finished_at, tail.text
     from fairlead.job_attempts a
     cross join lateral (values (1, 'stdout', a.stdout_tail), (2, 'stderr', a.stderr_tail)) as tail(seq, stream, text)
     where a.job_id = %(job_id)s and tail.text <> ''
        and (a.attempt_no, tail.seq) < (%(before_attempt)s::int, %(before_seq)s::int)
        and (%(attempt_no)s::int is null or a.attempt_no = %(attempt_no)s)
        and not exists (
            select from fairlead.log_chunks c where c.job_id = a.job_id and c.attempt_no = a.attempt_no)
     order by a.attempt_no desc, tail.seq desc limit %(limit)s)
), page as (
    select s.*,
        sum(octet_length(s.text)) over (order by s.attempt_no desc, s.seq desc) - octet_length(s.text) as behind
    from said s order by s.attempt_no desc, s.seq desc limit %(limit)s
)
select attempt_no, seq, stream, at, text from page where behind < %(page_bytes)s order by attempt_no, seq;

-- name: is_over
select true from fairlead.attempts
where job_id = %(job_id)s and attempt_no = %(attempt_no)s and status <> 'running';
