-- Whether a tenant may have `more` jobs: null, or the quota that refuses them, its use and its limit.
--
-- A count of the queued jobs reads a row for each definition and for each change since the last fold. It therefore stores
-- in roomy_until when 10,000 enqueues a second would have used the rest, at most a minute ahead; until then up to ten jobs
-- pass after a look at that one row. It never waits: if another transaction holds the row, roomy_until stays as it is.
create or replace function fairlead.room_of(tenant uuid, more bigint, settings jsonb default '{}') returns jsonb
language plpgsql volatile as $$
#variable_conflict use_column
declare
    use record;
    allowed bigint;
    used bigint := 0;
    roomy timestamptz;
    level constant text := current_setting('transaction_isolation');
begin
    select t.quotas, u.roomy_until, coalesce(u.stored_bytes, 0) as stored_bytes into use
    from fairlead.tenants t left join fairlead.tenant_use u on u.tenant_id = t.id where t.id = room_of.tenant;
    if not found or room_of.more <= 10 and use.roomy_until > clock_timestamp() then
        return null;
    end if;
    allowed := fairlead.quota_of(use.quotas, room_of.settings, 'stored_bytes');
    if use.stored_bytes >= allowed then
        return jsonb_build_object('quota', 'stored_bytes', 'used', use.stored_bytes, 'allowed', allowed);
    end if;
    allowed := fairlead.quota_of(use.quotas, room_of.settings, 'queued_jobs');
    -- a serializable transaction that counts would conflict with every concurrent enqueue
    if allowed is not null and level <> 'serializable' then
        used := greatest(0,
            coalesce((select sum(l.queued) from fairlead.count_levels l where l.tenant_id = room_of.tenant), 0)
            + coalesce((select sum(c.queued) from fairlead.counts c
                where not c.leveled and c.tenant_id = room_of.tenant), 0));
        if used + room_of.more > allowed then
            return jsonb_build_object('quota', 'queued_jobs', 'used', used, 'allowed', allowed);
        end if;
    end if;
    roomy := clock_timestamp() + make_interval(secs => least(60, coalesce(allowed - used - room_of.more, 1000000) / 10000.0));
    if level = 'read committed' and (use.roomy_until < clock_timestamp() or use.roomy_until > roomy) then
        update fairlead.tenant_use u set roomy_until = roomy
        where u.tenant_id = any(array(
            select s.tenant_id from fairlead.tenant_use s where s.tenant_id = room_of.tenant for no key update skip locked));
    end if;
    return null;
end
$$;

revoke execute on function fairlead.room_of from public;
grant execute on function fairlead.room_of to fairlead_tenant;
