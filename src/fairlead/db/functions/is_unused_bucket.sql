-- Whether nothing started in a bucket's scope for some time and the bucket is full, or its rate was removed: it can be deleted.
create or replace function fairlead.is_unused_bucket(
    definition uuid, tenant uuid, limit_key uuid, tokens double precision, counted_at timestamptz, seconds double precision
) returns boolean language plpgsql stable as $$
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
    rate jsonb;
begin
    if counted_at > clock_timestamp() - make_interval(secs => seconds) then
        return false;
    elsif definition = all_of and tenant = all_of then
        select s.rate into rate from fairlead.system s;
    elsif definition = all_of then
        select t.rate into rate from fairlead.tenants t where t.id = tenant;
    else
        select case when tenant = all_of then d.rate when is_unused_bucket.limit_key = all_of then d.rate_per_tenant
            else d.by_key -> 'rate' end into rate
        from fairlead.job_definitions d where d.id = definition;
    end if;
    return jsonb_typeof(rate) is distinct from 'object'
        or fairlead.tokens_in(tokens, counted_at, rate, clock_timestamp()) >= (rate ->> 'burst')::float8;
end
$$;

revoke execute on function fairlead.is_unused_bucket from public;
