-- Chunks are only taken from the owner of a lease, which he holds locked meanwhile: so nothing is added to an attempt
-- that is over, and two calls for one attempt come one after the other.

-- name: append
-- Up to the attempt's bounds, and then one mark behind everything; after the mark nothing more.
with before as materialized (
    select coalesce(sum(octet_length(c.text)), 0) as bytes, count(*) as chunks,
        coalesce(bool_or(c.seq = %(last_seq)s), false) as marked
    from fairlead.log_chunks c where c.job_id = %(job_id)s and c.attempt_no = %(attempt_no)s
), fresh as materialized (
    select n.seq, n.stream, n.text, sum(octet_length(n.text)) over w as bytes, count(*) over w as chunks
    from jsonb_to_recordset(%(chunks)s) as n(seq int, stream text, text text)
    where not exists (
        select from fairlead.log_chunks c
        where c.job_id = %(job_id)s and c.attempt_no = %(attempt_no)s and c.seq = n.seq)
    window w as (order by n.seq rows unbounded preceding)
), fits as materialized (
    select f.seq, f.stream, f.text from fresh f cross join before b
    where not b.marked and b.bytes + f.bytes <= %(max_bytes)s and b.chunks + f.chunks <= %(max_chunks)s
), kept as (
    insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, stream, text)
    select %(job_id)s, %(attempt_no)s, f.seq, %(tenant_id)s, f.stream, f.text from fits f order by f.seq
    on conflict do nothing returning 1
), marked as (
    insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, stream, text)
    select %(job_id)s, %(attempt_no)s, %(last_seq)s, %(tenant_id)s, 'log', %(mark)s from before b
    where not b.marked and (select count(*) from fits) < (select count(*) from fresh)
    on conflict do nothing returning 1
)
select (select count(*) from kept) as kept, b.marked or exists (select from marked) as truncated from before b;

-- name: read
-- Attempts that sent no chunks have their tails for it: what a function logged, what a process wrote.
with said as (
    (select c.attempt_no, c.seq, c.stream, c.at, c.text from fairlead.log_chunks c
     where c.job_id = %(job_id)s and (c.attempt_no, c.seq) > (%(after_attempt)s::int, %(after_seq)s::int)
        and (%(attempt_no)s::int is null or c.attempt_no = %(attempt_no)s)
     order by c.attempt_no, c.seq limit %(limit)s)
    union all
    (select a.attempt_no, tail.seq, tail.stream, a.finished_at, tail.text
     from fairlead.job_attempts a
     cross join lateral (values (1, 'stdout', a.stdout_tail), (2, 'stderr', a.stderr_tail)) as tail(seq, stream, text)
     where a.job_id = %(job_id)s and a.finished_at is not null and tail.text <> ''
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
-- The same from the end: what was said before a place, as much of it as a page holds.
with said as (
    (select c.attempt_no, c.seq, c.stream, c.at, c.text from fairlead.log_chunks c
     where c.job_id = %(job_id)s and (c.attempt_no, c.seq) < (%(before_attempt)s::int, %(before_seq)s::int)
        and (%(attempt_no)s::int is null or c.attempt_no = %(attempt_no)s)
     order by c.attempt_no desc, c.seq desc limit %(limit)s)
    union all
    (select a.attempt_no, tail.seq, tail.stream, a.finished_at, tail.text
     from fairlead.job_attempts a
     cross join lateral (values (1, 'stdout', a.stdout_tail), (2, 'stderr', a.stderr_tail)) as tail(seq, stream, text)
     where a.job_id = %(job_id)s and a.finished_at is not null and tail.text <> ''
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
select true from fairlead.job_attempts
where job_id = %(job_id)s and attempt_no = %(attempt_no)s and finished_at is not null;
