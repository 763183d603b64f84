-- The trace that a job belongs to, from its enqueueing to its last attempt: a W3C `traceparent`, then, where there is
-- one, a blank and the `tracestate`. Written with the job or not at all, and never changed; most jobs have none.
alter table fairlead.jobs add column trace text;

-- A function's definition with some of its text exchanged; each piece has to be there, once.
create function pg_temp.exchanged(definition text, pieces text[]) returns text language plpgsql as $$
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

-- The claim tells the `traces` of jobs that have one, and, to a worker that counts them, the `waits`: how many seconds
-- each job had waited since it was due. Apart from the jobs, so that those without either cost nothing more.
do $$
declare
    told text := pg_get_functiondef(
        'fairlead.claim(text, uuid, integer, double precision, uuid[], uuid, integer, uuid, text[])'::regprocedure);
begin
    drop function fairlead.claim(text, uuid, integer, double precision, uuid[], uuid, integer, uuid, text[]);
    execute pg_temp.exchanged(told, array[
        ['served_pairs text[] DEFAULT NULL::text[])',
            'served_pairs text[] DEFAULT NULL::text[], with_waits boolean DEFAULT false)'],
        ['j.parent_id, j.correlation_id', 'j.parent_id, j.correlation_id, j.trace'],
        ['order by s.priority, s.scheduled_for, s.id))',
            'order by s.priority, s.scheduled_for, s.id),
        ''traces'', json_object_agg(s.id, s.trace) filter (where s.trace is not null),
        ''waits'', json_object_agg(s.id, date_part(''epoch'', now_on - s.scheduled_for)) filter (where claim.with_waits))']]);
end
$$;
revoke execute on function fairlead.claim(
    text, uuid, integer, double precision, uuid[], uuid, integer, uuid, text[], boolean) from public;
grant execute on function fairlead.claim(
    text, uuid, integer, double precision, uuid[], uuid, integer, uuid, text[], boolean) to fairlead_system;

-- enqueue_one takes one argument more, so that it is another function.
do $$
declare
    told text := pg_get_functiondef(
        'fairlead.enqueue_one(text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, '
        'uuid, text, uuid, integer)'::regprocedure);
begin
    drop function fairlead.enqueue_one(
        text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, uuid, text, uuid,
        integer);
    execute pg_temp.exchanged(told, array[
        ['expected_version integer DEFAULT NULL::integer,',
            'expected_version integer DEFAULT NULL::integer, trace text DEFAULT NULL::text,'],
        ['correlation_id, created_by, payload)', 'correlation_id, created_by, payload, trace)'],
        ['session_user), enqueue_one.payload)', 'session_user), enqueue_one.payload, enqueue_one.trace)']]);
    execute pg_temp.exchanged(pg_get_functiondef('fairlead.enqueue_joined(text)'::regprocedure), array[
        -- whoever may call this may not store what he likes
        ['id => (j.job ->> ''id'')::uuid)', 'id => (j.job ->> ''id'')::uuid, trace => left(j.job ->> ''trace'', 600))']]);
end
$$;
revoke execute on function fairlead.enqueue_one(
    text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, uuid, text, uuid, integer,
    text) from public;
grant execute on function fairlead.enqueue_one(
    text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, uuid, text, uuid, integer,
    text) to fairlead_tenant, fairlead_system;

-- How many jobs retention has removed: the sum of the rows. In counts a job's coming is the only change that does not add up to nought, but
-- for its removal: with these, the sum of all is how many jobs ever came.
create table fairlead.removed_jobs (
    tenant_id     uuid not null,
    definition_id uuid not null,
    jobs          bigint not null
);
create index removed_jobs_by_tenant on fairlead.removed_jobs (tenant_id, definition_id);
alter table fairlead.removed_jobs enable row level security;
alter table fairlead.removed_jobs force row level security;
create policy system_rows on fairlead.removed_jobs to fairlead_system using (true) with check (true);
create policy tenant_rows on fairlead.removed_jobs to fairlead_tenant
    using (tenant_id = (select fairlead.tenant_of_session()))
    with check (tenant_id = (select fairlead.tenant_of_session()));
grant select on fairlead.removed_jobs to fairlead_tenant;
