-- Claims up to `wanted` jobs for a worker, or jobs that need up to `wanted` slots.
--
-- `served` are the definitions that the worker can run (null: all), `served_pairs` those that it can run for one tenant
-- only, as 'definition tenant'. Tenants take turns in the order of their ids, in a circle; `at_tenant` is the tenant of
-- the worker's last turn, and `credit` how many jobs are left of it. With `host`, only jobs of that host are claimed.
--
-- Jobs of definitions that require labels are only for workers with these `labels`, or for hosts with them. A worker without
-- the labels that a definition prefers leaves its jobs to the live workers that have them, until the first one has waited
-- for `prefer_seconds`. With `most_slots`, jobs take the slots of their definitions: the jobs chosen take `wanted` slots at
-- most, and definitions that need more than `most_slots` are left to other workers. Without it, each job takes one.
--
-- The function works in five parts, marked below:
--   1. pairs with work: walk round the circle for pairs of tenant and definition that have ready jobs and open gates
--   2. limits: how many more jobs may run in each limited scope
--   3. turns between tenants: lock the first jobs of these pairs, and choose among them in turns
--   4. take: move the chosen jobs from ready to leases
--   5. answer: one JSON document
--
-- The answer is one document because reading a row's columns one by one costs the worker more than the rest of its work:
-- `jobs` in the order they should start, the `tenants` that they name by id and the `definitions` by position, `cursor`
-- where the next claim goes on, `busy` if another claim held a limit, so that it is worth looking again soon, and
-- `crowded` if work waits for a limit or for slots, so that it is worth looking when one of the worker's jobs has ended, and `opens_in`,
-- if work waits for a rate or for other workers, the seconds until it may start. `short_of`: how many slots the next job
-- needs, if that is more than there are. `again`: jobs were held back by their keys, and
-- others may have been behind them. An answer
-- without jobs means that nothing may run now, all the way round: a tenant whose limit or jobs another claim holds is
-- passed over like a full one.
create or replace function fairlead.claim(
    worker text, token uuid, wanted integer, lease_seconds double precision, served uuid[], at_tenant uuid,
    credit integer, host uuid default null, served_pairs text[] default null, with_waits boolean default false,
    labels jsonb default '{}', most_slots integer default null, prefer_seconds double precision default 5
) returns text language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off
set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    nil_id constant uuid := '00000000-0000-0000-0000-000000000000';
    max_id constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    -- The walk begins after this pair, and ends there.
    start_tenant uuid := coalesce(claim.at_tenant, nil_id);
    start_definition uuid := case when claim.credit > 0 then nil_id else max_id end;
    -- Where the next section of the walk begins: there is one only if the last section had nothing to take.
    from_tenant uuid := start_tenant;
    from_definition uuid := start_definition;
    from_lap integer := 0;
    resumed boolean := false;
    -- Pairs that the walk passed and may not take. After `closed_limit` of them it starts again in another way: through
    -- the open definitions, if they are few, and past the tenants that are full.
    closed integer;
    closed_limit integer := 16;
    open_definitions uuid[];
    full_tenants jsonb;
    -- those of the open definitions that are not left to other workers; after `left_limit` pairs, only their pairs are visited
    own_definitions uuid[];
    left_limit constant integer := 64;
    -- limits that other claims hold: full, for this claim
    held_limits text[] := '{}';
    -- the pairs found, one place in each array
    tenants uuid[];
    definitions uuid[];
    weights integer[];
    slugs text[];
    -- Each pair's first job, where the scan of its jobs begins: index entries before it are dead, and while an old
    -- transaction holds vacuum back, there may be many of them.
    priorities integer[];
    due_times timestamptz[];
    job_ids uuid[];
    tenant_limits integer[];
    definition_limits integer[];
    pair_limits integer[];
    host_limit integer;
    system_rate jsonb;
    -- when a rate that holds work back allows the next start
    opens_at timestamptz;
    -- the buckets of rates that this claim holds: see rate_room.sql
    buckets jsonb;
    -- the time of the starts, if the rate of a key was counted at that time
    started_at timestamptz;
    closed_rate timestamptz;
    -- how many jobs this claim may take: `wanted`, or as many as the rate of the system allows
    most_jobs integer;
    -- how many more jobs may run in each limited scope
    room jsonb;
    limited boolean;
    rated boolean;
    -- whether a definition limits jobs by key
    keyed boolean;
    key_busy boolean := false;
    -- whether jobs have expired that nothing has canceled yet
    any_expired boolean;
    dropped integer;
    -- whether a definition takes more than one slot
    sized boolean;
    short_of integer;
    short_tenant uuid;
    short_credit integer;
    -- the turn of each chosen job: round, place of the tenant, place within the tenant, what is then left of the tenant's turn
    turns integer[];
    -- whether it held jobs back, so that others may now be the first
    again boolean := false;
    most integer;
    -- the rows of ready to take; and in the order of their turns, also those that were left out later
    ready_rows tid[];
    in_turn tid[];
    definition_ids uuid[];
    next_tenant uuid;
    next_credit integer;
    crowded boolean := false;
    claimed_at timestamptz;
    lease_ends timestamptz;
    answer json;
    job_list text;
