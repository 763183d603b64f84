-- How many long polls, live sockets and followed logs each server process holds open for a tenant. A process renews its rows
-- while it holds something; rows of a process that died expire. Not logged: after a crash the processes write them anew.
create unlogged table fairlead.openings (
    tenant_id  uuid not null,
    quota      text not null,
    server_id  uuid not null,
    held       integer not null,
    expires_at timestamptz not null,
    primary key (tenant_id, quota, server_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

alter table fairlead.openings enable row level security;
alter table fairlead.openings force row level security;
create policy system_rows on fairlead.openings to fairlead_system using (true) with check (true);
create policy tenant_rows on fairlead.openings to fairlead_tenant
    using (tenant_id = (select fairlead.tenant_of_session()))
    with check (tenant_id = (select fairlead.tenant_of_session()));
grant select on fairlead.openings to fairlead_tenant;
