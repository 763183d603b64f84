-- Row 0 of a limited scope is its lock. A large limit also has slots: rows whose holders may claim at the same time,
-- each at most `worth` jobs. See functions/budgets.sql.
alter table fairlead.limit_locks add column slot smallint not null default 0;
alter table fairlead.limit_locks add column worth integer not null default 0;
alter table fairlead.limit_locks drop constraint limit_locks_pkey;
alter table fairlead.limit_locks add primary key (scope, scope_id, other_id, slot);

-- The tenants that have ready jobs of a definition, and those that are not paused: a claim that meets many pairs that it
-- may not take goes on from definition to tenant, and leaves the rest out. See functions/next_pair.sql.
create index ready_by_definition on fairlead.ready (definition_id, tenant_id) where host_id is null;
create index tenants_open on fairlead.tenants (id) where paused_at is null;