begin
    perform fairlead.need_read_committed();
    claimed_at := clock_timestamp();
    if claim.wanted >= 1 then
        select s.rate, exists (select from fairlead.expiries e where e.expires_at <= claimed_at)
        into system_rate, any_expired from fairlead.system s where s.online;
    end if;
    if claim.wanted < 1 or not found then
        return '{}';
    end if;
    if system_rate is not null then
        opens_at := fairlead.rate_opens_at(null, null, system_rate, claimed_at);
        if opens_at is not null then
            return json_build_object('opens_in', date_part('epoch', opens_at - claimed_at));
        end if;
    end if;

    loop
        -- 1. Pairs with work. Each step of the recursion jumps to the next pair in the index, so its cost is the number of
        -- pairs, whatever the number of jobs. It ends with `wanted` open tenants: each of them gets at least one job.
        if claim.host is null then
            with recursive walk as (
                select from_tenant as tenant_id, from_definition as definition_id, from_lap as lap,
                    nil_id as open_tenant, 0 as open_tenants,
                    null::integer as weight, null as slug, false as limited, false as rated, false as keyed, false as sized,
                    null::timestamptz as closed_until,
                    0 as priority, '-infinity'::timestamptz as scheduled_for, nil_id as job_id, 0 as closed
                union all
                select hop.tenant_id, hop.definition_id, hop.lap,
                    case when gate.weight is null then w.open_tenant else hop.tenant_id end,
                    w.open_tenants + (gate.weight is not null and hop.tenant_id <> w.open_tenant)::integer,
                    gate.weight, gate.slug, gate.limited, gate.rated, gate.keyed, gate.sized, gate.closed_until, hop.priority, hop.scheduled_for, hop.job_id,
                    w.closed + (gate.weight is null)::integer
                from walk w
                cross join lateral (
                    (select r.tenant_id, r.definition_id, w.lap, r.priority, r.scheduled_for, r.job_id from fairlead.ready r
                     where open_definitions is null and r.host_id is null
                        and (r.tenant_id, r.definition_id) > (w.tenant_id, w.definition_id)
                        and (r.tenant_id, r.definition_id) <= (
                            case w.lap when 0 then max_id else start_tenant end,
                            case w.lap when 0 then max_id else start_definition end)
                     order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1)
                    union all
                    (select r.tenant_id, r.definition_id, 1, r.priority, r.scheduled_for, r.job_id from fairlead.ready r
                     where open_definitions is null and w.lap = 0 and r.host_id is null
                        and (r.tenant_id, r.definition_id) <= (start_tenant, start_definition)
                     order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1)
                    union all
                    (select n.tenant_id, n.definition_id, n.lap, n.priority, n.scheduled_for, n.job_id
                     from fairlead.next_pair(
                        w.tenant_id, w.definition_id, w.lap, start_tenant, start_definition,
                        case when w.closed < left_limit then open_definitions else own_definitions end, full_tenants) n
                     where open_definitions is not null and n.tenant_id is not null)
                    limit 1
                ) hop
                -- the gates: pauses, the definitions that this worker serves, labels, slots, limits
                left join lateral (
                    select case when scope.closed_until is null then t.weight end as weight, t.slug, scope.limited,
                        scope.rated, d.by_key is not null as keyed, d.slots > 1 as sized, scope.closed_until
                    from fairlead.tenants t, fairlead.job_definitions d, lateral (
                        select limits.are_set as limited, limits.are_rates as rated, case
                            when not limits.are_set and not limits.are_rates and d.prefers is null then null
                            when resumed and array[t.id::text, d.id::text, d.id || ' ' || t.id] && held_limits then 'infinity'
                            else greatest(
                                case when limits.are_set or limits.are_rates then fairlead.closed_until(
                                    t.id, t.max_running, t.rate, d.id, d.max_running, d.rate, d.max_running_per_tenant,
                                    d.rate_per_tenant, claimed_at) end,
                                case when not d.prefers <@ claim.labels then fairlead.left_until(
                                    d.id, t.id, hop.scheduled_for, claim.prefer_seconds, claimed_at) end)
                            end as closed_until
                        from (values (
                            coalesce(t.max_running, d.max_running, d.max_running_per_tenant) is not null,
                            coalesce(t.rate, d.rate, d.rate_per_tenant) is not null)) as limits(are_set, are_rates)
                    ) scope
                    where (claim.served is null or hop.definition_id = any(claim.served)
                            or (claim.served_pairs is not null
                                and hop.definition_id || ' ' || hop.tenant_id = any(claim.served_pairs)))
                        and t.id = hop.tenant_id and d.id = hop.definition_id
                        and t.paused_at is null and d.paused_at is null
                        and (d.requires is null or d.requires <@ claim.labels)
                        and (claim.most_slots is null or d.slots <= claim.most_slots)
                ) gate on true
                where w.closed < closed_limit and (w.open_tenants < claim.wanted or hop.tenant_id = w.open_tenant)
            )
            select array_agg(w.tenant_id) filter (where w.weight is not null),
                array_agg(w.definition_id) filter (where w.weight is not null),
                array_agg(w.weight) filter (where w.weight is not null),
                array_agg(w.slug) filter (where w.weight is not null),
                array_agg(w.priority) filter (where w.weight is not null),
                array_agg(w.scheduled_for) filter (where w.weight is not null),
                array_agg(w.job_id) filter (where w.weight is not null),
                coalesce(bool_or(w.limited) filter (where w.weight is not null), false),
                coalesce(bool_or(w.rated) filter (where w.weight is not null), false), coalesce(bool_or(w.keyed), false),
                coalesce(bool_or(w.sized), false) and claim.most_slots is not null,
                coalesce(bool_or(w.closed_until = 'infinity'), false),
                least(opens_at, min(w.closed_until) filter (where w.closed_until < 'infinity')), max(w.closed)
            into tenants, definitions, weights, slugs, priorities, due_times, job_ids, limited, rated, keyed, sized, crowded, opens_at,
                closed
            from walk w;
            if closed >= closed_limit then
                -- start again, and visit only pairs whose gates are open
                closed_limit := 2147483647;
                open_definitions := fairlead.open_definitions(
                    claim.served, claim.served_pairs, claimed_at, claim.labels, claim.most_slots);
                if open_definitions is not null then
                    own_definitions := array(
                        select d.id from fairlead.job_definitions d
                        where d.id = any(open_definitions) and (d.prefers is null or d.prefers <@ claim.labels));
                    select f.tenants, least(opens_at, f.opens_at) into full_tenants, opens_at
                    from fairlead.full_tenants(claimed_at) f;
                    opens_at := least(opens_at, (
                        select min(fairlead.rate_opens_at(d.id, null, d.rate, claimed_at))
                        from fairlead.job_definitions d where d.rate is not null));
                end if;
                continue;
            end if;
            if open_definitions is not null and not crowded then
                -- the walk left out full definitions and tenants
                crowded := full_tenants is not null
                    or exists (select from fairlead.job_definitions d where d.max_running is not null);
            end if;
        else
            -- A host belongs to one tenant: there is nothing to share, and all its jobs are one turn.
            with recursive walk as (
                select nil_id as tenant_id, nil_id as definition_id
                union all
                select hop.tenant_id, hop.definition_id from walk w cross join lateral (
                    select r.tenant_id, r.definition_id from fairlead.ready r
                    where r.host_id = claim.host and (r.tenant_id, r.definition_id) > (w.tenant_id, w.definition_id)
                    order by r.host_id, r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit 1) hop
            )
            select array_agg(w.tenant_id), array_agg(w.definition_id), array_agg(t.slug), true,
                bool_or(coalesce(t.rate, d.rate, d.rate_per_tenant) is not null), bool_or(d.by_key is not null),
                bool_or(d.slots > 1) and claim.most_slots is not null, min(h.max_running)
            into tenants, definitions, slugs, limited, rated, keyed, sized, host_limit
            from walk w, fairlead.tenants t, fairlead.job_definitions d, fairlead.hosts h
            where (claim.served is null or w.definition_id = any(claim.served)
                    or (claim.served_pairs is not null
                        and w.definition_id || ' ' || w.tenant_id = any(claim.served_pairs)))
                and t.id = w.tenant_id and d.id = w.definition_id and h.id = claim.host
                and t.paused_at is null and d.paused_at is null and h.paused_at is null
                and (d.requires is null or d.requires <@ fairlead.label_texts(h.labels))
                and (claim.most_slots is null or d.slots <= claim.most_slots);
        end if;
        if tenants is null then
            return json_build_object(
                'again', again, 'busy', held_limits <> '{}' or key_busy, 'crowded', crowded or resumed,
                'opens_in', date_part('epoch', opens_at - claimed_at));
        end if;

        -- 2. Limits. The locks of the limited scopes make the counts exact: see functions/budgets.sql.
        room := null;
        if limited then
            select array_agg(t.max_running order by p.n), array_agg(fairlead.definition_limit(d.id, d.max_running) order by p.n),
                array_agg(d.max_running_per_tenant order by p.n)
            into tenant_limits, definition_limits, pair_limits
            from unnest(tenants, definitions) with ordinality as p(tenant_id, definition_id, n)
            join fairlead.tenants t on t.id = p.tenant_id
            join fairlead.job_definitions d on d.id = p.definition_id;
            select b.missed, b.places into held_limits, room from fairlead.budgets(
                tenants, definitions, tenant_limits, definition_limits, pair_limits, claim.host, host_limit,
                claim.wanted, held_limits) b;
        end if;
        buckets := null;
        if rated or system_rate is not null then
            select b.missed, b.room, b.buckets, b.opens_at into held_limits, room, buckets, closed_rate
            from fairlead.rate_room(tenants, definitions, system_rate, held_limits, room) b;
            opens_at := least(opens_at, closed_rate);
            limited := limited or buckets is not null;
        end if;
        most_jobs := least(claim.wanted, (room ->> 'system')::integer);

        -- 3. Turns between tenants. Rows that another claim has locked are skipped.
        if claim.host is not null then
            select array_agg(h.spot order by h.priority, h.scheduled_for, h.job_id) into ready_rows
            from (
                select h.*
                from unnest(tenants, definitions) as p(tenant_id, definition_id)
                cross join lateral (
                    select r.ctid as spot, r.priority, r.scheduled_for, r.job_id from fairlead.ready r
                    where r.host_id = claim.host and r.tenant_id = p.tenant_id and r.definition_id = p.definition_id
                    order by r.host_id, r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id
                    limit least(most_jobs, (room ->> claim.host::text)::integer,
                        (room ->> p.definition_id::text)::integer,
                        (room ->> (p.definition_id || ' ' || p.tenant_id))::integer)
                    for update skip locked) h
                order by h.priority, h.scheduled_for, h.job_id
                limit least(most_jobs, (room ->> claim.host::text)::integer, (room ->> tenants[1]::text)::integer)
            ) h;
        elsif cardinality(tenants) = 1 then
            -- one pair, as on a quiet system: its first jobs, without turns
            most := most_jobs;
            if limited then
                most := least(most, (room ->> tenants[1]::text)::integer, (room ->> definitions[1]::text)::integer,
                    (room ->> (definitions[1] || ' ' || tenants[1]))::integer);
            end if;
            select array_agg(h.spot), tenants[1] into ready_rows, next_tenant
            from (
                select r.ctid as spot from fairlead.ready r
                where r.host_id is null and r.tenant_id = tenants[1] and r.definition_id = definitions[1]
                    and (r.priority, r.scheduled_for, r.job_id) >= (priorities[1], due_times[1], job_ids[1])
                order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id
                limit most for update skip locked) h;
            if sized and ready_rows is not null then
                select f.ready_rows, f.short_of into ready_rows, short_of
                from fairlead.fit_slots(ready_rows, claim.wanted, null) f;
            end if;
            next_credit := case when tenants[1] = claim.at_tenant and claim.credit > 0
                then least(claim.credit, weights[1]) else weights[1] end - cardinality(ready_rows);
            if next_credit < 0 then
                next_credit := weights[1] - 1 - (-next_credit - 1) % weights[1];
            end if;
        else
            -- Each tenant has `weight` jobs in each round (in the first round, what is left of its last turn), by priority
            -- and age. The jobs are chosen round by round, and within a round in the order of the circle.
            with numbered as (
                select p.tenant_id, p.definition_id, p.weight, p.priority, p.scheduled_for, p.job_id, p.n,
                    row_number() over (partition by p.tenant_id order by p.n) = 1 as is_first,
                    min(p.n) over (partition by p.tenant_id) as place,
                    least(
                        (room ->> p.tenant_id::text)::integer,
                        (room ->> p.definition_id::text)::integer,
                        (room ->> (p.definition_id || ' ' || p.tenant_id))::integer) as budget
                from unnest(tenants, definitions, weights, priorities, due_times, job_ids) with ordinality
                    as p(tenant_id, definition_id, weight, priority, scheduled_for, job_id, n)
            ), pair as materialized (
                select n.tenant_id, n.definition_id, n.weight, n.priority, n.scheduled_for, n.job_id, n.place, n.budget,
                    -- a tenant's fair share of this claim; what others leave of theirs is for the next claim
                    greatest(n.weight, ceil(
                        claim.wanted::float8 * n.weight / sum(n.weight) filter (where n.is_first) over ())::integer) as part,
                    case when n.tenant_id = claim.at_tenant and claim.credit > 0
                        then least(claim.credit, n.weight) else n.weight end as first_turn
                from numbered n
            ), head as (
                select p.tenant_id, p.definition_id, p.weight, p.place, p.first_turn, h.spot, h.priority, h.scheduled_for, h.job_id
                from pair p
                cross join lateral (
                    select r.ctid as spot, r.priority, r.scheduled_for, r.job_id from fairlead.ready r
                    where r.host_id is null and r.tenant_id = p.tenant_id and r.definition_id = p.definition_id
                        and (r.priority, r.scheduled_for, r.job_id) >= (p.priority, p.scheduled_for, p.job_id)
                    order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id
                    limit least(p.part, most_jobs, p.budget) for update skip locked) h
            ), ranked as (
                select h.*,
                    row_number() over (partition by h.tenant_id order by h.priority, h.scheduled_for, h.job_id) as of_tenant
                from head h
            ), turned as (
                select r.spot, r.tenant_id, r.definition_id, r.weight, r.first_turn, r.place, r.of_tenant,
                    case when r.of_tenant <= r.first_turn then 0
                        else 1 + (r.of_tenant - r.first_turn - 1) / r.weight end as round
                from ranked r
                where not limited
                    or coalesce(r.of_tenant <= (room ->> r.tenant_id::text)::integer, true)
            ), queued as (
                -- tenants that share the limit of a definition take turns in it, too: the first jobs chosen are the first within it
                select t.*, case when limited then row_number() over (
                    partition by t.definition_id order by t.round, t.place, t.of_tenant) end as of_definition
                from turned t
            ), dealt as (
                select q.spot, q.tenant_id, q.weight, q.first_turn, q.place, q.of_tenant, q.round
                from queued q
                where not limited
                    or coalesce(q.of_definition <= (room ->> q.definition_id::text)::integer, true)
                order by q.round, q.place, q.of_tenant
                limit most_jobs
            )
            select array_agg(d.spot order by d.round, d.place, d.of_tenant),
                (array_agg(d.tenant_id order by d.round desc, d.place desc))[1],
                (array_agg(case when d.round = 0 then d.first_turn - d.of_tenant
                    else d.weight - 1 - (d.of_tenant - d.first_turn - 1) % d.weight end
                    order by d.round desc, d.place desc, d.of_tenant desc))[1],
                array_agg(array[d.round, d.place, d.of_tenant, case when d.round = 0 then d.first_turn - d.of_tenant
                    else d.weight - 1 - (d.of_tenant - d.first_turn - 1) % d.weight end]::integer[]
                    order by d.round, d.place, d.of_tenant) filter (where sized)
            into ready_rows, next_tenant, next_credit, turns
            from dealt d;
        end if;
        in_turn := ready_rows;
        if sized and ready_rows is not null and (claim.host is not null or cardinality(tenants) > 1) then
            select f.ready_rows, f.short_of, f.short_tenant, f.short_credit
            into ready_rows, short_of, short_tenant, short_credit
            from fairlead.fit_slots(ready_rows, claim.wanted, turns) f;
            if short_of is not null then
                -- the next claim begins with the job that did not fit
                next_tenant := short_tenant;
                next_credit := short_credit;
            end if;
        end if;
        if any_expired and ready_rows is not null then
            select e.ready_rows, e.canceled into ready_rows, dropped from fairlead.leave_expired(ready_rows) e;
            again := again or dropped > 0;
        end if;
        if keyed and ready_rows is not null then
            select k.ready_rows, key_busy or k.is_locked, again or k.held > 0, k.moment
            into ready_rows, key_busy, again, started_at
            from fairlead.keep_keys(ready_rows) k;
        end if;
        exit when ready_rows is not null or short_of is not null or claim.host is not null;
        -- Nothing to take: another claim was faster, or holds the limits. Go on after the last tenant; the walk always ends
        -- with a tenant's last pair.
        resumed := true;
        from_tenant := tenants[cardinality(tenants)];
        from_definition := max_id;
        from_lap := case when (from_tenant, max_id) > (start_tenant, start_definition) then 0 else 1 end;
    end loop;
    if ready_rows is null then
        return json_build_object(
            'cursor', case when short_tenant is not null and claim.host is null then json_build_array(next_tenant, next_credit) end,
            'again', again, 'busy', short_of is null and (held_limits <> '{}' or key_busy), 'crowded', true,
            'short_of', short_of, 'opens_in', date_part('epoch', opens_at - claimed_at));
    end if;

    -- 4. Take. All locks are held: the starts are later than the ends and the starts that were counted.
    claimed_at := case when keyed then coalesce(started_at, clock_timestamp()) else clock_timestamp() end;
    if buckets is not null then
        ready_rows := fairlead.spend_rates(ready_rows, buckets, claimed_at, in_turn);
        if ready_rows is null then
            return json_build_object('again', again, 'busy', true, 'crowded', crowded);
        end if;
    end if;
    lease_ends := claimed_at + make_interval(secs => claim.lease_seconds);
    definition_ids := array(select distinct d from unnest(definitions) d);
    with gone as (
        delete from fairlead.ready r where r.ctid = any(ready_rows)
        returning r.job_id
    ), started as (
        -- each record is looked up by its id, whatever the table's statistics
        select j.* from gone g cross join lateral (
            select j.id, j.tenant_id, j.definition_id, j.host_id, j.attempt_count + 1 as attempt_no, j.priority, j.payload,
                j.max_attempts, j.failure_count, j.lost_count, greatest(j.scheduled_for, j.queued_at) as scheduled_for,
                j.parent_id, j.correlation_id, j.trace, j.workflow_run_id, j.timeout_seconds, j.secret_paths, j.limit_key
            from fairlead.job_records j where j.id = g.job_id limit 1) j
    ), leased as (
        insert into fairlead.leases (
            job_id, attempt_no, token, worker_id, tenant_id, definition_id, host_id, started_at, expires_at, queue_ms,
            limit_key)
        select s.id, s.attempt_no, claim.token, claim.worker, s.tenant_id, s.definition_id, s.host_id, claimed_at,
            lease_ends, greatest(0, date_part('epoch', claimed_at - s.scheduled_for) * 1000), s.limit_key
        from started s
    ), counted as (
        insert into fairlead.counts (tenant_id, definition_id, minute, queued, running)
        select s.tenant_id, s.definition_id, date_trunc('minute', claimed_at), -count(*), count(*)
        from started s group by s.tenant_id, s.definition_id
    )
    -- 5. Answer.
    select json_build_object(
        'cursor', case when claim.host is null then json_build_array(next_tenant, next_credit) end,
        'again', again, 'busy', held_limits <> '{}' or key_busy, 'crowded', crowded or resumed or short_of is not null,
        'short_of', short_of, 'opens_in', date_part('epoch', opens_at - claimed_at),
        'tenants', (select json_object_agg(p.id, p.slug) from unnest(tenants, slugs) as p(id, slug)),
        'definitions', (
            select json_agg(json_build_array(d.key, d.timeout_seconds, d.backoff, d.secret_paths, d.slots) order by p.n)
            from unnest(definition_ids) with ordinality as p(id, n), fairlead.job_definitions d where d.id = p.id),
        'steps', json_agg(s.id) filter (where s.workflow_run_id is not null),
        'timeouts', json_object_agg(s.id, s.timeout_seconds) filter (where s.timeout_seconds is not null),
        'secrets', json_object_agg(s.id, s.secret_paths) filter (where s.secret_paths is not null),
        'traces', json_object_agg(s.id, s.trace) filter (where s.trace is not null),
        'waits', json_object_agg(s.id, date_part('epoch', claimed_at - s.scheduled_for)) filter (where claim.with_waits)),
        -- Text, since json_build_array looks the types of its arguments up for every job: a quarter of the claim's time.
        -- For most jobs the list ends with max_attempts: the worker knows the defaults of the other values.
        string_agg(
            '["' || s.id::text || '",' || s.attempt_no::text || ',"' || s.tenant_id::text || '",'
            || (array_position(definition_ids, s.definition_id) - 1)::text || ',' || s.payload::text || ','
            || s.max_attempts::text || case
                when s.failure_count = 0 and s.lost_count = 0 and s.parent_id is null and s.correlation_id is null then ']'
                else ',' || s.failure_count::text || ',' || s.lost_count::text || ','
                    || coalesce('"' || s.parent_id::text || '"', 'null') || ','
                    || coalesce(to_json(s.correlation_id)::text, 'null') || ']' end,
            ',' order by s.priority, s.scheduled_for, s.id)
    into answer, job_list from started s;
    return left(answer::text, -1) || ',"jobs":[' || job_list || ']}';
end
$$;

revoke execute on function fairlead.claim from public;
