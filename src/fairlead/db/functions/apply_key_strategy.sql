-- What an enqueue does to the other jobs of its key, by the strategy of the definition. Returns a job of the key if the new
-- job is to be dropped. Enqueues of one key take turns here until they commit. Claims and ends of attempts do not wait for
-- them, since nothing here takes a lock of key_locks. Only the end of a job that cancel_running asks to stop waits for the
-- commit of that request.
--
-- The other way round, an enqueue waits for claims and others that hold a job of the key: a claim locks more jobs than it
-- starts, and those that it leaves are to be canceled, too. With `waits` false, it leaves out what others hold.
create or replace function fairlead.apply_key_strategy(
    definition uuid, tenant uuid, limit_key uuid, by_key jsonb, new_job uuid, actor text, waits boolean default true
) returns uuid language plpgsql volatile as $$
#variable_conflict use_column
declare
    strategy constant text := coalesce(by_key ->> 'strategy', 'queue');
    most constant integer := (by_key ->> 'max_running')::integer;
    running uuid[];
    waiting uuid[];
    canceled uuid[];
    any_canceled boolean := false;
begin
    if strategy = 'queue' then
        return null;
    end if;
    perform pg_advisory_xact_lock(fairlead.key_turn_of(definition, tenant, apply_key_strategy.limit_key));
    -- A few rounds: a job may move from one table to the other while this waits for it.
    for _ in 1..20 loop
        if waits and strategy <> 'drop_new' then
            perform from fairlead.ready r
            where r.definition_id = definition and r.tenant_id = tenant and r.limit_key = apply_key_strategy.limit_key
            order by r.job_id for update;
            perform from fairlead.later l
            where l.definition_id = definition and l.tenant_id = tenant and l.limit_key = apply_key_strategy.limit_key
            order by l.job_id for update;
        end if;
        -- one statement: each job is in one of the tables
        select array(
                select l.job_id from fairlead.leases l
                where l.definition_id = definition and l.tenant_id = tenant and l.limit_key = apply_key_strategy.limit_key),
            array(
                select r.job_id from fairlead.ready r
                where r.definition_id = definition and r.tenant_id = tenant and r.limit_key = apply_key_strategy.limit_key
                union all
                select l.job_id from fairlead.later l
                where l.definition_id = definition and l.tenant_id = tenant and l.limit_key = apply_key_strategy.limit_key)
        into running, waiting;
        exit when strategy = 'drop_new' or waiting = '{}';
        canceled := fairlead.cancel_waiting(
            waiting, 'replaced', format('Job %s with the same key has replaced it.', new_job), actor);
        any_canceled := any_canceled or canceled <> '{}';
        -- steps of workflow runs stay
        exit when not waits or not exists (
            select from fairlead.job_records j
            where j.id = any(waiting) and j.id <> all(canceled) and j.workflow_run_id is null and j.status = 'queued');
    end loop;
    if strategy = 'drop_new' then
        -- with a rate alone, any number may run and one may wait
        if cardinality(running) + cardinality(waiting) >= most or most is null and cardinality(waiting) > 0 then
            return (select max(one::text)::uuid from unnest(running || waiting) one);
        end if;
        return null;
    end if;
    if any_canceled then
        -- a step of a workflow run may now be the first
        perform fairlead.let_held_go(definition, tenant, apply_key_strategy.limit_key, by_key);
    end if;
    if strategy = 'cancel_running' and cardinality(running) >= most then
        with asked as (
            update fairlead.job_records j set cancel_requested_at = clock_timestamp()
            where j.id = any(running) and j.cancel_requested_at is null
            returning j.id, j.cancel_requested_at
        )
        insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
        select a.cancel_requested_at, apply_key_strategy.tenant, apply_key_strategy.actor, 'JOB_CANCEL_REQUESTED', 'job',
            a.id::text, jsonb_build_object('definition_key', d.key, 'reason', 'replaced')
        from asked a, fairlead.job_definitions d where d.id = apply_key_strategy.definition;
        perform fairlead.notify_in_transaction('cancel');
    end if;
    return null;
end
$$;

revoke execute on function fairlead.apply_key_strategy from public;
grant execute on function fairlead.apply_key_strategy to fairlead_tenant;
