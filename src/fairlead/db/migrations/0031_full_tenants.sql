-- A claim that has passed many pairs in vain leaves out the tenants that are full, too. See functions/full_tenants.sql.
create index tenants_limited on fairlead.tenants (id) where max_running is not null;
-- functions/next_pair.sql has one argument more
drop function if exists fairlead.next_pair(uuid, uuid, integer, uuid, uuid, uuid[]);
