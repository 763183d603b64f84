-- Whose work there is, what work may be run, and where.
--
-- Names are always qualified: no statement of ours depends on a search_path. The word
-- `fairlead` stands for the configured schema wherever it appears in our SQL.

-- Time-ordered keys for rows that SQL itself creates; the library makes its own.
create function fairlead.uuid7() returns uuid language sql volatile parallel safe as $$
    select encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                from 1 for 6),
            52, 1), 53, 1),
        'hex')::uuid
$$;

-- Rows that jobs refer to are retired, never deleted: jobs carry no foreign keys (their
-- checks would lock these rows in every enqueue), so the other side of the promise is here.
create function fairlead.refuse_delete() returns trigger language plpgsql as $$
begin
    raise exception '% rows are not deleted: pause or deactivate instead', tg_table_name
        using errcode = 'restrict_violation';
end
$$;

create table fairlead.tenants (
    id          uuid primary key default fairlead.uuid7(),
    slug        text not null unique,
    name        text not null,
    timezone    text not null default 'UTC',
    weight      integer not null default 1,
    max_running integer,
    paused_at   timestamptz,
    paused_by   text,
    pause_note  text,
    created_at  timestamptz not null default clock_timestamp(),
    updated_at  timestamptz not null default clock_timestamp(),
    constraint tenants_slug check (
        slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'
        -- a tenant may be named by id or by slug, so the two must not be confused
        and slug !~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'),
    constraint tenants_name check (name <> '' and length(name) <= 200),
    constraint tenants_weight check (weight between 1 and 1000),
    constraint tenants_max_running check (max_running > 0)
);

create trigger tenants_stay before delete on fairlead.tenants
    for each row execute function fairlead.refuse_delete();

-- A name that once meant one tenant never means another: whoever remembers an id stays right.
create function fairlead.refuse_rename() returns trigger language plpgsql as $$
begin
    raise exception 'the % of % rows does not change', tg_argv[0], tg_table_name using errcode = 'restrict_violation';
end
$$;

create trigger tenants_keep_slug before update of slug on fairlead.tenants
    for each row when (new.slug <> old.slug) execute function fairlead.refuse_rename('slug');

insert into fairlead.tenants (id, slug, name)
    values ('00000000-0000-7000-8000-000000000000', 'global', 'Work that belongs to no tenant');

create table fairlead.job_definitions (
    id                      uuid primary key default fairlead.uuid7(),
    key                     text not null unique,
    version                 integer not null default 1,
    description             text not null default '',
    kind                    text not null default 'function',
    arg_schema              jsonb not null default '{}',
    timeout_seconds         integer not null default 3600,
    max_attempts            integer not null default 3,
    backoff                 jsonb not null
        default '{"base_seconds": 10, "factor": 2, "cap_seconds": 3600, "jitter": 0.1}',
    max_running             integer,
    max_running_per_tenant  integer,
    default_priority        integer not null default 100,
    resource_pointer        text,
    audit_action            text default 'JOB_SUCCEEDED',
    retention_days          integer,
    is_active               boolean not null default true,
    paused_at               timestamptz,
    paused_by               text,
    pause_note              text,
    created_at              timestamptz not null default clock_timestamp(),
    updated_at              timestamptz not null default clock_timestamp(),
    constraint definitions_key check (key ~ '^[A-Za-z][A-Za-z0-9._-]{0,127}$'),
    constraint definitions_kind check (kind in ('function', 'command', 'host', 'workflow')),
    constraint definitions_arg_schema check (jsonb_typeof(arg_schema) in ('object', 'boolean')),
    constraint definitions_timeout check (timeout_seconds between 1 and 2592000),
    constraint definitions_max_attempts check (max_attempts between 1 and 1000),
    constraint definitions_max_running check (max_running > 0),
    constraint definitions_max_running_per_tenant check (max_running_per_tenant > 0),
    constraint definitions_retention check (retention_days > 0),
    constraint definitions_backoff check (
        jsonb_typeof(backoff) = 'object'
        and backoff ?& array['base_seconds', 'factor', 'cap_seconds', 'jitter'])
);

create trigger definitions_stay before delete on fairlead.job_definitions
    for each row execute function fairlead.refuse_delete();
create trigger definitions_keep_key before update of key on fairlead.job_definitions
    for each row when (new.key <> old.key) execute function fairlead.refuse_rename('key');

-- Whoever changes a definition, the version moves: compiled validators elsewhere go by it.
create function fairlead.touch_definition() returns trigger language plpgsql as $$
begin
    new.version := old.version + 1;
    new.updated_at := clock_timestamp();
    return new;
end
$$;

create trigger definitions_version before update on fairlead.job_definitions
    for each row execute function fairlead.touch_definition();

create table fairlead.hosts (
    id            uuid primary key default fairlead.uuid7(),
    tenant_id     uuid not null references fairlead.tenants,
    name          text not null,
    max_running   integer not null default 1,
    labels        jsonb not null default '{}',
    paused_at     timestamptz,
    paused_by     text,
    pause_note    text,
    last_seen_at  timestamptz,
    agent_version text,
    created_at    timestamptz not null default clock_timestamp(),
    updated_at    timestamptz not null default clock_timestamp(),
    constraint hosts_name unique (tenant_id, name),
    constraint hosts_max_running check (max_running > 0)
);

create table fairlead.resources (
    id         uuid primary key default fairlead.uuid7(),
    tenant_id  uuid not null references fairlead.tenants,
    host_id    uuid not null references fairlead.hosts,
    kind       text not null,
    name       text not null,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    constraint resources_name unique (tenant_id, kind, name)
);
create index resources_by_host on fairlead.resources (host_id);

-- The system's own gate: one row, always.
create table fairlead.system (
    only_row   boolean primary key default true check (only_row),
    online     boolean not null default true,
    note       text,
    changed_by text,
    changed_at timestamptz not null default clock_timestamp()
);
insert into fairlead.system default values;
