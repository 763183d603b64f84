-- Row 0 of a limited scope is its lock. A large limit also has slots: rows whose holders may claim at the same time,
-- each at most `worth` jobs. See functions/budgets.sql.
alter table fairlead.limit_locks add column slot smallint not null default 0;
alter table fairlead.limit_locks add column worth integer not null default 0;
alter table fairlead.limit_locks drop constraint limit_locks_pkey;
alter table fairlead.limit_locks add primary key (scope, scope_id, other_id, slot);
