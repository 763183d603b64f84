-- One index of counts instead of two: every change of a job adds a row there. A row that is not leveled yet is found by
-- its tenant, and so are all of a tenant's minutes, with `leveled in (false, true)`.
drop index fairlead.counts_not_leveled;
drop index fairlead.counts_by_tenant;
create index counts_by_level on fairlead.counts (leveled, tenant_id, minute);

-- Only for statements that ask for it, with `priority > -2147483648`: for a lookup of one job the planner would take it as
-- readily as ready_by_tenant, and read all jobs of the pair.
drop index fairlead.ready_by_definition;
create index ready_by_definition on fairlead.ready (definition_id, tenant_id)
    where host_id is null and priority > -2147483648;
