-- Claims one suspect for a worker: a job that was lost together with other jobs of its worker, and that therefore waits in
-- later to be started alone. It takes the oldest due one that the worker serves and that no gate or limit holds back.
--
-- `idle`: the worker runs nothing. A worker that runs jobs gets no accused job, unless that job has waited for ten leases.
-- Null: only a worker without any lease gets a suspect. `only_look` claims nothing: the result has `waiting` if there is a
-- suspect for an idle worker. `labels` are those of the worker, and `most_slots` how many slots the suspect may take.
--
-- The result is that of fairlead.claim, with `probations`: the seconds for which the worker starts no other job. The first
-- probation is a third of a lease, at most ten seconds; it doubles with each further loss, to at most five minutes.
create or replace function fairlead.claim_suspect(
    worker text, token uuid, lease_seconds double precision, served uuid[], served_pairs text[] default null,
    idle boolean default null, with_waits boolean default false, only_look boolean default false,
    labels jsonb default '{}', most_slots integer default null
) returns json language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off
set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    first_one constant uuid := '00000000-0000-0000-0000-000000000000';
    -- an accused job that fell due before this has waited long enough
    long_ago constant timestamptz := clock_timestamp() - make_interval(secs => claim_suspect.lease_seconds * 10);
    is_idle constant boolean := coalesce(claim_suspect.idle, true) or claim_suspect.only_look;
    pair record;
    left_over record;
    spot tid;
    job uuid;
    now_on timestamptz;
    answer json;
begin
    perform fairlead.need_read_committed();
    if not (select s.online from fairlead.system s) then
        return '{}';
    end if;

    for pair in
        with recursive walk as (
            select first_one as tenant_id, first_one as definition_id
            union all
            select hop.tenant_id, hop.definition_id from walk w cross join lateral (
                select l.tenant_id, l.definition_id from fairlead.later l
                where l.alone and (l.tenant_id, l.definition_id) > (w.tenant_id, w.definition_id)
                order by l.tenant_id, l.definition_id, l.due_at, l.job_id limit 1) hop
        )
        select t.id as tenant_id, d.id as definition_id, t.slug, head.due_at,
            t.max_running as tenant_limit, fairlead.definition_limit(d.id, d.max_running) as definition_limit, d.max_running_per_tenant as pair_limit,
            coalesce(t.max_running, d.max_running, d.max_running_per_tenant) is not null as limited,
            coalesce(t.rate, d.rate, d.rate_per_tenant, d.by_key, (select s.rate from fairlead.system s)) is not null
                as has_more_limits
        from walk w, fairlead.tenants t, fairlead.job_definitions d, lateral (
            select l.due_at from fairlead.later l join fairlead.job_records j on j.id = l.job_id
            where l.alone and l.tenant_id = w.tenant_id and l.definition_id = w.definition_id
                and l.due_at <= clock_timestamp() and (is_idle or not j.accused or l.due_at < long_ago)
            order by l.due_at, l.job_id limit 1) head
        where (claim_suspect.served is null or w.definition_id = any(claim_suspect.served)
                or (claim_suspect.served_pairs is not null
                    and w.definition_id || ' ' || w.tenant_id = any(claim_suspect.served_pairs)))
            and t.id = w.tenant_id and d.id = w.definition_id and t.paused_at is null and d.paused_at is null
            and (d.requires is null or d.requires <@ claim_suspect.labels)
            and (claim_suspect.most_slots is null or d.slots <= claim_suspect.most_slots)
            and fairlead.closed_until(
                t.id, t.max_running, t.rate, d.id, d.max_running, d.rate, d.max_running_per_tenant, d.rate_per_tenant,
                clock_timestamp()) is null
        order by head.due_at
    loop
        if claim_suspect.only_look then
            return json_build_object('waiting', true);
        end if;
        if claim_suspect.idle is null and exists (
                select from fairlead.leases l where l.worker_id = claim_suspect.worker) then
            return '{}';
        end if;
        if pair.limited then
            select b.* into left_over from fairlead.budgets(
                array[pair.tenant_id], array[pair.definition_id], array[pair.tenant_limit], array[pair.definition_limit],
                array[pair.pair_limit], null, null, 1, '{}') b;
            continue when left_over.missed <> '{}' or least(
                (left_over.places ->> pair.tenant_id::text)::integer,
                (left_over.places ->> pair.definition_id::text)::integer,
                (left_over.places ->> (pair.definition_id || ' ' || pair.tenant_id))::integer) < 1;
        end if;
        select l.ctid, l.job_id into spot, job from fairlead.later l join fairlead.job_records j on j.id = l.job_id
        where l.alone and l.tenant_id = pair.tenant_id and l.definition_id = pair.definition_id
            and l.due_at <= clock_timestamp() and (is_idle or not j.accused or l.due_at < long_ago)
        order by l.due_at, l.job_id limit 1 for update of l skip locked;
        now_on := case when spot is null then null
            when pair.has_more_limits then fairlead.start_alone(job) else clock_timestamp() end;
        exit when now_on is not null;
        spot := null;
    end loop;
    if spot is null then
        return '{}';
    end if;

    with gone as (
        delete from fairlead.later l where l.ctid = spot
        returning l.job_id
    ), started as (
        select j.*, j.attempt_count + 1 as attempt_no, least(
            least(claim_suspect.lease_seconds / 3, 10) * 2 ^ greatest(0, least(j.suspected - 2, 10)), 300,
            coalesce(j.timeout_seconds, d.timeout_seconds)) as probation,
            json_build_array(d.key, d.timeout_seconds, d.backoff, d.secret_paths, d.slots) as terms
        from gone g
        cross join lateral (select j.* from fairlead.job_records j where j.id = g.job_id limit 1) j
        join fairlead.job_definitions d on d.id = j.definition_id
    ), leased as (
        insert into fairlead.leases (
            job_id, attempt_no, token, worker_id, tenant_id, definition_id, host_id, started_at, expires_at,
            probation_until, queue_ms, limit_key)
        select s.id, s.attempt_no, claim_suspect.token, claim_suspect.worker, s.tenant_id, s.definition_id, s.host_id,
            now_on, now_on + make_interval(secs => claim_suspect.lease_seconds), now_on + make_interval(secs => s.probation),
            greatest(0, date_part('epoch', now_on - greatest(s.scheduled_for, s.queued_at)) * 1000), s.limit_key
        from started s
    ), counted as (
        insert into fairlead.counts (tenant_id, definition_id, minute, queued, running)
        select s.tenant_id, s.definition_id, date_trunc('minute', now_on), -1, 1 from started s
    )
    select json_build_object(
        'tenants', json_build_object(s.tenant_id, pair.slug),
        'definitions', json_build_array(s.terms),
        'jobs', json_build_array(json_build_array(
            s.id, s.attempt_no, s.tenant_id, 0, s.payload, s.max_attempts, s.failure_count, s.lost_count, s.parent_id,
            s.correlation_id)),
        'steps', case when s.workflow_run_id is not null then json_build_array(s.id) end,
        'timeouts', case when s.timeout_seconds is not null then json_build_object(s.id, s.timeout_seconds) end,
        'secrets', case when s.secret_paths is not null then json_build_object(s.id, s.secret_paths) end,
        'traces', case when s.trace is not null then json_build_object(s.id, s.trace) end,
        'waits', case when claim_suspect.with_waits
            then json_build_object(s.id, date_part('epoch', now_on - greatest(s.scheduled_for, s.queued_at))) end,
        'probations', json_build_object(s.id, s.probation))
    into answer from started s;
    return answer;
end
$$;

revoke execute on function fairlead.claim_suspect from public;
