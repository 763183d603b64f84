-- Events are dispatched in turns too: the first that waits of each tenant is found here, whatever the others have emitted.
create index events_waiting_by_tenant on fairlead.events_waiting (tenant_id, due_at, event_id);
