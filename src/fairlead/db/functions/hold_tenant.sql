-- Locks a tenant until the end of the caller's transaction, if its snapshot may be old (REPEATABLE READ, SERIALIZABLE): a
-- move of a tenant waits for the transactions that have read it, and a transaction with an old snapshot would read it later
-- without seeing the move. If the move has begun, this fails with a serialization error. READ COMMITTED needs no lock.
create or replace function fairlead.hold_tenant(tenant text) returns void language plpgsql volatile as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform from fairlead.tenants t
        where t.slug = hold_tenant.tenant or t.id = fairlead.as_id(hold_tenant.tenant) for share;
    end if;
end
$$;

revoke execute on function fairlead.hold_tenant from public;
grant execute on function fairlead.hold_tenant to fairlead_tenant;
