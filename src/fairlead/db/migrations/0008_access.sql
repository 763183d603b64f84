-- Who may see what. Two roles of the server, without login, that others are members of:
--
-- fairlead_system is the work itself (claiming, scheduling, bulk loading, administration): its policy admits every row.
-- fairlead_tenant is a tenant's own people: a transaction takes it with `set local role` and names its tenant in a
-- setting of the transaction. Its policies admit that tenant's rows and no others; where no tenant is named, none.
--
-- The policies hold for the tables' owner too (force), so what a statement forgets to ask for, it does not get.

do $$
declare
    name text;
    newer constant boolean := current_setting('server_version_num')::int >= 160000;
begin
    foreach name in array array['fairlead_system', 'fairlead_tenant'] loop
        -- roles belong to the whole server: another database of it may have made them, even at this moment
        begin
            if not exists (select from pg_roles r where r.rolname = name) then
                execute format('create role %I nologin', name);
            end if;
        exception
            when duplicate_object or unique_violation then null;
            when insufficient_privilege then
                raise exception 'the role % is missing, and % may not create it', name, current_user using
                    errcode = 'insufficient_privilege',
                    hint = format('As an administrator: create role %I nologin; grant %I to %I;', name, name, current_user);
        end;
        -- Who made a role is, from 16 on, its member for administration only: to have its rows and to take it on are apart.
        begin
            if newer then
                if not (pg_has_role(current_user, name, 'usage') and pg_has_role(current_user, name, 'set')) then
                    execute format('grant %I to current_user with inherit true, set true', name);
                end if;
            elsif not pg_has_role(current_user, name, 'usage') then
                execute format('grant %I to current_user', name);
            end if;
        exception
            when unique_violation then null;
            when insufficient_privilege then
                raise exception '% is not a member of the role %', current_user, name using
                    errcode = 'insufficient_privilege',
                    hint = format('As an administrator: grant %I to %I;', name, current_user);
        end;
        if not pg_has_role(current_user, name, 'usage') then
            raise exception '% does not inherit what the role % may do', current_user, name using
                errcode = 'insufficient_privilege',
                hint = format('As an administrator: alter role %I inherit; and grant %I to it anew.', current_user, name);
        end if;
    end loop;
end
$$;

-- Principals

create table fairlead.users (
    id            uuid primary key default fairlead.uuid7(),
    tenant_id     uuid references fairlead.tenants,
    email         text not null,
    password_hash text not null,
    role          text not null,
    created_by    text,
    created_at    timestamptz not null default clock_timestamp(),
    updated_at    timestamptz not null default clock_timestamp(),
    disabled_at   timestamptz,
    constraint users_role check (role in ('viewer', 'operator', 'tenant_admin', 'super_admin')),
    -- a super admin belongs to no tenant, everybody else to one
    constraint users_tenant check ((role = 'super_admin') = (tenant_id is null))
);
create unique index users_email on fairlead.users (lower(email));
create index users_by_tenant on fairlead.users (tenant_id, id);

-- Only the hash of what the cookie holds is kept.
create table fairlead.sessions (
    secret_hash  bytea primary key,
    user_id      uuid not null references fairlead.users,
    tenant_id    uuid,
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    revoked_at   timestamptz
);
create index sessions_by_user on fairlead.sessions (user_id);

alter table fairlead.hosts add constraint hosts_of_tenant unique (tenant_id, id);

create table fairlead.tokens (
    id           uuid primary key default fairlead.uuid7(),
    tenant_id    uuid references fairlead.tenants,
    host_id      uuid,
    name         text not null,
    role         text not null,
    prefix       text not null,
    secret_hash  bytea not null unique,
    created_by   text,
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    constraint tokens_role check (role in ('viewer', 'operator', 'tenant_admin', 'super_admin', 'worker', 'agent')),
    constraint tokens_tenant check (role in ('super_admin', 'worker') or tenant_id is not null),
    constraint tokens_super check (role <> 'super_admin' or tenant_id is null),
    constraint tokens_host check ((role = 'agent') = (host_id is not null)),
    -- an agent's host is its own tenant's
    constraint tokens_host_of_tenant foreign key (tenant_id, host_id) references fairlead.hosts (tenant_id, id)
);
create index tokens_by_tenant on fairlead.tokens (tenant_id, id);

