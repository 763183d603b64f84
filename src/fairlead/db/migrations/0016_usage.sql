-- Usage: every attempt that ended is a run, added up by tenant, definition and hour, and kept when the attempt is gone.

-- How long the job had waited, since it was due, when this attempt's claim took it.
alter table fairlead.job_attempts add column queue_ms bigint;

-- A row with `runs` is written by the statement that ended these runs: its other columns say what became of their jobs,
-- these what the runs used. Whoever folds such a row adds it to usage_hourly in the same statement and leaves these
-- empty. So the sum over both tables is the sum over all attempts that ever ended, at any moment.
alter table fairlead.counts
    add column runs integer,
    add column retried integer,
    add column run_ms bigint,
    add column queue_ms bigint,
    add column cost_cents bigint;

-- What became of the jobs of these runs: succeeded, failed, dead_letter, canceled, retried; the rest were given back.
create table fairlead.usage_hourly (
    tenant_id     uuid not null,
    definition_id uuid not null,
    hour          timestamptz not null,
    runs          bigint not null,
    succeeded     bigint not null,
    failed        bigint not null,
    dead_letter   bigint not null,
    canceled      bigint not null,
    retried       bigint not null,
    run_ms        bigint not null,
    queue_ms      bigint not null,
    cost_cents    bigint not null,
    primary key (tenant_id, hour, definition_id)
) with (fillfactor = 70);
create index usage_hourly_by_hour on fairlead.usage_hourly (hour);

-- Up to which hour a tenant's usage.recorded events have told its usage.
create table fairlead.usage_told (
    tenant_id uuid primary key,
    until     timestamptz not null
);

-- The attempts that are there. Nobody ends one meanwhile: the change of their table above locks it to the end.
insert into fairlead.usage_hourly (
    tenant_id, definition_id, hour, runs, succeeded, failed, dead_letter, canceled, retried, run_ms, queue_ms, cost_cents)
select j.tenant_id, j.definition_id, date_trunc('hour', a.finished_at, 'UTC'), count(*),
    count(*) filter (where e.became = 'succeeded'), count(*) filter (where e.became = 'failed'),
    count(*) filter (where e.became = 'dead_letter'), count(*) filter (where e.became = 'canceled'),
    count(*) filter (where e.became = 'retried'), sum(coalesce(a.duration_ms, 0)), 0, sum(a.cost_cents)
from fairlead.job_attempts a
join fairlead.jobs j on j.id = a.job_id
cross join lateral (select case
    when j.status > 'running' and a.attempt_no = j.attempt_count then j.status::text
    when a.status in ('succeeded', 'canceled', 'released') then a.status
    else 'retried' end as became) e
where a.finished_at is not null
group by 1, 2, 3;

do $$
declare
    name text;
begin
    foreach name in array array['usage_hourly', 'usage_told']
    loop
        execute format('alter table fairlead.%I enable row level security', name);
        execute format('alter table fairlead.%I force row level security', name);
        execute format('create policy system_rows on fairlead.%I to fairlead_system using (true) with check (true)', name);
        execute format(
            'create policy tenant_rows on fairlead.%I to fairlead_tenant '
            'using (tenant_id = (select fairlead.tenant_of_session())) '
            'with check (tenant_id = (select fairlead.tenant_of_session()))', name);
    end loop;
end
$$;
grant select on fairlead.usage_hourly to fairlead_tenant;

insert into fairlead.duties (name) values ('usage');

create or replace function pg_temp.exchanged(definition text, pieces text[]) returns text language plpgsql as $$
declare
    piece text[];
begin
    foreach piece slice 1 in array pieces loop
        if cardinality(string_to_array(definition, piece[1])) <> 2 then
            raise exception 'not there, or not once: %', piece[1];
        end if;
        definition := replace(definition, piece[1], piece[2]);
    end loop;
    return definition;
end
$$;

do $$
begin
    execute pg_temp.exchanged(
        pg_get_functiondef(
            'fairlead.claim(text, uuid, integer, double precision, uuid[], uuid, integer, uuid, text[], boolean)'::regprocedure),
        array[
        ['(id, job_id, attempt_no, tenant_id, token, worker_id, started_at)',
            '(id, job_id, attempt_no, tenant_id, token, worker_id, started_at, queue_ms)'],
        -- nearly every attempt is a first one: its id is the job's as another kind of UUID, at half the price of a hash
        ['md5(s.id::text || s.attempt_count)::uuid, s.id', 'case when s.attempt_count = 1
            then overlay(s.id::text placing ''8'' from 15 for 1)::uuid else md5(s.id::text || s.attempt_count)::uuid end, s.id'],
        ['            claim.worker, now_on
        from started s', '            claim.worker, now_on, greatest(0, date_part(''epoch'', now_on - s.scheduled_for) * 1000)
        from started s']]);
end
$$;
