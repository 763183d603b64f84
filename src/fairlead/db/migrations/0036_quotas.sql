-- Quotas of tenants: how many jobs may wait, how many jobs a workflow run may lead to, how many triggers and tokens there may
-- be, and how many bytes jobs may take. A quota that a tenant has not is the setting's; 0 means no limit.
alter table fairlead.tenants add column quotas jsonb not null default '{}';
alter table fairlead.tenants add constraint tenants_quotas check (jsonb_typeof(quotas) = 'object');

-- What a tenant was last found to use. Until `roomy_until` single enqueues need not count: that long it would take to fill
-- the room that was left. `stored_bytes` is measured by a duty. See functions/room_of.sql.
create table fairlead.tenant_use (
    tenant_id    uuid primary key,
    roomy_until  timestamptz not null default '-infinity',
    stored_bytes bigint not null default 0,
    measured_at  timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
insert into fairlead.tenant_use (tenant_id) select t.id from fairlead.tenants t;

-- The run that everything began with, and to which a job belongs that a job of it enqueued. Null: the run itself.
alter table fairlead.workflow_runs add column root_run_id uuid;
alter table fairlead.jobs add column root_run_id uuid;

-- How many jobs a root run has led to: the sum of its rows. Appended, so that runs below it do not wait for each other.
create table fairlead.run_jobs (
    root_run_id uuid not null,
    tenant_id   uuid not null,
    jobs        bigint not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
create index run_jobs_by_root on fairlead.run_jobs (root_run_id);

do $$
declare
    name text;
begin
    foreach name in array array['tenant_use', 'run_jobs']
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
grant select, update (roomy_until) on fairlead.tenant_use to fairlead_tenant;
grant select, insert, delete on fairlead.run_jobs to fairlead_tenant;

insert into fairlead.duties (name) values ('stored_bytes');
