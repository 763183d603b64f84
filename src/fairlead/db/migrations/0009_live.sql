-- Tickets for live sockets. A browser cannot send a header with a WebSocket, and what stands in a URL ends in logs: so a
-- ticket stands there, good once and for half a minute, in the place of the token or session that asked for it. Whoever
-- redeems it gets to know which one that was, to close the socket when it is revoked.

create table fairlead.live_tickets (
    ticket_hash  bytea primary key,
    tenant_id    uuid,   -- whose room; null is that of all
    actor        text not null,
    role         text not null,
    token_id     uuid,
    session_hash bytea,
    expires_at   timestamptz not null,
    constraint live_tickets_holder check ((token_id is null) <> (session_hash is null))
);

alter table fairlead.live_tickets enable row level security;
alter table fairlead.live_tickets force row level security;
create policy system_rows on fairlead.live_tickets to fairlead_system using (true) with check (true);
create policy tenant_rows on fairlead.live_tickets to fairlead_tenant
    using (tenant_id = (select fairlead.tenant_of_session()))
    with check (tenant_id = (select fairlead.tenant_of_session()));
grant select, insert, update, delete on fairlead.live_tickets to fairlead_system;
grant select, insert, delete on fairlead.live_tickets to fairlead_tenant;
