-- Which user made a token, by themselves or by a token of theirs: it is good only while they may grant its role. Which
-- definitions it is for (null: any).
alter table fairlead.tokens
    add column user_id uuid references fairlead.users,
    add column definitions text[];
alter table fairlead.tokens add constraint tokens_definitions check (definitions <> '{}');
create index tokens_of_user on fairlead.tokens (user_id) where user_id is not null;
-- those whose makers are known by name: an address was one user's only
update fairlead.tokens t set user_id = u.id from fairlead.users u where t.created_by = 'user:' || u.email;

-- Who it was whatever they are called: two tokens may have one name, and names change.
create function fairlead.principal_of_session() returns uuid language sql stable parallel safe as $$
    select nullif(current_setting('fairlead.principal_id', true), '')::uuid
$$;
grant execute on function fairlead.principal_of_session() to fairlead_tenant, fairlead_system;
alter table fairlead.audit_log add column principal_id uuid;
alter table fairlead.audit_log alter column principal_id set default fairlead.principal_of_session();

-- A worker over HTTP whose token is for one tenant is that tenant's, and nobody else's business. Of the workers that serve
-- everybody, a tenant's people know what they serve and when they were seen: so `why` is answered.
alter table fairlead.job_workers add column tenant_id uuid references fairlead.tenants;
create index job_workers_of_tenant on fairlead.job_workers (tenant_id) where tenant_id is not null;
alter table fairlead.job_workers enable row level security;
alter table fairlead.job_workers force row level security;
create policy system_rows on fairlead.job_workers to fairlead_system using (true) with check (true);
create policy tenant_rows on fairlead.job_workers to fairlead_tenant
    using (tenant_id = (select fairlead.tenant_of_session()))
    with check (tenant_id = (select fairlead.tenant_of_session()));
create policy shared_rows on fairlead.job_workers for select to fairlead_tenant using (tenant_id is null);
revoke select on fairlead.job_workers from fairlead_tenant;
grant select (queues, last_seen_at, tenant_id) on fairlead.job_workers to fairlead_tenant;

-- An address is taken in a tenant (or among the super admins), not everywhere: whether another tenant knows it is not told.
drop index fairlead.users_email;
create unique index users_email on fairlead.users
    (lower(email), coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid));
