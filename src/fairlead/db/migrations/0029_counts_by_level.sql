-- One index of counts instead of two: every change of a job adds a row there. A row that is not leveled yet is found by
-- its tenant, and so are all of a tenant's minutes, with `leveled in (false, true)`.
drop index fairlead.counts_not_leveled;
drop index fairlead.counts_by_tenant;
create index counts_by_level on fairlead.counts (leveled, tenant_id, minute);
