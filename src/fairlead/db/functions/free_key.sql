-- Frees a dedupe key that was kept for a time (unique_for) which is over, if its job has ended. Under the lock of the job's
-- record, so that a retry by hand either keeps the key or finds it taken. Returns whether the key is free now.
create or replace function fairlead.free_key(tenant uuid, hash bytea) returns boolean language plpgsql volatile as $$
#variable_conflict use_column
declare
    holder uuid;
begin
    select k.job_id into holder from fairlead.active_keys k
    where k.tenant_id = free_key.tenant and k.key_hash = free_key.hash and k.unique_until <= clock_timestamp();
    if not found then
        return not exists (
            select from fairlead.active_keys k where k.tenant_id = free_key.tenant and k.key_hash = free_key.hash);
    end if;
    perform from fairlead.job_records j where j.id = holder for share;
    if exists (select from fairlead.job_records j where j.id = holder and j.status <= 'running') then
        return false;
    end if;
    delete from fairlead.active_keys k
    where k.tenant_id = free_key.tenant and k.key_hash = free_key.hash and k.job_id = holder
        and k.unique_until <= clock_timestamp();
    return true;
end
$$;

revoke execute on function fairlead.free_key from public;
grant execute on function fairlead.free_key to fairlead_tenant;
