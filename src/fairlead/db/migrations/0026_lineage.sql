-- A run that ended while another transaction held the row of the job that waits for it: that transaction may roll back,
-- and then the job would sleep on. A duty wakes it.
alter table fairlead.workflow_runs add column parent_asleep boolean not null default false;
create index workflow_runs_parent_asleep on fairlead.workflow_runs (id) where parent_asleep;
insert into fairlead.duties (name) values ('sleepers');

-- Which job emitted an event, or ended and was told of; and the triggers that led to that job, each by the job of the one
-- before it, the first of them first. So what sets itself off again is known for a circle.
alter table fairlead.events
    add column caused_by uuid,
    add column lineage uuid[] not null default '{}';

-- Whose a definition is that is not everybody's: those of functions that are registered for tenants.
alter table fairlead.job_definitions add column only_tenants uuid[];
alter table fairlead.job_definitions enable row level security;
alter table fairlead.job_definitions force row level security;
create policy system_rows on fairlead.job_definitions to fairlead_system using (true) with check (true);
create policy tenant_rows on fairlead.job_definitions for select to fairlead_tenant
    using (only_tenants is null or (select fairlead.tenant_of_session()) = any(only_tenants));
