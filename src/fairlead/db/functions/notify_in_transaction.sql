-- Notifies from inside a transaction that is not Fairlead's: its commit is unknown here. A caller with many commits at
-- once turns it off (set fairlead.notify = 'off'), since PostgreSQL lets one transaction with a notification commit
-- at a time; polling finds the jobs then.
create or replace function fairlead.notify_in_transaction(word text) returns void language plpgsql volatile as $$
begin
    if current_setting('fairlead.notify', true) is distinct from 'off' then
        perform pg_notify('fairlead', notify_in_transaction.word);
    end if;
end
$$;

revoke execute on function fairlead.notify_in_transaction from public;
