-- Tokens of the role `application`: they enqueue, emit and start workflows in one tenant.
alter table fairlead.tokens drop constraint tokens_role;
alter table fairlead.tokens add constraint tokens_role check (role in ('viewer', 'operator', 'tenant_admin', 'super_admin', 'application', 'worker', 'agent'));
