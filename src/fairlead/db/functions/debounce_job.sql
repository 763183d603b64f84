-- Debounces an enqueue: moves the waiting job of the key, if there is one, to a later time and returns it. Otherwise the
-- caller creates `new_job`, due at `due_at`, which the key now names. Enqueues of one key take turns on its row of debounces
-- until they commit. A job that has begun an attempt is left alone, and so is one that has ended.
--
-- Locks are taken in this order: the row of debounces, the row of the queue, the job's record. Claims, cancels and the stager
-- take the last two in the same order, and never the first.
create or replace function fairlead.debounce_job(
    tenant uuid, definition uuid, new_job uuid, debounce jsonb, payload jsonb, host uuid, resource uuid, new_key uuid,
    expires_in double precision, by_key jsonb, out moved uuid, out due_at timestamptz
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    hash constant bytea := sha256(convert_to(concat_ws(' ', definition, debounce_job.debounce ->> 'key'), 'UTF8'));
    pause constant interval := make_interval(secs => (debounce_job.debounce ->> 'seconds')::float8);
    is_last constant boolean := coalesce(debounce_job.debounce ->> 'payload', 'last') = 'last';
    moment timestamptz;
    holder uuid;
    first timestamptz;
    job record;
    spot record;
    was_ready boolean;
begin
    insert into fairlead.debounces as d (tenant_id, key_hash, job_id, first_at, due_at)
    values (debounce_job.tenant, hash, debounce_job.new_job, clock_timestamp(), clock_timestamp() + pause)
    on conflict (tenant_id, key_hash) do update set due_at = d.due_at
    returning d.job_id, d.first_at into holder, first;
    moment := clock_timestamp();
    if holder = debounce_job.new_job then
        debounce_job.due_at := first + pause;
        return;
    end if;

    -- A few rounds: the stager or a limit may move the row between the two tables just now.
    for _ in 1..20 loop
        select j.* into job from fairlead.job_records j
        where j.id = holder and j.status = 'queued' and j.attempt_count = 0 and j.cancel_requested_at is null
            and not exists (select from fairlead.leases l where l.job_id = j.id);
        exit when not found;
        delete from fairlead.later l where l.due_at = job.scheduled_for and l.job_id = holder
        returning l.due_at as at, true as is_later, l.limit_key into spot;
        exit when found;
        delete from fairlead.ready r
        where r.job_id = holder and r.tenant_id = job.tenant_id and r.definition_id = job.definition_id
            and r.priority = job.priority and r.host_id is not distinct from job.host_id
            and r.scheduled_for in (job.scheduled_for, greatest(job.scheduled_for, job.queued_at))
        returning r.scheduled_for as at, false as is_later, r.limit_key into spot;
        exit when found;
    end loop;
    if spot is null then
        update fairlead.debounces d
        set job_id = debounce_job.new_job, first_at = moment, due_at = moment + pause
        where d.tenant_id = debounce_job.tenant and d.key_hash = hash;
        debounce_job.due_at := moment + pause;
        return;
    end if;

    was_ready := not spot.is_later;
    -- a job that has waited for its longest time stays where it is, and only gets the payload
    debounce_job.due_at := least(
        moment + pause, first + make_interval(secs => (debounce_job.debounce ->> 'max_seconds')::float8));
    if debounce_job.due_at <= moment then
        debounce_job.due_at := spot.at;
    else
        spot.is_later := true;
    end if;
    if is_last then
        job.payload := debounce_job.payload;
        job.host_id := debounce_job.host;
        job.resource_id := debounce_job.resource;
        job.limit_key := debounce_job.new_key;
    end if;
    if spot.is_later then
        job.scheduled_for := debounce_job.due_at;
        insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, limit_key)
        values (holder, job.tenant_id, job.definition_id, job.host_id, job.priority, debounce_job.due_at, job.limit_key);
    else
        insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
        values (holder, job.tenant_id, job.definition_id, job.host_id, job.priority, debounce_job.due_at, job.limit_key);
    end if;
    if job.expires_at is not null then
        delete from fairlead.expiries e where e.expires_at = job.expires_at and e.job_id = holder;
        job.expires_at := null;
    end if;
    if debounce_job.expires_in is not null then
        job.expires_at := debounce_job.due_at + make_interval(secs => debounce_job.expires_in);
        insert into fairlead.expiries (expires_at, job_id, tenant_id) values (job.expires_at, holder, job.tenant_id);
    end if;
    update fairlead.job_records j
    set scheduled_for = job.scheduled_for, payload = job.payload, host_id = job.host_id, resource_id = job.resource_id,
        limit_key = job.limit_key, expires_at = job.expires_at
    where j.id = holder;
    update fairlead.debounces d set due_at = debounce_job.due_at
    where d.tenant_id = debounce_job.tenant and d.key_hash = hash;
    moved := holder;
    -- its place in the line of its key; in strict order it also had one while it waited
    if (was_ready and spot.is_later) or job.limit_key is distinct from spot.limit_key then
        perform fairlead.let_held_go(job.definition_id, job.tenant_id, spot.limit_key, debounce_job.by_key);
    end if;
end
$$;

revoke execute on function fairlead.debounce_job from public;
grant execute on function fairlead.debounce_job to fairlead_tenant;
