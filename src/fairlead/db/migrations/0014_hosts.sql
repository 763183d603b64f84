-- Hosts and the agents on them: which job belongs to which host is settled when it is enqueued, and what an agent was
-- given stays its own until it says that it has it.

alter table fairlead.hosts
    add column created_by text,
    add column draining boolean not null default false,
    -- the agent that was started last: an older one is told that it is no longer the host's
    add column session_id uuid,
    add column session_at timestamptz;

alter table fairlead.resources
    add column created_by text,
    add constraint resources_host_of_tenant foreign key (tenant_id, host_id) references fairlead.hosts (tenant_id, id);
create index resources_by_name on fairlead.resources (tenant_id, name);

-- What an agent shows once to become its host's. Only the hash is kept.
create table fairlead.enrolment_codes (
    code_hash  bytea primary key,
    tenant_id  uuid not null references fairlead.tenants,
    host_id    uuid not null,
    created_by text,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    used_at    timestamptz,
    constraint enrolment_codes_host foreign key (tenant_id, host_id) references fairlead.hosts (tenant_id, id)
);
create index enrolment_codes_by_age on fairlead.enrolment_codes (expires_at);

-- Jobs that were given to an agent and that it has not said it has: the answer may have been lost on the way, and then
-- the next poll gets the same job under the same lease.
create table fairlead.deliveries (
    job_id     uuid primary key,
    attempt_no integer not null,
    token      uuid not null,
    tenant_id  uuid not null,
    host_id    uuid not null
);
create index deliveries_by_host on fairlead.deliveries (host_id);

do $$
declare
    name text;
begin
    foreach name in array array['enrolment_codes', 'deliveries']
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
-- a tenant's admin makes codes; who shows one is nobody yet, and the system looks
grant insert, select (expires_at) on fairlead.enrolment_codes to fairlead_tenant;

-- Which host a job is for: the one that is named, the one that its resource is on, or the one of the resource that its
-- payload names where the definition says. Null for any worker's; a refusal is a stable code.
create function fairlead.target_of(
    tenant_id uuid, definition_id uuid, payload jsonb, host_id uuid, resource_id uuid,
    out target_host uuid, out target_resource uuid, out refusal text
) language plpgsql stable as $$
#variable_conflict use_column
declare
    about record;
    named text;
begin
    select d.resource_pointer, d.kind into about from fairlead.job_definitions d where d.id = target_of.definition_id;
    target_resource := target_of.resource_id;
    if target_resource is null and about.resource_pointer is not null then
        named := target_of.payload #>> (
            select array_agg(replace(replace(part, '~1', '/'), '~0', '~') order by n)
            from regexp_split_to_table(substr(about.resource_pointer, 2), '/') with ordinality as p(part, n));
        select r.id into target_resource from fairlead.resources r
        where r.tenant_id = target_of.tenant_id and r.id = case
            when named ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then named::uuid end;
        if target_resource is null then
            -- by its name, if only one thing has it
            select min(r.id::text)::uuid into target_resource from fairlead.resources r
            where r.tenant_id = target_of.tenant_id and r.name = named having count(*) = 1;
        end if;
        if target_resource is null then
            refusal := 'resource_unknown';
            return;
        end if;
    end if;
    if target_resource is not null then
        select r.host_id into target_host from fairlead.resources r
        where r.id = target_resource and r.tenant_id = target_of.tenant_id;
        refusal := case
            when target_host is null then 'resource_unknown'
            when target_of.host_id <> target_host then 'resource_elsewhere'
        end;
    elsif target_of.host_id is not null then
        select h.id into target_host from fairlead.hosts h
        where h.id = target_of.host_id and h.tenant_id = target_of.tenant_id;
        refusal := case when target_host is null then 'host_unknown' end;
    elsif about.kind = 'host' then
        refusal := 'host_required';
    end if;
end
$$;
grant execute on function fairlead.target_of(uuid, uuid, jsonb, uuid, uuid) to fairlead_tenant, fairlead_system;

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
declare
    told text := pg_get_functiondef(
        'fairlead.enqueue_one(text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, '
        'uuid, text, uuid, integer, text)'::regprocedure);
begin
    drop function fairlead.enqueue_one(
        text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, uuid, text, uuid,
        integer, text);
    execute pg_temp.exchanged(told, array[
        ['trace text DEFAULT NULL::text,',
            'trace text DEFAULT NULL::text, host_id uuid DEFAULT NULL::uuid, resource_id uuid DEFAULT NULL::uuid,'],
        ['    hash bytea;', '    hash bytea;
    target record;'],
        ['    job_id := coalesce(enqueue_one.id, fairlead.uuid7());
    tenant_id := about.tenant_id;',
         '    select * into target from fairlead.target_of(
        about.tenant_id, about.definition_id, enqueue_one.payload, enqueue_one.host_id, enqueue_one.resource_id);
    if target.refusal is not null then
        outcome := target.refusal;
        return;
    end if;

    job_id := coalesce(enqueue_one.id, fairlead.uuid7());
    tenant_id := about.tenant_id;'],
        ['correlation_id, created_by, payload, trace)',
            'correlation_id, created_by, payload, trace, host_id, resource_id)'],
        ['enqueue_one.payload, enqueue_one.trace)',
            'enqueue_one.payload, enqueue_one.trace,
        target.target_host, target.target_resource)'],
        ['insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at)',
            'insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at, host_id)'],
        ['enqueue_one.scheduled_for);
    else', 'enqueue_one.scheduled_for, target.target_host);
    else'],
        ['insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for)',
            'insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for, host_id)'],
        ['coalesce(enqueue_one.scheduled_for, moment));
    end if;', 'coalesce(enqueue_one.scheduled_for, moment), target.target_host);
    end if;']]);
    execute pg_temp.exchanged(pg_get_functiondef('fairlead.enqueue_joined(text)'::regprocedure), array[
        ['            case when exists (select from fairlead.jobs t where t.id = (j.job ->> ''id'')::uuid) then ''job_id_taken'' end
',
         '            case when exists (select from fairlead.jobs t where t.id = (j.job ->> ''id'')::uuid) then ''job_id_taken'' end,
            (select t.refusal from fairlead.target_of(
                r.tenant_id, r.definition_id, j.job -> ''payload'', (j.job ->> ''host_id'')::uuid,
                (j.job ->> ''resource_id'')::uuid) t)
'],
        ['trace => left(j.job ->> ''trace'', 600))',
            'trace => left(j.job ->> ''trace'', 600),
            host_id => (j.job ->> ''host_id'')::uuid, resource_id => (j.job ->> ''resource_id'')::uuid)']]);
end
$$;
revoke execute on function fairlead.enqueue_one(
    text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, uuid, text, uuid, integer,
    text, uuid, uuid) from public;
grant execute on function fairlead.enqueue_one(
    text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, uuid, text, uuid, integer,
    text, uuid, uuid) to fairlead_tenant, fairlead_system;
