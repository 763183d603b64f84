-- One index of counts instead of two: every change of a job adds a row there. A row that is not leveled yet is found by
-- its tenant, and so are all of a tenant's minutes, with `leveled in (false, true)`.
drop index fairlead.counts_not_leveled;
drop index fairlead.counts_by_tenant;
create index counts_by_level on fairlead.counts (leveled, tenant_id, minute);

-- The whole order of a pair's jobs, as in ready_by_tenant: the planner takes either index for a lookup by tenant and
-- definition, and through two columns alone it would read all jobs of the pair for each of them.
drop index fairlead.ready_by_definition;
create index ready_by_definition on fairlead.ready (definition_id, tenant_id, priority, scheduled_for, job_id)
    where host_id is null;
