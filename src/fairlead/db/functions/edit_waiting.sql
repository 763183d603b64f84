-- Changes a waiting job, whose row in the queue the caller has locked: no claim takes it meanwhile. Null leaves a value as it
-- is. The host is only changed `with_target`. A time that is over means now. Where the payload has another value of the key by
-- which the definition limits its jobs, the strategy of the definition applies as to a new job.
--
-- outcome is 'edited'; 'not_waiting' if the job is in neither table of the queue; or 'key_taken' if its new key has as many
-- jobs as may be, and the definition drops new ones. Without 'edited' nothing has changed. `waits`: the job is in later.
-- `released`: how many jobs of its old key became ready.
create or replace function fairlead.edit_waiting(
    job uuid, actor text, payload jsonb default null, priority integer default null,
    scheduled_for timestamptz default null, with_target boolean default false, host_id uuid default null,
    resource_id uuid default null, tags text[] default null, out outcome text, out waits boolean, out released bigint
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    old record;
    place record;
    by_key jsonb;
    moment constant timestamptz := clock_timestamp();
    new_at timestamptz;
    new_host uuid;
    new_key uuid;
    new_expiry timestamptz;
    is_held boolean;
begin
    outcome := 'not_waiting';
    select j.tenant_id, j.definition_id, j.host_id, j.resource_id, j.priority, j.scheduled_for, j.queued_at, j.limit_key,
        j.tags, j.expires_at
    into old from fairlead.job_records j where j.id = edit_waiting.job and j.status = 'queued';
    if not found then
        return;
    end if;
    new_key := old.limit_key;
    if edit_waiting.payload is not null then
        select d.by_key into by_key from fairlead.job_definitions d where d.id = old.definition_id;
        new_key := fairlead.limit_key_of(by_key, edit_waiting.payload);
        -- before the job leaves its place: a refusal changes nothing
        if new_key is distinct from old.limit_key and new_key is not null and fairlead.apply_key_strategy(
                old.definition_id, old.tenant_id, new_key, by_key, edit_waiting.job, edit_waiting.actor) is not null then
            outcome := 'key_taken';
            return;
        end if;
    end if;

    with due as materialized (
        -- a row for each time that the queue may have: see cancel_queued in store/jobs.sql
        select distinct unnest(array[old.scheduled_for, greatest(old.scheduled_for, old.queued_at)]) as at
    ), from_tenant as (
        delete from fairlead.ready r using due
        where r.host_id is null and r.tenant_id = old.tenant_id and r.definition_id = old.definition_id
            and r.priority = old.priority and r.scheduled_for = due.at and r.job_id = edit_waiting.job
        returning false as alone, false as held, false as sleeps
    ), from_host as (
        delete from fairlead.ready r using due
        where r.host_id = old.host_id and r.tenant_id = old.tenant_id and r.definition_id = old.definition_id
            and r.priority = old.priority and r.scheduled_for = due.at and r.job_id = edit_waiting.job
        returning false as alone, false as held, false as sleeps
    ), from_later as (
        delete from fairlead.later l where l.due_at = old.scheduled_for and l.job_id = edit_waiting.job
        returning l.alone, l.held, l.waits
    )
    select p.alone, p.held, p.sleeps into place
    from (table from_tenant union all table from_host union all table from_later) p;
    if not found then
        return;
    end if;

    new_at := case when edit_waiting.scheduled_for is null then old.scheduled_for
        else greatest(edit_waiting.scheduled_for, moment) end;
    new_host := case when edit_waiting.with_target then edit_waiting.host_id else old.host_id end;
    is_held := place.held and new_key is not distinct from old.limit_key and new_at <= moment;
    waits := place.alone or is_held or new_at > moment;
    -- a job that has to start in time has as long after its new time
    new_expiry := old.expires_at + (new_at - greatest(old.scheduled_for, old.queued_at));
    if edit_waiting.scheduled_for is not null and new_expiry is not null then
        delete from fairlead.expiries e where e.expires_at = old.expires_at and e.job_id = edit_waiting.job;
        insert into fairlead.expiries (expires_at, job_id, tenant_id)
        values (new_expiry, edit_waiting.job, old.tenant_id) on conflict do nothing;
    else
        new_expiry := old.expires_at;
    end if;
    if edit_waiting.tags is not null then
        delete from fairlead.job_tags t
        where t.tenant_id = old.tenant_id and t.job_id = edit_waiting.job and t.tag = any(old.tags);
        insert into fairlead.job_tags (tenant_id, tag, job_id)
        select old.tenant_id, t.tag, edit_waiting.job from unnest(edit_waiting.tags) as t(tag);
    end if;
    update fairlead.job_records j
    set payload = coalesce(edit_waiting.payload, j.payload), priority = coalesce(edit_waiting.priority, j.priority),
        scheduled_for = new_at, limit_key = new_key, host_id = new_host, expires_at = new_expiry,
        tags = case when edit_waiting.tags is null then j.tags when cardinality(edit_waiting.tags) > 0 then edit_waiting.tags end,
        resource_id = case when edit_waiting.with_target then edit_waiting.resource_id else j.resource_id end
    where j.id = edit_waiting.job;
    if waits then
        insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, alone, held, waits, limit_key)
        values (edit_waiting.job, old.tenant_id, old.definition_id, new_host,
            coalesce(edit_waiting.priority, old.priority), new_at, place.alone, is_held,
            -- an event, a signal or the end of a child may still wake a durable function earlier
            place.sleeps, new_key);
    else
        insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
        values (edit_waiting.job, old.tenant_id, old.definition_id, new_host,
            coalesce(edit_waiting.priority, old.priority), greatest(new_at, old.queued_at), new_key);
    end if;
    if old.limit_key is not null and (waits or new_key is distinct from old.limit_key) then
        released := fairlead.release_keys(array[old.definition_id], array[old.tenant_id], array[old.limit_key]);
    end if;
    outcome := 'edited';
end
$$;

revoke execute on function fairlead.edit_waiting from public;
grant execute on function fairlead.edit_waiting to fairlead_tenant;
