-- Stores the log chunks of an attempt up to its limits, and after that one final mark; after the mark nothing more. A chunk
-- that is already stored stays as it is. Both results are null if the lease is over: then nothing is stored.
create or replace function fairlead.append_log(
    of_job uuid, of_attempt integer, lease_token uuid, of_tenant uuid, chunks jsonb, max_bytes bigint, max_chunks integer,
    last_seq integer, mark text, out kept integer, out truncated boolean
) language plpgsql volatile as $$
begin
    -- A key share lock lets heartbeats renew the lease meanwhile. The transaction that ends the attempt deletes the lease
    -- and waits for this lock, so nothing is added to an attempt that is over.
    perform from fairlead.leases l
    where l.job_id = of_job and l.attempt_no = of_attempt and l.token = lease_token and l.expires_at > clock_timestamp()
    for key share;
    if not found then
        return;
    end if;
    -- Two calls for one attempt run one after the other: the second counts the chunks of the first.
    perform pg_advisory_xact_lock(hashtextextended(of_job::text, of_attempt));
    with before as materialized (
        select coalesce(sum(octet_length(c.text)), 0) as bytes, count(*) as chunks,
            coalesce(bool_or(c.seq = append_log.last_seq), false) as marked
        from fairlead.log_chunks c where c.job_id = of_job and c.attempt_no = of_attempt
    ), fresh as materialized (
        select n.seq, n.stream, n.text, sum(octet_length(n.text)) over w as bytes, count(*) over w as chunks
        from jsonb_to_recordset(append_log.chunks) as n(seq int, stream text, text text)
        where not exists (
            select from fairlead.log_chunks c
            where c.job_id = of_job and c.attempt_no = of_attempt and c.seq = n.seq)
        window w as (order by n.seq rows unbounded preceding)
    ), fits as materialized (
        select f.seq, f.stream, f.text from fresh f cross join before b
        where not b.marked and b.bytes + f.bytes <= append_log.max_bytes and b.chunks + f.chunks <= append_log.max_chunks
    ), added as (
        insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, stream, text)
        select of_job, of_attempt, f.seq, of_tenant, f.stream, f.text from fits f order by f.seq
        on conflict do nothing returning 1
    ), marked as (
        insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, stream, text)
        select of_job, of_attempt, append_log.last_seq, of_tenant, 'log', append_log.mark from before b
        where not b.marked and (select count(*) from fits) < (select count(*) from fresh)
        on conflict do nothing returning 1
    )
    select (select count(*) from added), b.marked or exists (select from marked) into kept, truncated from before b;
end
$$;

revoke execute on function fairlead.append_log from public;
