-- Refuses a transaction whose statements do not see what has been committed since it began. A claim counts what runs after
-- it has the lock of a limit; in an older snapshot it would count without the claims that committed meanwhile.
create or replace function fairlead.need_read_committed() returns void language plpgsql stable as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'jobs are claimed only in transactions with the isolation level READ COMMITTED'
            using errcode = 'feature_not_supported',
            hint = 'An older snapshot would not show which jobs run, so limits would not hold.';
    end if;
end
$$;

revoke execute on function fairlead.need_read_committed from public;