-- What a create with an Idempotency-Key was answered, so that its repetition gets the same answer.
create table fairlead.idempotency_keys (
    scope_id    uuid not null,  -- the tenant, or zero for the system itself
    key         text not null,
    body_hash   bytea not null,
    status_code integer,
    answer      jsonb,
    created_at  timestamptz not null default clock_timestamp(),
    primary key (scope_id, key)
);
create index idempotency_keys_by_age on fairlead.idempotency_keys (created_at);

-- What a running attempt says, as it comes.
create table fairlead.log_chunks (
    job_id     uuid not null,
    attempt_no integer not null,
    seq        integer not null,
    tenant_id  uuid not null,
    stream     text not null default 'stdout',
    at         timestamptz not null default clock_timestamp(),
    text       text not null,
    primary key (job_id, attempt_no, seq),
    constraint log_chunks_stream check (stream in ('stdout', 'stderr', 'log'))
);

-- Policies

create function fairlead.tenant_of_session() returns uuid language sql stable parallel safe as $$
    select nullif(current_setting('fairlead.tenant_id', true), '')::uuid
$$;

do $$
declare
    name text;
    column_name text;
begin
    foreach name in array array[
        'tenants', 'users', 'sessions', 'tokens', 'hosts', 'resources', 'jobs', 'ready', 'later', 'leases',
        'active_keys', 'job_attempts', 'counts', 'audit_log', 'idempotency_keys', 'log_chunks', 'limit_locks']
    loop
        execute format('alter table fairlead.%I enable row level security', name);
        execute format('alter table fairlead.%I force row level security', name);
        execute format('create policy system_rows on fairlead.%I to fairlead_system using (true) with check (true)', name);
        column_name := case name when 'tenants' then 'id' when 'idempotency_keys' then 'scope_id' else 'tenant_id' end;
        continue when name = 'limit_locks';  -- no tenant has any business there
        execute format(
            'create policy tenant_rows on fairlead.%I to fairlead_tenant '
            'using (%2$I = (select fairlead.tenant_of_session())) with check (%2$I = (select fairlead.tenant_of_session()))',
            name, column_name);
    end loop;
end
$$;

grant usage on schema fairlead to fairlead_system, fairlead_tenant;
grant select, insert, update, delete on all tables in schema fairlead to fairlead_system;
grant execute on all functions in schema fairlead to fairlead_system;
-- and on what later migrations make
alter default privileges in schema fairlead grant select, insert, update, delete on tables to fairlead_system;
alter default privileges in schema fairlead grant execute on functions to fairlead_system;

grant select on fairlead.tenants, fairlead.job_definitions, fairlead.job_workers, fairlead.system, fairlead.leases,
    fairlead.job_attempts, fairlead.log_chunks to fairlead_tenant;
grant select, insert, update on fairlead.jobs to fairlead_tenant;
grant select, insert, delete on fairlead.ready, fairlead.later, fairlead.active_keys to fairlead_tenant;
-- `for update` of the row that a cancel or retry takes
grant update on fairlead.ready, fairlead.later to fairlead_tenant;
grant update (worker_id) on fairlead.leases to fairlead_tenant;
grant select, insert on fairlead.counts, fairlead.audit_log to fairlead_tenant;
grant select, insert, update on fairlead.idempotency_keys to fairlead_tenant;
grant select, insert, update, delete on fairlead.users, fairlead.sessions, fairlead.tokens, fairlead.hosts,
    fairlead.resources to fairlead_tenant;
grant execute on function
    fairlead.uuid7(), fairlead.tenant_of_session(), fairlead.resolve(text, text, integer),
    fairlead.refusal_of(jsonb, integer, timestamptz, integer, text, text),
    fairlead.enqueue_one(
        text, text, jsonb, integer, timestamptz, integer, text, text, fairlead.job_source, text, uuid, text, uuid, integer)
    to fairlead_tenant;

-- Where a request came from, if the transaction says so.
create function fairlead.ip_of_session() returns inet language sql stable parallel safe as $$
    select nullif(current_setting('fairlead.ip', true), '')::inet
$$;
grant execute on function fairlead.ip_of_session() to fairlead_tenant, fairlead_system;
alter table fairlead.audit_log alter column ip set default fairlead.ip_of_session();
