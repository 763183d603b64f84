-- Notifies inside the caller's transaction, since Fairlead does not see its commit. A caller with many concurrent commits
-- turns it off (set fairlead.notify = 'off'), since PostgreSQL commits transactions with notifications one at a time;
-- workers then find the jobs by polling.
create or replace function fairlead.notify_in_transaction(word text) returns void language plpgsql volatile as $$
begin
    if current_setting('fairlead.notify', true) is distinct from 'off' then
        perform pg_notify('fairlead', notify_in_transaction.word);
    end if;
end
$$;

revoke execute on function fairlead.notify_in_transaction from public;
grant execute on function fairlead.notify_in_transaction to fairlead_tenant;
