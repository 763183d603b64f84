-- Enqueues jobs for the library in the caller's own transaction. One JSON text in and one out, which every driver can
-- send. The library has validated the payloads against `expected_version`; if one job is refused or its definition has
-- changed, none is inserted. A `delay` starts at the database's clock.
create or replace function fairlead.enqueue_joined(jobs text) returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
    now_on constant timestamptz := clock_timestamp();
    asked jsonb := enqueue_joined.jobs::jsonb;
    refused jsonb;
    answers jsonb;
    any_ready boolean;
    any_later boolean;
    over jsonb;
begin
    -- on Citus: perform fairlead.hold_placement();
    select jsonb_agg(jsonb_build_object('at', c.at - 1, 'outcome', c.refusal, 'definition', c.definition) order by c.at)
    into refused
    from (
        select j.at, r.definition, coalesce(
            r.refusal,
            case when r.sealed_paths is not null and fairlead.has_plain_secret(r.sealed_paths, j.job -> 'payload')
                then 'encryption_key_missing' end,
            fairlead.refusal_of(
                j.job -> 'payload', (j.job ->> 'priority')::integer, due.scheduled_for,
                (j.job ->> 'max_attempts')::integer, j.job ->> 'dedupe_key', j.job ->> 'correlation_id'),
            case when j.job ?| '{tags,timeout,expires_in,unique_for,debounce}' and not fairlead.options_fit(
                    case when j.job ? 'tags' then array(select jsonb_array_elements_text(j.job -> 'tags')) end,
                    (j.job ->> 'timeout')::float8, (j.job ->> 'expires_in')::float8, (j.job ->> 'unique_for')::float8,
                    j.job -> 'debounce', j.job ->> 'dedupe_key', due.scheduled_for) then 'invalid_input' end,
            case when exists (select from fairlead.jobs t where t.id = (j.job ->> 'id')::uuid) then 'job_id_taken' end,
            (select t.refusal from fairlead.target_of(
                r.tenant_id, r.definition_id, j.job -> 'payload', (j.job ->> 'host_id')::uuid,
                (j.job ->> 'resource_id')::uuid) t)
        ) as refusal
        from jsonb_array_elements(asked) with ordinality as j(job, at)
        cross join lateral fairlead.resolve(
            j.job ->> 'tenant', j.job ->> 'definition', coalesce((j.job ->> 'expected_version')::integer, 0)) r
        cross join lateral (select coalesce(
            (j.job ->> 'scheduled_for')::timestamptz,
            now_on + make_interval(secs => (j.job ->> 'delay')::float8)) as scheduled_for) due
    ) c
    where c.refusal is not null;
    if refused is not null then
        return jsonb_build_object('refused', refused)::text;
    end if;

    -- check the quotas for all jobs together; jobs that will be deduplicated do not count
    with asked_for as (
        select j.at, r.tenant_id, (j.job ->> 'parent_id')::uuid as parent_id, j.job -> 'quotas' as quotas
        from jsonb_array_elements(asked) with ordinality as j(job, at)
        cross join lateral fairlead.resolve(j.job ->> 'tenant', j.job ->> 'definition', null) r
        where (j.job ->> 'dedupe_key' is null or not exists (
                select from fairlead.active_keys k
                where k.tenant_id = r.tenant_id and k.key_hash = sha256(convert_to(j.job ->> 'dedupe_key', 'UTF8'))))
            and (j.job ->> 'debounce' is null or not exists (
                select from fairlead.debounces d
                where d.tenant_id = r.tenant_id and d.key_hash = sha256(convert_to(
                    concat_ws(' ', r.definition_id, j.job -> 'debounce' ->> 'key'), 'UTF8'))))
    ), parts as materialized (
        select null::uuid as root, a.tenant_id, count(*) as jobs, min(a.at) as at,
            coalesce((array_agg(a.quotas))[1], '{}') as quotas
        from asked_for a group by a.tenant_id
        union all
        select f.root, null, sum(p.jobs), min(p.at), coalesce((array_agg(p.quotas))[1], '{}')
        from (
            select a.parent_id, count(*) as jobs, min(a.at) as at, (array_agg(a.quotas))[1] as quotas
            from asked_for a where a.parent_id is not null group by a.parent_id) p
        cross join lateral (select fairlead.root_run_of(p.parent_id) as root offset 0) f
        where f.root is not null group by f.root
    )
    select jsonb_agg(jsonb_build_object('at', o.at - 1, 'outcome', 'quota_exceeded', 'quota', o.quota) order by o.at)
    into over
    from (
        select p.at, case when p.root is null then fairlead.room_of(p.tenant_id, p.jobs::bigint, p.quotas)
            else fairlead.room_in_run(p.root, p.jobs::bigint, p.quotas) end as quota
        from parts p order by p.at) o
    where o.quota is not null;
    if over is not null then
        return jsonb_build_object('refused', over)::text;
    end if;

    -- in the order in which bulk loads lock dedupe keys and the turns of limit keys, so that two callers cannot deadlock
    select jsonb_agg(jsonb_build_object('at', o.at - 1, 'outcome', o.outcome, 'job_id', o.job_id) order by o.at),
        bool_or(not o.waits), bool_or(o.waits)
    into answers, any_ready, any_later
    from (
        select j.at, e.outcome, e.job_id, e.waits
        from (
            select a.job, a.at
            from jsonb_array_elements(asked) with ordinality as a(job, at)
            cross join lateral fairlead.resolve(a.job ->> 'tenant', a.job ->> 'definition', null) r
            cross join lateral (
                select case when r.by_key ->> 'strategy' <> 'queue' and not a.job ? 'debounce'
                    then fairlead.limit_key_of(r.by_key, a.job -> 'payload') end as limit_key offset 0) l
            order by a.job ? 'debounce', l.limit_key is not null, r.tenant_id,
                case when l.limit_key is null then sha256(convert_to(a.job ->> 'dedupe_key', 'UTF8')) end,
                case when l.limit_key is not null then r.definition_id end, l.limit_key,
                sha256(convert_to(concat_ws(' ', r.definition_id, a.job -> 'debounce' ->> 'key'), 'UTF8')), a.at
            offset 0
        ) j
        cross join lateral fairlead.enqueue_one(
            tenant => j.job ->> 'tenant',
            definition_key => j.job ->> 'definition',
            payload => j.job -> 'payload',
            priority => (j.job ->> 'priority')::integer,
            scheduled_for => coalesce(
                (j.job ->> 'scheduled_for')::timestamptz,
                now_on + make_interval(secs => (j.job ->> 'delay')::float8)),
            max_attempts => (j.job ->> 'max_attempts')::integer,
            dedupe_key => j.job ->> 'dedupe_key',
            correlation_id => j.job ->> 'correlation_id',
            source => coalesce(j.job ->> 'source', 'manual')::fairlead.job_source,
            source_ref => j.job ->> 'source_ref',
            parent_id => (j.job ->> 'parent_id')::uuid,
            actor => j.job ->> 'actor',
            id => (j.job ->> 'id')::uuid, trace => left(j.job ->> 'trace', 600),
            host_id => (j.job ->> 'host_id')::uuid, resource_id => (j.job ->> 'resource_id')::uuid,
            quotas => null,
            tags => case when j.job ? 'tags' then array(select jsonb_array_elements_text(j.job -> 'tags')) end,
            timeout => ceil((j.job ->> 'timeout')::float8)::integer, expires_in => (j.job ->> 'expires_in')::float8,
            unique_for => (j.job ->> 'unique_for')::float8, debounce => j.job -> 'debounce') e
    ) o;
    -- since the checks above, a tenant has begun to move, or a definition or a host is gone
    select jsonb_agg(jsonb_build_object('at', a.answer -> 'at', 'outcome', a.answer -> 'outcome', 'definition', null))
    into refused
    from jsonb_array_elements(answers) as a(answer)
    where a.answer ->> 'outcome' not in ('enqueued', 'deduplicated');
    if jsonb_array_length(refused) = jsonb_array_length(answers) then
        return jsonb_build_object('refused', refused)::text;
    elsif refused is not null then
        raise exception 'not enqueued: the tenant, the definition or the host of a job was changed at the same time'
            using errcode = 'transaction_rollback', detail = refused #>> '{0,outcome}',
            hint = 'Roll back and run the transaction again.';
    end if;
    if any_ready then
        perform fairlead.notify_in_transaction('ready');
    end if;
    if any_later then
        perform fairlead.notify_in_transaction('later');
    end if;
    return jsonb_build_object('enqueued', answers)::text;
end
$$;

revoke execute on function fairlead.enqueue_joined from public;
