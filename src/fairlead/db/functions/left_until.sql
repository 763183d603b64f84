-- Until when a worker without the labels that a definition prefers leaves a job to others: for `prefer_seconds` from the
-- time it was due, while a live worker has these labels and can run it. Null: not any longer.
create or replace function fairlead.left_until(
    definition uuid, tenant uuid, due_at timestamptz, prefer_seconds double precision, moment timestamptz
) returns timestamptz language plpgsql stable as $$
#variable_conflict use_column
declare
    until timestamptz := left_until.due_at + make_interval(secs => left_until.prefer_seconds);
begin
    if until <= left_until.moment or not exists (
        select from fairlead.job_definitions d
        join fairlead.job_workers w on coalesce(d.requires, '{}') || d.prefers <@ w.labels
            and (w.concurrency >= d.slots or (w.metadata @> '{"transport": "http"}' and not w.metadata ? 'slots'))
        where d.id = left_until.definition
            and w.last_seen_at > left_until.moment - interval '60 seconds' and w.drain_requested_at is null
            and (w.tenant_id is null or w.tenant_id = left_until.tenant)
            and (w.queues = '{}' or w.queues && array[d.key, d.key || ' ' || left_until.tenant]))
    then
        return null;
    end if;
    return until;
end
$$;

revoke execute on function fairlead.left_until from public;
